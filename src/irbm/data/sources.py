"""Published files: the table of them; find, verify, download."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn


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


def fetch(name: str, progress: bool = True) -> tuple[Path, ...]:
    """The verified files of a known data set, downloaded if need be; `digits` has none."""
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(KNOWN)}, got {name!r}")
    return tuple(_obtain(source, progress)[0] for source in SOURCES[name])


def contents(name: str, progress: bool) -> list[bytes]:
    return [_obtain(source, progress)[1] for source in SOURCES[name]]


def _obtain(source: Source, progress: bool) -> tuple[Path, bytes]:
    """Where the file lies, and its verified uncompressed bytes."""
    for folder in folders():
        path = folder / source.file
        if path.is_file():
            try:
                return path, _verified(path.read_bytes(), source)
            except ValueError as error:
                cure = "load again to download it" if source.urls else f"put the one from {source.home} there"
                raise ValueError(f"{path} is damaged: {error}; delete it and {cure}") from None
    return _download(source, progress)


def folders() -> Iterator[Path]:
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
    places = " or ".join(str(folder / source.file) for folder in folders())
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
