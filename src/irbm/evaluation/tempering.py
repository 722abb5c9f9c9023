"""Parallel tempering over the points of a path: samples of the machine that can leave a mode by heating up."""

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.evaluation.paths import Path, States
from irbm.ops.noise import Noise


class Tempered(NamedTuple):
    """Samples of the machine, and how often neighbouring points changed places: (R - 1,)."""

    states: States
    column_B: Tensor  # the start that a sample's ladder had: chains change places within a ladder only
    swap_rates: Tensor


def temper(path: Path, points_R: Tensor, start: States, n_sweeps: int, n_samples: int, noise: Noise) -> Tempered:
    """``n_sweeps`` rounds of a Gibbs sweep and a swap between neighbours, on points from s = 0 to s = 1.

    Every point starts from the states given, but for the first, which is sampled exactly in every round. Samples
    are the chains of the last point, taken at even intervals in the second half of the rounds.
    """
    n, n_points = len(start.v_BD), len(points_R)
    heat_B = path.at(points_R.repeat_interleave(n))
    states = _joined([start] * n_points)
    accepted = torch.zeros(n_points - 1, dtype=torch.float64, device=points_R.device)
    moments = torch.linspace(n_sweeps / 2, n_sweeps - 1, -(-n_samples // n)).round().tolist()
    taken: list[States] = []
    for sweep in range(n_sweeps):
        states = path.step(states, heat_B, heat_B, noise)[1]
        states = _joined([path.start(n, noise), _part(states, slice(n, None))])
        states, swapped = _swap(path, states, points_R, sweep % 2, noise)
        accepted += swapped
        taken += [_part(states, slice(-n, None))] * moments.count(sweep)
    column_B = torch.arange(n, device=points_R.device).repeat(len(taken))[:n_samples]
    return Tempered(_part(_joined(taken), slice(n_samples)), column_B, accepted * 2 / n_sweeps)


def _part(states: States, rows: slice | Tensor) -> States:
    return States(*(None if t is None else t[rows] for t in states))  # type: ignore[arg-type]


def _joined(several: list[States]) -> States:
    return States(*(None if tensors[0] is None else torch.cat(tensors) for tensors in zip(*several, strict=True)))  # type: ignore[arg-type]


def _swap(path: Path, states: States, points_R: Tensor, parity: int, noise: Noise) -> tuple[States, Tensor]:
    """Exchange chains between the points (parity, parity + 1), (parity + 2, ...) by Metropolis' rule."""
    n_points = len(points_R)
    n = len(states.v_BD) // n_points
    index_RN = torch.arange(n_points * n, device=points_R.device).view(n_points, n)
    low = torch.arange(parity, n_points - 1, 2, device=points_R.device)
    rates = torch.zeros(n_points - 1, dtype=torch.float64, device=points_R.device)
    if not len(low):
        return states, rates
    up_N, down_N = index_RN[low].flatten(), index_RN[low + 1].flatten()
    here, there = (path.at(points_R[torch.cat(at)].repeat_interleave(n)) for at in ((low, low + 1), (low + 1, low)))
    gain_B, _ = path.weigh(_part(states, torch.cat([up_N, down_N])), here, there, noise)
    log_ratio = gain_B.view(2, -1).sum(0)
    yes = torch.log(noise(len(up_N))) < log_ratio
    source = index_RN.flatten().clone()
    source[up_N], source[down_N] = torch.where(yes, down_N, up_N), torch.where(yes, up_N, down_N)
    rates[low] = yes.view(len(low), n).double().mean(1)
    return _part(states, source), rates
