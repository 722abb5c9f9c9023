"""Products of rows of 0 and 1 on tensor cores that are as exact as float32's, for evaluation.

0 and 1 are exact in bfloat16, and three parts of 8 bits and a sign hold every bit of a float32 number. Each part has a
product of its own, added up in float32: terms of one size add up with next to no rounding, which those of all parts in
one sum would not (``benchmarks/annealing_products.py`` has both, and training's two parts).
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

N_PARTS = 3
MULTIPLE = 8  # of rows and columns: others make cuBLAS take half its speed
LEAST_ENTRIES = 500_000  # of a matrix; with smaller ones a pilot's few rows gain nothing


def suit(matrix: Tensor) -> bool:
    """Whether products with this matrix can be had, and gain: large float32 ones, on a GPU with bfloat16."""
    return gain(matrix) and run_on(matrix.device)


def gain(matrix: Tensor) -> bool:
    """Whether there is anything to gain, where they run."""
    return matrix.dtype == torch.float32 and matrix.numel() >= LEAST_ENTRIES


@cache
def run_on(device: torch.device) -> bool:
    """Whether such products run there. Tried, not guessed: torch has them since 2.8, and not for every card."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    ones = torch.ones(MULTIPLE, MULTIPLE, dtype=torch.bfloat16, device=device)
    total = torch.ones(MULTIPLE, MULTIPLE, device=device)
    try:
        _add_product_(total, ones, ones)
        return bool((total == 1 + MULTIPLE).all())
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # NotImplementedError is one of the former
        return False


def _add_product_(total_BR: Tensor, x_BN: Tensor, part_NR: Tensor) -> None:
    """Add the product of bfloat16 matrices to a float32 one, in place."""
    torch.addmm(total_BR, x_BN, part_NR, out_dtype=torch.float32, out=total_BR)


def split(matrix: Tensor, n: int = N_PARTS) -> list[Tensor]:
    """bfloat16 parts that add up to the matrix, as far as n go; the largest first."""
    parts, left = [], matrix
    for _ in range(n):
        parts.append(left.bfloat16())
        left = left - parts[-1].float()
    return parts


class Parts:
    """A float32 matrix (N, R) and a bias (R,), as they are now, for rows of 0 and 1."""

    def __init__(self, matrix_NR: Tensor, bias_R: Tensor) -> None:
        self._shape = N, R = matrix_NR.shape
        self._parts = split(F.pad(matrix_NR, (0, _rounded(R) - R, 0, _rounded(N) - N)))
        self._bias = F.pad(bias_R, (0, _rounded(R) - R))

    def linear(self, x_BN: Tensor) -> Tensor:
        """The bias and x times the matrix: (B, R)."""
        N, R = self._shape
        rows_BN = x_BN.bfloat16()
        if _rounded(N) != N:  # padding by nothing would copy them
            rows_BN = F.pad(rows_BN, (0, _rounded(N) - N))
        total_BR = self._bias.repeat(len(x_BN), 1)
        for part_NR in self._parts:
            _add_product_(total_BR, rows_BN, part_NR)
        return total_BR[:, :R].contiguous()


def _rounded(n: int) -> int:
    return -(-n // MULTIPLE) * MULTIPLE
