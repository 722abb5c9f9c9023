"""What examples may hold, and as what they come to the machine."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


class Pixels(Protocol):
    """Of an estimator, by its class."""

    def check(self, X: Any, binarize: float | None) -> None:
        """ValueError where an array or a CSR matrix holds anything else."""

    def dense(self, X: NDArray[Any], binarize: float | None) -> NDArray[Any]:
        """The checked examples in one block of memory, as training takes them."""


class Binary:
    """0 and 1, or numbers cut at a threshold."""

    def check(self, X: Any, binarize: float | None) -> None:
        if binarize is not None:
            return
        values = values_of(X)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            value = values[wrong][0]
            raise ValueError(f"X must hold only 0 and 1, got {value!s} among others; pass binarize=t to map X > t to 1")

    def dense(self, X: NDArray[Any], binarize: float | None) -> NDArray[np.uint8]:
        threshold = 0 if binarize is None else binarize
        return np.ascontiguousarray(threshold < X).view(np.uint8)


def values_of(X: Any) -> NDArray[Any]:
    """All numbers of an array, of a sparse one those that it stores."""
    values: NDArray[Any] = X.data if sparse.issparse(X) else X
    return values
