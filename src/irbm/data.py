"""Binary data as train / validation / test splits: `load`; the published files behind it: `fetch`.

A published file is looked for in the folder `$IRBM_DATA`, then in the user's cache folder, then downloaded
into the cache. Whatever is found is checked against its SHA-256 before it is used.

A user's own file is read by its ending:

- `.npz`, `.mat`, `.h5`: arrays `X_train`, `X_validation`, `X_test`, and `y_train`, `y_validation`, `y_test`
  if there are labels; or one `X`, and `y` if there are labels, which is split 80/10/10 at random by `seed`.
- `.npy`: one `X`, split likewise.
- `.csv`: commas, one example a line, split likewise. The first line is a header when it names a column `y` or
  `label`, which then holds the labels, or when none of its fields is a number.

X is (n, D) and holds only 0 and 1 unless `binarize` is given; y is one label per row.
"""

import csv
import gzip
import hashlib
import io
import numbers
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from sklearn.datasets import load_digits


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


@dataclass(frozen=True)
class Source:
    """A published file: its place below a data folder, and the addresses to try in turn."""

    file: str
    sha256: str  # of the uncompressed bytes: the gzip containers differ between mirrors
    home: str  # where people find the file when no address gives it
    urls: tuple[str, ...] = ()
    gzipped: bool = False


_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MNIST_SHA256 = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
SOURCES: dict[str, tuple[Source, ...]] = {
    "digits": (),  # comes with scikit-learn
    "mnist": tuple(
        Source(
            f"mnist/{file}",
            sha256,
            home=_MNIST_MIRRORS[0],
            urls=tuple(mirror + file for mirror in _MNIST_MIRRORS),
            gzipped=True,
        )
        for file, sha256 in _MNIST_SHA256.items()
    ),
    "binarized_mnist": (
        Source(
            "binarized_mnist.mat",
            "e4a352ff14c0b14cb8b96eca205e2a1beb94cb305866fc1d283e0aeab4294f1b",
            home="https://github.com/Boltzxuann/RP-iRBM (there it is called BinaryDataMNIST.mat)",
        ),
    ),
    "caltech101_silhouettes": (
        Source(
            "caltech101_silhouettes_28_split1.mat",
            "eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a",
            home="https://people.cs.umass.edu/~marlin/data.shtml",
            urls=("https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat",),
        ),
    ),
}
KNOWN = tuple(SOURCES)


def load(
    name: str | os.PathLike[str], *, seed: int = 0, binarize: float | None = None, progress: bool = True
) -> Dataset:
    """The data set of that name (see `KNOWN`), or a user's own file (see the top of this module).

    `seed` draws the pixels of `mnist` and splits a file that holds one X; the other data sets are fixed and
    ignore it. `binarize=t` maps X > t to 1 in a user's own file. `progress` shows a bar while downloading.
    """
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}")
    if binarize is not None and not (isinstance(binarize, numbers.Real) and np.isfinite(binarize)):
        raise ValueError(f"binarize must be None or a finite number, got {binarize!r}")
    if name not in _LOADERS:
        return _load_file(_existing(name), seed, binarize)
    if binarize is not None:
        raise ValueError(f"binarize is for your own files, got {binarize!r}; {name} is binary, leave it out")
    return _LOADERS[str(name)](seed, progress)


def fetch(name: str, progress: bool = True) -> tuple[Path, ...]:
    """The verified files of a known data set, downloaded if need be; `digits` has none."""
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(KNOWN)}, got {name!r}")
    return tuple(_obtain(source, progress)[0] for source in SOURCES[name])


# --- The known data sets ---


def _load_digits(seed: int, progress: bool) -> Dataset:
    pixels, y = load_digits(return_X_y=True)
    X = (pixels > 7.5).astype(np.uint8)
    place = _rank_in_class(y) % 6
    train, validation, test = (Split(X[rows], y[rows]) for rows in (place < 4, place == 4, place == 5))
    note = (
        "scikit-learn's digits, 8x8, pixel > 7.5 of 16; of every six images of a class, in file order, four "
        f"train, one validates, one tests: {_sizes(train, validation, test)}"
    )
    return Dataset("digits", train, validation, test, (8, 8), note)


def _rank_in_class(y: NDArray[Any]) -> NDArray[np.int64]:
    """How many earlier examples have the same label: splits by it are stratified without any chance."""
    rank = np.empty(len(y), np.int64)
    for label in np.unique(y):
        rank[y == label] = np.arange(np.sum(y == label))
    return rank


def _load_mnist(seed: int, progress: bool) -> Dataset:
    train_images, train_labels, test_images, test_labels = _contents("mnist", progress)
    rng = np.random.default_rng(seed)
    X_train, X_test = (_draw_pixels(_idx_images(raw), rng) for raw in (train_images, test_images))
    y_train, y_test = (_idx_labels(raw) for raw in (train_labels, test_labels))
    note = (
        f"MNIST, pixels drawn once with probability = intensity (seed {seed}); trained on the first 50,000 "
        "of the 60,000, validated on the other 10,000, tested on 10,000"
    )
    return _mnist_dataset("mnist", Split(X_train, y_train), Split(X_test, y_test), note)


def _idx_images(raw: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28 * 28)


def _idx_labels(raw: bytes) -> NDArray[np.int64]:
    return np.frombuffer(raw, np.uint8, offset=8).astype(np.int64)


def _draw_pixels(intensity: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Ones with probability intensity / 255, exactly: a uniform draw from 0..254 is below it that often."""
    return (rng.integers(0, 255, intensity.shape, np.uint8) < intensity).astype(np.uint8)


def _load_binarized_mnist(seed: int, progress: bool) -> Dataset:
    arrays = scipy.io.loadmat(io.BytesIO(_contents("binarized_mnist", progress)[0]))
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
    train, validation = _rows(full, slice(50_000)), _rows(full, slice(50_000, None))
    return Dataset(name, train, validation, test, (28, 28), note)


def _load_caltech101_silhouettes(seed: int, progress: bool) -> Dataset:
    arrays = scipy.io.loadmat(io.BytesIO(_contents("caltech101_silhouettes", progress)[0]))
    train, validation, test = (
        Split(_row_major(arrays[f"{part}_data"]), arrays[f"{part}_labels"].ravel().astype(np.int64))
        for part in ("train", "val", "test")
    )
    names = tuple(str(name.item()) for name in arrays["classnames"].ravel())
    note = f"CalTech101 Silhouettes 28x28, its own split 1: {_sizes(train, validation, test)}"
    return Dataset("caltech101_silhouettes", train, validation, test, (28, 28), note, names)


def _row_major(X: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """MATLAB flattens an image column by column; NumPy reads it row by row."""
    return X.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 28 * 28)


def _rows(split: Split, rows: slice | NDArray[np.int64]) -> Split:
    return Split(split.X[rows], None if split.y is None else split.y[rows])


def _sizes(*splits: Split) -> str:
    return " / ".join(f"{len(split.X):,}" for split in splits)


_LOADERS: dict[Any, Callable[[int, bool], Dataset]] = {
    "digits": _load_digits,
    "mnist": _load_mnist,
    "binarized_mnist": _load_binarized_mnist,
    "caltech101_silhouettes": _load_caltech101_silhouettes,
}


# --- Published files: find, verify, download ---


def _contents(name: str, progress: bool) -> list[bytes]:
    return [_obtain(source, progress)[1] for source in SOURCES[name]]


def _obtain(source: Source, progress: bool) -> tuple[Path, bytes]:
    """Where the file lies, and its verified uncompressed bytes."""
    for folder in _folders():
        path = folder / source.file
        if path.is_file():
            try:
                return path, _verified(path.read_bytes(), source)
            except ValueError as error:
                cure = "load again to download it" if source.urls else f"put the one from {source.home} there"
                raise ValueError(f"{path} is damaged: {error}; delete it and {cure}") from None
    return _download(source, progress)


def _folders() -> Iterator[Path]:
    """The folders to look in, in order."""
    if os.environ.get("IRBM_DATA"):
        yield Path(os.environ["IRBM_DATA"]).expanduser()
    yield _cache_folder()


def _cache_folder() -> Path:
    try:
        import pooch
    except ImportError:
        return Path.home() / ".cache" / "irbm"
    return Path(pooch.os_cache("irbm"))


def _verified(content: bytes, source: Source) -> bytes:
    """The uncompressed bytes, or a ValueError when they are not the published ones."""
    try:
        raw = gzip.decompress(content) if source.gzipped else content
        actual = hashlib.sha256(raw).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raw, actual = b"", f"unknown ({error})"
    if actual != source.sha256:
        of = "SHA-256 of the uncompressed bytes" if source.gzipped else "SHA-256"
        raise ValueError(f"{of} is {actual}, expected {source.sha256}")
    return raw


def _download(source: Source, progress: bool) -> tuple[Path, bytes]:
    """Into the cache, from the first address that gives the right bytes: no others touch the disk."""
    if not source.urls:
        raise FileNotFoundError(
            f"{source.file} cannot be downloaded: get it from {source.home}, then {_where_to_put(source)}"
        )
    path = _cache_folder() / source.file
    failures = []
    for url in source.urls:
        try:
            content = _get(url, source, progress)
            raw = _verified(content, source)
        except (OSError, ValueError) as error:
            failures.append(f"{url}: {_reason(error)}")
            continue
        _store(path, content)
        return path, raw
    raise ConnectionError(
        f"could not download {source.file} ({'; '.join(failures)}): try again, or {_where_to_put(source)}"
    )


def _get(url: str, source: Source, progress: bool) -> bytes:
    try:
        import pooch
    except ImportError:
        raise ImportError(f"downloading {url} needs pooch (pip install pooch); or {_where_to_put(source)}") from None
    buffer = io.BytesIO()
    with closing(_Bar(source.file)) if progress else nullcontext(False) as bar:
        download = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
        download(url, buffer, None)
    return buffer.getvalue()


def _reason(error: Exception) -> str:
    """Short: an HTTP library's own words on a refused connection fill three lines and help nobody."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    return str(error) if type(error) is ValueError else type(error).__name__


def _where_to_put(source: Source) -> str:
    places = " or ".join(str(folder / source.file) for folder in _folders())
    hint = "" if os.environ.get("IRBM_DATA") else f" or <folder>/{source.file} with IRBM_DATA=<folder>"
    return f"put the file at {places}{hint}"


def _store(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # so that a killed process leaves no half file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OSError(f"cannot write {path} ({error.strerror}): make room, or the folder writable") from error


class _Bar:
    """The progress bar pooch asks for, drawn by rich: pooch's own needs tqdm."""

    def __init__(self, label: str) -> None:
        self.total = 0  # pooch sets it once the server has told
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(label, total=None)
        self._progress.start()

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()


# --- A user's own file ---

_PARTS = ("train", "validation", "test")
_X_PARTS = frozenset(f"X_{part}" for part in _PARTS)
_Y_PARTS = frozenset(f"y_{part}" for part in _PARTS)
_LAYOUTS = (frozenset("X"), frozenset("Xy"), _X_PARTS, _X_PARTS | _Y_PARTS)
_NAMES = frozenset("Xy") | _X_PARTS | _Y_PARTS


def _existing(name: str | os.PathLike[str]) -> Path:
    path = Path(name).expanduser()
    if path.suffix.lower() not in _READERS:
        kinds = ", ".join(_READERS)
        raise ValueError(f"name must be one of {', '.join(KNOWN)} or a path that ends in {kinds}; got {str(name)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r} (seen from {Path.cwd()}); check the path")
    return path


def _load_file(path: Path, seed: int, binarize: float | None) -> Dataset:
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
    return Dataset(path.name, train, validation, test, None, f"{path.name}, {how}: {_sizes(train, validation, test)}")


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
    return [_rows(whole, rows) for rows in cuts]


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
        raise ValueError(f"{what} must hold plain numbers or strings, got dtype {y.dtype}")
    if y.ndim == 2 and 1 in y.shape:  # MATLAB knows no vectors
        y = y.ravel()
    if y.ndim != 1:
        raise ValueError(f"{what} must have shape (n,), one label per row, got {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"{what} must hold finite labels, got {y[~np.isfinite(y)][0]}")
    return y


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
    if labels or not any(map(_is_number, names)):
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
