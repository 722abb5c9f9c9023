"""What every data set is in the end: three splits of binary examples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Split:
    """Examples, and their labels where there are some.

    Attributes
    ----------
    X : array (n, D) of uint8
        The examples, of 0 and 1.
    y : array (n,) or None
        One label each.
    """

    X: NDArray[np.uint8]
    y: NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits of one set of examples.

    Attributes
    ----------
    name : str
        What `load` was asked for, or the file's name.
    train, validation, test : Split
        The examples.
    image_shape : tuple or None
        Rows and columns, where an example is a picture.
    note : str
        One sentence on how the splits came about, to stand beside every result.
    class_names : tuple of str or None
        Names of the classes, in the order of the sorted labels.
    """

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
