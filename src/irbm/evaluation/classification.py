"""How often a classifier errs, how sure that figure is, and what it confuses."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

NORMAL_95 = 1.959963984540054  # a standard normal lies within so much of 0 in 95 of 100 cases


@dataclass(frozen=True)
class ErrorRate:
    """A share of errors among n examples, with Wilson's 95 % interval."""

    errors: int
    n: int
    rate: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.rate:.2%} [{self.lower:.2%}, {self.upper:.2%}]"


def error_rate(y: ArrayLike, predicted: ArrayLike) -> ErrorRate:
    """How many of the predictions differ from the labels y."""
    labels, guesses = np.asarray(y), np.asarray(predicted)
    if labels.shape != guesses.shape or labels.ndim != 1 or not labels.size:
        raise ValueError(f"y and predicted must be two lists of equal length, got {labels.shape} and {guesses.shape}")
    errors = int((labels != guesses).sum())
    lower, upper = wilson_interval(errors, labels.size)
    return ErrorRate(errors, labels.size, errors / labels.size, lower, upper)


def wilson_interval(errors: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share, of use near 0 too: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    share, z = errors / n, NORMAL_95
    middle = share + z**2 / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def confusion_matrix(y: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Counts (C, C), a row for each true label, a column for each predicted one; and the labels, sorted: (C,)."""
    labels, guesses = np.asarray(y), np.asarray(predicted)
    names, codes = np.unique(np.concatenate([labels, guesses]), return_inverse=True)
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (codes[: len(labels)], codes[len(labels) :]), 1)
    return counts, names
