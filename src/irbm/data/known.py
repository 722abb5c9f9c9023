"""The known data sets, from the published files or from scikit-learn to splits."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from irbm.data.sources import contents
from irbm.data.splits import Dataset, Split, sizes, take


def _load_digits(seed: int, progress: bool) -> Dataset:
    return digits((7.5,))


def digits(cuts: tuple[float, ...]) -> Dataset:
    """scikit-learn's digits, a visible unit for each cut and pixel: whether the pixel is above it. Cut by cut."""
    pixels, y = load_digits(return_X_y=True)
    X = np.concatenate([pixels > cut for cut in cuts], axis=1).astype(np.uint8)
    place = _rank_in_class(y) % 6
    train, validation, test = (Split(X[rows], y[rows]) for rows in (place < 4, place == 4, place == 5))
    note = (
        f"scikit-learn's digits, 8x8, pixel > {', '.join(map(str, cuts))} of 16; of every six images of a class, in "
        f"file order, four train, one validates, one tests: {sizes(train, validation, test)}"
    )
    return Dataset("digits", train, validation, test, (8, 8) if len(cuts) == 1 else None, note)


def _rank_in_class(y: NDArray[Any]) -> NDArray[np.int64]:
    """How many earlier examples have the same label: splits by it are stratified without any chance."""
    rank = np.empty(len(y), np.int64)
    for label in np.unique(y):
        rank[y == label] = np.arange(np.sum(y == label))
    return rank


def _load_mnist(seed: int, progress: bool, binarize: float | None = None) -> Dataset:
    rng = np.random.default_rng(seed)
    how = f"drawn once with probability = intensity (seed {seed})" if binarize is None else f"> {binarize:g} of 255"
    return raw_mnist(lambda intensity: _pixels(intensity, rng, binarize), how, progress)


def raw_mnist(
    pixels: Callable[[NDArray[np.uint8]], NDArray[Any]], how: str, progress: bool, name: str = "mnist"
) -> Dataset:
    """The raw files, with what becomes of their intensities, 0 to 255, first of training and then of test images."""
    train_images, train_labels, test_images, test_labels = contents("mnist", progress)
    train, test = (
        Split(pixels(_idx_images(images)), _idx_labels(labels))
        for images, labels in ((train_images, train_labels), (test_images, test_labels))
    )
    note = (
        f"MNIST, pixels {how}; trained on the first 50,000 of the 60,000, validated on the other 10,000, "
        "tested on 10,000"
    )
    return _mnist_dataset(name, train, test, note)


def _pixels(intensity: NDArray[np.uint8], rng: np.random.Generator, binarize: float | None) -> NDArray[np.uint8]:
    return _draw_pixels(intensity, rng) if binarize is None else (intensity > binarize).astype(np.uint8)


def _idx_images(raw: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28 * 28)


def _idx_labels(raw: bytes) -> NDArray[np.int64]:
    return np.frombuffer(raw, np.uint8, offset=8).astype(np.int64)


def _draw_pixels(intensity: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Ones with probability intensity / 255, exactly: a uniform draw from 0..254 is below it that often."""
    return (rng.integers(0, 255, intensity.shape, np.uint8) < intensity).astype(np.uint8)


def _load_binarized_mnist(seed: int, progress: bool) -> Dataset:
    arrays = scipy.io.loadmat(io.BytesIO(contents("binarized_mnist", progress)[0]))
    train, test = (
        Split(np.ascontiguousarray(arrays[f"Bdata_{part}"]), arrays[f"{part}_targets"].argmax(axis=1))
        for part in ("train", "test")
    )
    note = (
        "the paper's binarized MNIST; trained on the first 50,000 of the 60,000, validated on the other "
        "10,000, tested on 10,000"
    )
    return _mnist_dataset("binarized_mnist", train, test, note)


def _mnist_dataset(name: str, full: Split, test: Split, note: str) -> Dataset:
    train, validation = take(full, slice(50_000)), take(full, slice(50_000, None))
    return Dataset(name, train, validation, test, (28, 28), note)


def _load_caltech101_silhouettes(seed: int, progress: bool) -> Dataset:
    arrays = scipy.io.loadmat(io.BytesIO(contents("caltech101_silhouettes", progress)[0]))
    train, validation, test = (
        Split(_row_major(arrays[f"{part}_data"]), arrays[f"{part}_labels"].ravel().astype(np.int64))
        for part in ("train", "val", "test")
    )
    names = tuple(str(name.item()) for name in arrays["classnames"].ravel())
    note = f"CalTech101 Silhouettes 28x28, its own split 1: {sizes(train, validation, test)}"
    return Dataset("caltech101_silhouettes", train, validation, test, (28, 28), note, names)


def _row_major(X: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """MATLAB flattens an image column by column; NumPy reads it row by row."""
    return X.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 28 * 28)


LOADERS: dict[Any, Callable[..., Dataset]] = {
    "digits": _load_digits,
    "mnist": _load_mnist,
    "binarized_mnist": _load_binarized_mnist,
    "caltech101_silhouettes": _load_caltech101_silhouettes,
}
