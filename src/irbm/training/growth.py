"""How a machine gains units while it trains, and sheds those that came to nothing."""

from torch import Tensor

from irbm.models import Machine
from irbm.ops import dispatch

PRUNE_BELOW = 0.1  # of the mean norm, sec. 3.3


def update_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """l grows by one where some example and its negative partner both reach beyond l. Algorithm 1.

    With unequal numbers of examples and chains the shorter list is gone through again from its start.
    """
    dispatch.grow_(size, z_pos_B, z_neg_N, limit)


def prune(machine: Machine) -> Machine:
    """The machine without the units whose weights have less than a tenth of the mean norm; order kept."""
    units = machine.order[: int(machine.size)]
    norms = machine.weights[units].norm(dim=1)
    return machine.selected(units[norms >= PRUNE_BELOW * norms.mean()])
