"""What the order of the hidden units still means to a machine. Sec. 3.3, Proposition 3.1."""

import torch
from torch import Tensor

from irbm.evaluation.precision import full_precision
from irbm.models import Machine

ROWS = 1000


def order_invariance(machine: Machine, X: Tensor, m: int) -> float:
    """The mean over the examples of ln p(z <= m | v): far below zero where the first m units have lost their order."""
    if not 1 <= m <= int(machine.size):
        raise ValueError(f"m, the units regrouped, must be in 1..{int(machine.size)}, got {m}")
    total = 0.0
    with full_precision():
        for start in range(0, len(X), ROWS):
            v_BD = X[start : start + ROWS].to(machine.weights.device, machine.weights.dtype)
            total += float(torch.logsumexp(machine.log_prob_z(v_BD)[:, :m], dim=1).sum())
    return total / len(X)
