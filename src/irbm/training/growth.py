"""How a machine gains units while it trains, and sheds those that came to nothing."""

import torch
from torch import Tensor

from irbm.models import Machine
from irbm.ops import compiled, counting, dispatch

PRUNE_BELOW = 0.1  # of the mean norm, sec. 3.3


def update_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """l grows by one where some example and its negative partner both reach beyond l. Algorithm 1.

    With unequal numbers of examples and chains the shorter list is gone through again from its start.
    """
    if dispatch.has_kernels(size):
        counting.grow_(size, z_pos_B, z_neg_N, limit)
        return
    if compiled.counts_on(size.device):
        compiled.grow_(size, z_pos_B, z_neg_N, limit)
        return
    if len(z_pos_B) != len(z_neg_N):
        pairs = torch.arange(max(len(z_pos_B), len(z_neg_N)), device=size.device)
        z_pos_B, z_neg_N = z_pos_B[pairs % len(z_pos_B)], z_neg_N[pairs % len(z_neg_N)]
    beyond = (z_pos_B > size) & (z_neg_N > size)
    size.add_((beyond.any() & (size < limit)).long())


def prune(machine: Machine) -> Machine:
    """The machine without the units whose weights have less than a tenth of the mean norm; order kept."""
    units = machine.order[: int(machine.size)]
    norms = machine.weights[units].norm(dim=1)
    return machine.selected(units[norms >= PRUNE_BELOW * norms.mean()])
