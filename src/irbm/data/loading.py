"""One door to all data: a known name, or the path of a user's own file."""

import numbers
import os

import numpy as np

from irbm.data.known import LOADERS
from irbm.data.own import existing, load_file
from irbm.data.splits import Dataset


def load(
    name: str | os.PathLike[str], *, seed: int = 0, binarize: float | None = None, progress: bool = True
) -> Dataset:
    """Examples of 0 and 1, in three splits.

    Parameters
    ----------
    name : str or path
        "digits", "mnist", "binarized_mnist", "caltech101_silhouettes", or the path of your own file.
    seed : int
        Draws the pixels of "mnist" and splits a file that holds one X; the other data sets are fixed and ignore it.
    binarize : float or None
        For your own file: t maps X > t to 1. None: X must hold only 0 and 1. For "mnist", whose intensities go up to
        255: the same in place of drawing pixels.
    progress : bool
        Show a bar while downloading.
    """
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}")
    if binarize is not None and not (isinstance(binarize, numbers.Real) and np.isfinite(binarize)):
        raise ValueError(f"binarize must be None or a finite number, got {binarize!r}")
    if name not in LOADERS:
        return load_file(existing(name), seed, binarize)
    if binarize is None:
        return LOADERS[str(name)](seed, progress)
    if name != "mnist":
        raise ValueError(
            f"binarize is for mnist and your own files, got {binarize!r}; {name} is binary already, leave it out"
        )
    return LOADERS["mnist"](seed, progress, binarize)
