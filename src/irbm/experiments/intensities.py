"""MNIST as it is, without drawing pixels: an intensity stands where a pixel would, as its probability of being on.

Only for table 2, whose ClassRBMs the paper cites from others: what is given v takes any numbers, and the formulas stay.
Likelihoods of such v mean nothing, which is why no estimator of the library takes them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irbm.data import Dataset
from irbm.data.known import raw_mnist
from irbm.estimators import InfiniteRBMClassifier, RBMClassifier
from irbm.experiments.paper import INTENSITIES

LARGEST = 255


def load(progress: bool) -> Dataset:
    """The splits of MNIST with pixels from 0 to 1."""
    return raw_mnist(_of_one, "are intensities, not drawn", progress, INTENSITIES)


def _of_one(intensity: NDArray[np.uint8]) -> NDArray[Any]:
    return intensity / np.float32(LARGEST)


class _Intensities:
    """Examples as they are, where estimators take 0 and 1 alone."""

    def _check_values(self, X: Any) -> None:
        if not ((X >= 0) & (X <= 1)).all():
            raise ValueError("X must hold numbers from 0 to 1")

    def _binary(self, X: Any) -> NDArray[np.float32]:
        return np.ascontiguousarray(X, dtype=np.float32)


class IntensityRBMClassifier(_Intensities, RBMClassifier):  # type: ignore[misc]
    """A ClassRBM that takes pixels from 0 to 1."""


class IntensityInfiniteRBMClassifier(_Intensities, InfiniteRBMClassifier):  # type: ignore[misc]
    """A Dis-iRBM that takes pixels from 0 to 1."""
