"""Scores of data: the mean likelihood with what is known of ln Z, and one that needs none."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from irbm.evaluation.partition import LogPartition
from irbm.models import Machine
from irbm.ops import reference as ops

CHUNK_BYTES = 2**26
TENSORS = 8  # of a chunk's size that are there at once


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

    p(v_j | rest) = 1 / (1 + e^{F(v) - F(v with j flipped)}); a flip moves activations by a column of the weights.
    """
    a_BK, b_D = F.linear(v_BD, machine.weights, machine.hidden_bias), machine.visible_bias.double()
    before_B = machine.log_sum(machine.with_labels(a_BK, None))
    total_B = torch.zeros_like(before_B)
    columns = max(1, CHUNK_BYTES // (TENSORS * 8 * a_BK.numel() * max(1, machine.n_classes)))
    for start in range(0, machine.n_visible, columns):
        some = slice(start, start + columns)
        sign_JB = 1 - 2 * v_BD[:, some].T  # of what a flip adds
        flipped_JBK = a_BK + sign_JB[..., None] * machine.weights.T[some, None]
        after_JB = machine.log_sum(machine.with_labels(flipped_JBK.flatten(0, 1), None)).view(sign_JB.shape)
        total_B -= ops.softplus(after_JB - before_B + sign_JB.double() * b_D[some, None]).sum(0)
    return total_B
