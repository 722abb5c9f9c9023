"""Scores of data: the mean likelihood with what is known of ln Z, and one that needs none."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irbm.evaluation.partition import LogPartition
from irbm.models import Machine

CHUNK_BYTES = 2**26


def mean_likelihood(minus_f: NDArray[np.float64], log_z: LogPartition) -> dict[str, Any]:
    """The mean of ln p(v) = -F(v) - ln Z with the bracket of ln Z, the verdict, and the spread over the examples."""
    mean, n = float(minus_f.mean()), len(minus_f)
    return {
        "value": mean - log_z.value,
        "lower": mean - log_z.upper,
        "upper": mean - log_z.lower,
        "stderr_of_examples": float(minus_f.std(ddof=1) / math.sqrt(n)) if n > 1 else None,
        "reliable": log_z.reliable,
        "reason": log_z.reason,
    }


def pseudo_log_likelihood(machine: Machine, v_BD: Tensor) -> Tensor:
    """sum_j ln p(v_j | the other visibles): (B,), float64, exact for every j.

    p(v_j | rest) = 1 / (1 + e^{F(v) - F(v with j flipped)}).
    """
    free_energy_B = machine.free_energy(v_BD)
    total_B = torch.zeros_like(free_energy_B)
    width = machine.n_visible + 8 * (machine.capacity + 1) * max(1, machine.n_classes)
    columns = max(1, CHUNK_BYTES // (8 * len(v_BD) * width))
    for start in range(0, machine.n_visible, columns):
        flipped = _flip_each(v_BD, range(start, min(start + columns, machine.n_visible)))
        flipped_JB = machine.free_energy(flipped.flatten(0, 1)).view(flipped.shape[:2])
        total_B -= torch.logaddexp(torch.zeros_like(flipped_JB), free_energy_B - flipped_JB).sum(0)
    return total_B


def _flip_each(v_BD: Tensor, columns: range) -> Tensor:
    """One copy of the batch for each column, with that column flipped: (J, B, D)."""
    flipped = v_BD.repeat(len(columns), 1, 1)
    for row, column in enumerate(columns):
        flipped[row, :, column] = 1 - flipped[row, :, column]
    return flipped
