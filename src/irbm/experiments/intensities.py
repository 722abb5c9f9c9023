"""MNIST as it is, without drawing pixels: an intensity stands where a pixel would, as its probability of being on.

For table 2 and the page of classifiers, where they tell what drawing costs: labels given v have the same formulas for
any numbers. Likelihoods of such v mean nothing, which is why no estimator of the library takes them: these two are
for labels alone.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from irbm.data import Dataset
from irbm.data.known import raw_mnist
from irbm.estimators import InfiniteRBMClassifier, RBMClassifier
from irbm.estimators.pixels import Pixels, values_of
from irbm.experiments.paper import INTENSITIES

LARGEST = 255


def load(progress: bool) -> Dataset:
    """The splits of MNIST with pixels from 0 to 1."""
    return raw_mnist(_of_one, "are intensities, not drawn", progress, INTENSITIES)


def _of_one(intensity: NDArray[np.uint8]) -> NDArray[Any]:
    return intensity / np.float32(LARGEST)


class Intensities:
    """Numbers from 0 to 1, as they are."""

    def check(self, X: Any, binarize: float | None) -> None:
        if binarize is not None:
            raise ValueError(f"binarize must be None for intensities, which are not cut, got {binarize!r}")
        values = values_of(X)
        wrong = ~((values >= 0) & (values <= 1))
        if wrong.any():
            raise ValueError(f"X must hold numbers from 0 to 1, got {values[wrong][0]!s} among others; scale it first")

    def dense(self, X: NDArray[Any], binarize: float | None) -> NDArray[Any]:
        return np.array(X, X.dtype.newbyteorder("="), order="C")


class IntensityRBMClassifier(RBMClassifier):
    """A ClassRBM that takes pixels from 0 to 1."""

    _pixels: ClassVar[Pixels] = Intensities()


class IntensityInfiniteRBMClassifier(InfiniteRBMClassifier):
    """A Dis-iRBM that takes pixels from 0 to 1."""

    _pixels: ClassVar[Pixels] = Intensities()
