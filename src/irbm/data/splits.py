"""What every data set is in the end: three splits of binary examples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Split:
    """Examples X (n, D) of 0 and 1, with one label each in y (n,), or None."""

    X: NDArray[np.uint8]
    y: NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits, and in `note` one sentence on how they came about, to stand beside every result."""

    name: str
    train: Split
    validation: Split
    test: Split
    image_shape: tuple[int, int] | None
    note: str
    class_names: tuple[str, ...] | None = None  # in the order of the sorted labels


def take(split: Split, rows: slice | NDArray[np.int64]) -> Split:
    return Split(split.X[rows], None if split.y is None else split.y[rows])


def sizes(*splits: Split) -> str:
    return " / ".join(f"{len(split.X):,}" for split in splits)
