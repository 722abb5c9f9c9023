"""Random permutation: how many positions are shuffled before a step, and the step's shuffle. Sec. 3.1 and 4.1.

Only the index moves. Weights, optimiser state and momenta stay where they are.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.ops import counting, dispatch
from irbm.ops.noise import KeyedStream, Noise

FIRST_EPOCHS = 10  # the schedule mixes greedily until then
FIRST_FRACTION = 0.75
LARGEST_FRACTION = 0.9
MARGIN = 10  # units between the mean depth and what is regrouped, eq. 32


class Limits(NamedTuple):
    """M_t = min(floor(fraction * l_t), most): fixed for an epoch, while l_t grows on the device."""

    fraction: float
    most: float

    def length(self, size: Tensor) -> Tensor:
        """M_t, on the device of the size."""
        return regrouped(size, torch.tensor(self, dtype=torch.float64, device=size.device))


def regrouped(size: Tensor, limits: Tensor) -> Tensor:
    """M_t from l and the two limits, all on the device."""
    if not size.is_cuda:  # two numbers: six calls of torch would cost more than the shuffle
        fraction, most = limits.tolist()
        return torch.tensor(int(min(math.floor(int(size) * fraction), most)))
    return torch.minimum((size * limits[0]).floor(), limits[1]).long()


def limits(regroup: str | float | None, epoch: int, mean_z: list[float]) -> Limits:
    """How much to regroup in an epoch, numbered from 0, after epochs whose mean likeliest z is known."""
    if regroup is None:
        return Limits(0.0, 0.0)
    if not isinstance(regroup, str):
        return Limits(float(regroup), math.inf)
    if epoch == 0:
        return Limits(0.0, 0.0)
    if epoch < FIRST_EPOCHS:
        return Limits(FIRST_FRACTION, math.inf)
    return Limits(LARGEST_FRACTION, max(recent_mean(mean_z) - MARGIN, 0.0))


def recent_mean(mean_z: list[float]) -> float:
    """The mean over the last 20 % of epochs. Eq. 32 of sec. 4.1."""
    recent = mean_z[-max(1, round(0.2 * len(mean_z))) :]
    return sum(recent) / len(recent)


def mix_(order_K: Tensor, size: Tensor, limits: Tensor, noise: Noise) -> None:
    """Permute the first M_t positions uniformly, in place, by the limits of the epoch."""
    if isinstance(noise, KeyedStream):
        counting.shuffle_(order_K, size, limits, noise.next_key())  # which finds M_t by itself
    else:
        dispatch.shuffle_(order_K, regrouped(size, limits), noise(len(order_K)))
