"""A user's own file: read, checked, split. The formats stand at the top of `irbm.data`."""

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from irbm.data.sources import KNOWN
from irbm.data.splits import Dataset, Split, sizes, take

_PARTS = ("train", "validation", "test")
_X_PARTS = frozenset(f"X_{part}" for part in _PARTS)
_Y_PARTS = frozenset(f"y_{part}" for part in _PARTS)
_LAYOUTS = (frozenset("X"), frozenset("Xy"), _X_PARTS, _X_PARTS | _Y_PARTS)
_NAMES = frozenset("Xy") | _X_PARTS | _Y_PARTS


def existing(name: str | os.PathLike[str]) -> Path:
    path = Path(name).expanduser()
    if path.suffix.lower() not in _READERS:
        kinds = ", ".join(_READERS)
        raise ValueError(f"name must be one of {', '.join(KNOWN)} or a path that ends in {kinds}; got {str(name)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r} (seen from {Path.cwd()}); check the path")
    return path


def load_file(path: Path, seed: int, binarize: float | None) -> Dataset:
    arrays = _read_arrays(path)
    if "X" in arrays:
        splits = _split_at_random(_checked(arrays, "", path, binarize), seed, path)
        how = f"split 80/10/10 at random (seed {seed})"
    else:
        splits = [_checked(arrays, f"_{part}", path, binarize) for part in _PARTS]
        how = "its own split"
    _check_widths(splits, path)
    train, validation, test = splits
    how += "" if binarize is None else f", binarized at X > {binarize:g}"
    return Dataset(path.name, train, validation, test, None, f"{path.name}, {how}: {sizes(train, validation, test)}")


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    kind = path.suffix.lower()
    try:
        arrays = _READERS[kind](path)
    except ImportError:
        raise
    except Exception as error:  # a parser raises whatever strange bytes provoke in it
        reason = str(error).split(". ")[0] or type(error).__name__  # NumPy's second sentence advises pickle
        raise ValueError(
            f"{path} cannot be read as {kind} ({reason}); it must be whole and hold plain arrays, no pickles"
        ) from error
    if frozenset(arrays) not in _LAYOUTS:
        layouts = "; or ".join(", ".join(sorted(layout)) for layout in _LAYOUTS)
        found = ", ".join(sorted(arrays)) or "none of them"
        raise ValueError(f"{path} must hold the arrays {layouts}; found {found}")
    return arrays


def _split_at_random(whole: Split, seed: int, path: Path) -> list[Split]:
    count = len(whole.X)
    if count < 3:
        raise ValueError(f"X in {path} must have at least 3 rows to be split in three, got {count}")
    held_out = max(1, count // 10)
    order = np.random.default_rng(seed).permutation(count)
    cuts = np.split(order, [count - 2 * held_out, count - held_out])
    return [take(whole, rows) for rows in cuts]


def _checked(arrays: dict[str, NDArray[Any]], suffix: str, path: Path, binarize: float | None) -> Split:
    X = _binary(arrays[f"X{suffix}"], f"X{suffix} in {path}", binarize)
    if f"y{suffix}" not in arrays:
        return Split(X, None)
    y = _labels(arrays[f"y{suffix}"], f"y{suffix} in {path}")
    if len(y) != len(X):
        raise ValueError(f"y{suffix} in {path} must have {len(X)} labels, one per row of X{suffix}, got {len(y)}")
    return Split(X, y)


def _binary(X: NDArray[Any], what: str, binarize: float | None) -> NDArray[np.uint8]:
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold plain numbers, got dtype {X.dtype}; convert it before saving")
    if X.ndim != 2:
        raise ValueError(f"{what} must have shape (n, D), got {X.shape}; reshape it, one example per row")
    if X.size == 0:
        raise ValueError(f"{what} must not be empty, got shape {X.shape}")
    _refuse(X, ~np.isfinite(X), f"{what} must hold finite numbers", "fill or drop missing values")
    if binarize is not None:
        return (binarize < X).astype(np.uint8, order="C")
    _refuse(X, (X != 0) & (X != 1), f"{what} must hold only 0 and 1", "pass binarize=t to map X > t to 1")
    return X.astype(np.uint8, order="C")


def _refuse(X: NDArray[Any], wrong: NDArray[np.bool_], rule: str, cure: str) -> None:
    if wrong.any():
        row, column = np.unravel_index(wrong.argmax(), wrong.shape)
        raise ValueError(f"{rule}, got {X[row, column]:g} in row {row}, column {column}; {cure}")


def _labels(y: NDArray[Any], what: str) -> NDArray[Any]:
    if y.dtype.kind not in "biufUS":
        raise ValueError(f"{what} must hold plain numbers or strings, got dtype {y.dtype}; save numbers, or use .npz")
    if y.ndim == 2 and 1 in y.shape:  # MATLAB knows no vectors
        y = y.ravel()
    if y.ndim != 1:
        raise ValueError(f"{what} must have shape (n,), one label per row, got {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"{what} must hold finite labels, got {y[~np.isfinite(y)][0]}")
    return np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y


def _check_widths(splits: list[Split], path: Path) -> None:
    for part, split in zip(_PARTS, splits, strict=True):
        width, expected = split.X.shape[1], splits[0].X.shape[1]
        if width != expected:
            raise ValueError(f"X_{part} in {path} must have {expected} columns, as X_train has, got {width}")


def _read_npy(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:
        X = np.load(file, allow_pickle=False)
        if not isinstance(X, np.ndarray):
            raise ValueError("it holds several arrays: rename it to .npz")
    return {"X": X}


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array: rename it to .npy")
        return {name: archive[name] for name in archive.files if name in _NAMES}


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    try:
        arrays = scipy.io.loadmat(path, variable_names=list(_NAMES))
    except NotImplementedError:
        raise ValueError("it has MATLAB's version 7.3: save it with save(..., '-v7')") from None
    return {name: np.asarray(array) for name, array in arrays.items() if name in _NAMES}


def _read_h5(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import h5py
    except ImportError:
        raise ImportError(f"reading {path} needs h5py: pip install 'irbm[h5py]'") from None
    with h5py.File(path, "r") as file:
        return {name: np.asarray(file[name][()]) for name in file if name in _NAMES}


def _read_csv(path: Path) -> dict[str, NDArray[Any]]:
    lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    names = next(csv.reader(lines), [])
    labels = [column for column, name in enumerate(names) if name.strip().lower() in ("y", "label")]
    if len(labels) > 1:
        raise ValueError(f"it has {len(labels)} columns named y or label: keep one")
    if labels or not any(map(_is_number, names)) or _are_counted(names):
        lines = lines[1:]
    if not lines:
        raise ValueError("it is empty: no line of numbers")
    if not labels:
        return {"X": _csv_numbers(lines, None)}
    columns = [column for column in range(len(names)) if column not in labels]
    return {"y": _csv_labels(lines, labels[0], len(names)), "X": _csv_numbers(lines, columns)}


def _csv_numbers(lines: list[str], columns: list[int] | None) -> NDArray[np.float64]:
    return np.loadtxt(lines, delimiter=",", comments=None, quotechar='"', usecols=columns, ndmin=2)


def _csv_labels(lines: list[str], column: int, width: int) -> NDArray[Any]:
    """Integers where they all are, otherwise strings."""
    labels = []
    for number, fields in enumerate(csv.reader(lines), start=1):
        if len(fields) != width:  # loadtxt does not notice when it is told which columns to use
            raise ValueError(f"row {number} has {len(fields)} fields, the header {width}")
        labels.append(fields[column].strip())
    try:
        return np.array(labels, np.int64)
    except ValueError:
        return np.array(labels)


def _are_counted(names: list[str]) -> bool:
    """Whether they are 0, 1, 2, ..., as a data frame without names has its columns: no row of a few pixels is."""
    return len(names) > 2 and names == [str(column) for column in range(len(names))]


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


_READERS: dict[str, Callable[[Path], dict[str, NDArray[Any]]]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_csv,
    ".mat": _read_mat,
    ".h5": _read_h5,
}
