"""Data: published files are found, verified and downloaded; users' files are read strictly."""

import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from sklearn.datasets import load_digits

from irbm import data

h5py = pytest.importorskip("h5py")
pooch = pytest.importorskip("pooch")

REAL_DATA = os.environ.get("IRBM_DATA")  # read before the tests shield themselves from it
CONTENT = b"the published bytes " * 5000
NAME = "binarized_mnist"  # whose entry the tests of lookup and download replace


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's data folder, cache or proxy."""
    folder = tmp_path / "cache"
    monkeypatch.delenv("IRBM_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: folder / project)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder / "irbm"


@pytest.fixture
def irbm_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "irbm_data"
    folder.mkdir()
    monkeypatch.setenv("IRBM_DATA", str(folder))
    return folder


class Server(ThreadingHTTPServer):
    """Serves `files` from memory and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path.removeprefix("/"))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Publish = Callable[..., data.Source]


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Replaces the table's entry for NAME by one file of our own."""

    def publish(content: bytes = CONTENT, **changes: Any) -> data.Source:
        fields = {"file": "sub/a.bin", "sha256": sha256(content), "home": "https://home.example"}
        source = data.Source(**(fields | changes))
        monkeypatch.setitem(data.SOURCES, NAME, (source,))
        return source

    return publish


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# --- Lookup ---


def test_irbm_data_comes_before_cache_and_cache_before_download(
    irbm_data: Path, cache: Path, server: Server, publish: Publish
) -> None:
    source = publish(urls=(server.url("a.bin"),))
    server.files["a.bin"] = CONTENT
    in_cache, in_folder = put(cache / source.file), put(irbm_data / source.file)
    assert data.fetch(NAME) == (in_folder,)
    in_folder.unlink()
    assert data.fetch(NAME) == (in_cache,)
    assert server.asked == []
    in_cache.unlink()
    assert data.fetch(NAME, progress=False) == (in_cache,)
    assert server.asked == ["/a.bin"]


def test_empty_irbm_data_means_unset(cache: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    source = publish()
    monkeypatch.setenv("IRBM_DATA", "")
    monkeypatch.chdir(put(cache / "here" / source.file).parent.parent)  # "" must not become the current folder
    with pytest.raises(FileNotFoundError, match="cannot be downloaded"):
        data.fetch(NAME)


def test_without_pooch_the_cache_is_below_home(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = publish(urls=("http://127.0.0.1:9/a.bin",))
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    place = tmp_path / "home" / ".cache" / "irbm" / source.file
    with pytest.raises(ImportError, match="pip install pooch") as caught:
        data.fetch(NAME)
    assert str(place) in str(caught.value)
    put(place)
    assert data.fetch(NAME) == (place,)


@pytest.mark.parametrize("urls", [(), ("http://127.0.0.1:9/a.bin",)])
@pytest.mark.parametrize("folder", ["cache", "irbm_data"])
def test_damaged_file_is_refused(
    folder: str, urls: tuple[str, ...], request: pytest.FixtureRequest, publish: Publish
) -> None:
    source = publish(urls=urls)
    path = put(request.getfixturevalue(folder) / source.file, CONTENT[:-1])
    with pytest.raises(ValueError, match="is damaged") as caught:
        data.fetch(NAME)
    cure = "load again to download it" if urls else source.home
    for part in (str(path), source.sha256, sha256(CONTENT[:-1]), "delete it", cure):
        assert part in str(caught.value)
    assert path.exists()  # it is the user's: only they may delete it


def test_gzip_is_judged_by_its_uncompressed_bytes(cache: Path, publish: Publish) -> None:
    source = publish(gzipped=True)
    for level in (1, 9):
        path = put(cache / source.file, gzip.compress(CONTENT, level))
        assert data.fetch(NAME) == (path,)
    for damaged in (gzip.compress(CONTENT)[:-10], CONTENT, b"", gzip.compress(CONTENT + b"!")):
        put(path, damaged)
        with pytest.raises(ValueError, match=r"SHA-256 of the uncompressed bytes is .*, expected .*delete it"):
            data.fetch(NAME)


def test_fetch_of_digits_needs_no_file() -> None:
    assert data.fetch("digits") == ()


def test_fetch_of_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"digits, mnist, binarized_mnist, .*got 'emnist'"):
        data.fetch("emnist")


# --- Download ---


def test_download_stores_the_file_and_shows_progress(
    cache: Path, server: Server, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    source = publish(urls=(server.url("a.bin"),))
    server.files["a.bin"] = CONTENT
    (path,) = data.fetch(NAME)
    assert path == cache / source.file
    assert path.read_bytes() == CONTENT
    assert files_below(cache) == [path]
    shown = capfd.readouterr()
    assert source.file in shown.err
    assert "100.0/100.0 kB" in shown.err
    assert shown.out == ""
    data.fetch(NAME)
    assert server.asked == ["/a.bin"]  # the second time it is in the cache


def test_no_progress_is_silent(server: Server, publish: Publish, capfd: pytest.CaptureFixture[str]) -> None:
    publish(urls=(server.url("a.bin"),))
    server.files["a.bin"] = CONTENT
    data.fetch(NAME, progress=False)
    assert capfd.readouterr() == ("", "")


def test_gzip_download_is_stored_compressed(cache: Path, server: Server, publish: Publish) -> None:
    source = publish(urls=(server.url("a.gz"),), gzipped=True)
    server.files["a.gz"] = gzip.compress(CONTENT, 1)
    data.fetch(NAME)
    assert (cache / source.file).read_bytes() == server.files["a.gz"]


def test_second_mirror_is_tried_after_missing_and_damaged_ones(cache: Path, server: Server, publish: Publish) -> None:
    publish(urls=tuple(server.url(path) for path in ("missing", "damaged", "good")))
    server.files |= {"damaged": b"<html>sign in</html>", "good": CONTENT}
    (path,) = data.fetch(NAME)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["/missing", "/damaged", "/good"]


def test_damaged_download_is_refused_and_not_kept(cache: Path, server: Server, publish: Publish) -> None:
    source = publish(urls=(server.url("a.bin"),))
    server.files["a.bin"] = b"<html>sign in</html>"
    with pytest.raises(ConnectionError, match="could not download") as caught:
        data.fetch(NAME)
    for part in (source.urls[0], source.sha256, sha256(b"<html>sign in</html>")):
        assert part in str(caught.value)
    assert files_below(cache) == []
    server.files["a.bin"] = CONTENT
    assert data.fetch(NAME) == (cache / source.file,)


def test_missing_page_names_the_status(server: Server, publish: Publish) -> None:
    publish(urls=(server.url("a.bin"),))
    with pytest.raises(ConnectionError, match="HTTP status 404"):
        data.fetch(NAME)


def test_offline_says_which_file_from_where_to_where(
    irbm_data: Path, cache: Path, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    with Server() as closed:
        url = closed.url("a.bin")
    source = publish(urls=(url,))
    with pytest.raises(ConnectionError) as caught:
        data.fetch(NAME)
    message = str(caught.value)
    for part in (source.file, url, str(irbm_data / source.file), str(cache / source.file)):
        assert part in message
    assert "\n" not in message
    assert "HTTPConnectionPool" not in message
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert files_below(cache) == []


def test_file_without_address_names_its_home(cache: Path, publish: Publish) -> None:
    source = publish()
    with pytest.raises(FileNotFoundError, match="IRBM_DATA=<folder>") as caught:
        data.load(NAME)
    for part in (source.file, source.home, str(cache / source.file)):
        assert part in str(caught.value)


def test_unwritable_cache_is_named(cache: Path, server: Server, publish: Publish) -> None:
    source = publish(urls=(server.url("a.bin"),))
    server.files["a.bin"] = CONTENT
    put(cache, b"a file where the folder should be")
    with pytest.raises(OSError, match="cannot write") as caught:
        data.fetch(NAME)
    assert str(cache / source.file) in str(caught.value)


def test_table_is_complete() -> None:
    assert set(data.KNOWN) == {"digits", "mnist", "binarized_mnist", "caltech101_silhouettes"}
    sources = [source for name in data.KNOWN for source in data.SOURCES[name]]
    assert len(sources) == len({source.sha256 for source in sources}) == 6
    for source in sources:
        assert len(source.sha256) == 64
        assert all(url.startswith("https://") and url.endswith(Path(source.file).name) for url in source.urls)


# --- The known data sets, from files of the same layout made here ---


@pytest.fixture
def publish_as(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[bytes]], None]:
    """Puts our own contents into the cache in place of a data set's files."""

    def publish_as(name: str, contents: list[bytes]) -> None:
        sources = data.SOURCES[name]
        for source, content in zip(sources, contents, strict=True):
            put(cache / source.file, gzip.compress(content, 1) if source.gzipped else content)
        changed = [
            dataclasses.replace(source, sha256=sha256(content))
            for source, content in zip(sources, contents, strict=True)
        ]
        monkeypatch.setitem(data.SOURCES, name, tuple(changed))

    return publish_as


def mat_bytes(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays, do_compression=True)
    return buffer.getvalue()


def idx_bytes(array: np.ndarray) -> bytes:
    header = np.array([0x800 + array.ndim, *array.shape], ">i4")
    return header.tobytes() + array.astype(np.uint8).tobytes()


def test_digits_split_is_fixed_and_stratified() -> None:
    digits = data.load("digits")
    splits = (digits.train, digits.validation, digits.test)
    assert [split.X.shape for split in splits] == [(1204, 64), (297, 64), (296, 64)]
    assert "1,204 / 297 / 296" in digits.note
    assert digits.image_shape == (8, 8)
    totals = np.bincount(load_digits().target)
    for split, share in zip(splits, (4 / 6, 1 / 6, 1 / 6), strict=True):
        assert split.X.dtype == np.uint8
        assert np.abs(np.bincount(split.y) - share * totals).max() < 1.5
    np.testing.assert_array_equal(digits.train.X, data.load("digits", seed=7).train.X)


def test_digits_splits_cover_every_image_once_with_its_label() -> None:
    digits = data.load("digits")
    pixels, labels = load_digits(return_X_y=True)
    splits = (digits.train, digits.validation, digits.test)
    rows = np.concatenate([np.column_stack([split.X, split.y]) for split in splits])
    expected = np.column_stack([pixels >= 8, labels])
    np.testing.assert_array_equal(np.sort(pack(rows)), np.sort(pack(expected)))


def pack(rows: np.ndarray) -> np.ndarray:
    """One bytes object per row, so that rows can be sorted as wholes."""
    return np.array([row.astype(np.uint8).tobytes() for row in rows], dtype="S65")


def test_mnist_is_drawn_with_probability_intensity(publish_as: Callable[[str, list[bytes]], None]) -> None:
    intensity = np.arange(784) % 256
    labels = np.arange(60_000) % 10
    train = np.broadcast_to(intensity.reshape(28, 28), (60_000, 28, 28))
    contents = [train, labels, train[:10_000], labels[:10_000][::-1]]
    publish_as("mnist", [idx_bytes(array) for array in contents])
    mnist = data.load("mnist", seed=3)
    splits = (mnist.train, mnist.validation, mnist.test)
    assert [split.X.shape for split in splits] == [(50_000, 784), (10_000, 784), (10_000, 784)]
    p = intensity / 255
    for split in splits:
        standard_error = np.sqrt(p * (1 - p) / len(split.X))
        assert np.all(np.abs(split.X.mean(axis=0) - p) <= 5 * standard_error)  # exact where p is 0 or 1
    np.testing.assert_array_equal(np.concatenate([mnist.train.y, mnist.validation.y]), labels)
    np.testing.assert_array_equal(mnist.test.y, labels[:10_000][::-1])
    np.testing.assert_array_equal(mnist.test.X, data.load("mnist", seed=3).test.X)
    assert (mnist.train.X != data.load("mnist", seed=4).train.X).any()
    assert "50,000 of the 60,000" in mnist.note
    assert "seed 3" in mnist.note
    above = data.load("mnist", binarize=100)
    np.testing.assert_array_equal(above.test.X, np.broadcast_to(intensity > 100, (10_000, 784)))
    assert "pixels > 100 of 255" in above.note


def test_binarized_mnist_validates_on_the_last_10000(publish_as: Callable[[str, list[bytes]], None]) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (60_000, 3), np.uint8), rng.integers(0, 10, 60_000)
    targets = np.eye(10, dtype=np.uint8)[y]
    arrays = {"Bdata_train": X, "train_targets": targets, "Bdata_test": 1 - X[:10_000]}
    publish_as("binarized_mnist", [mat_bytes(**arrays, test_targets=targets[:10_000])])
    loaded = data.load("binarized_mnist")
    np.testing.assert_array_equal(loaded.train.X, X[:50_000])
    np.testing.assert_array_equal(loaded.train.y, y[:50_000])
    np.testing.assert_array_equal(loaded.validation.X, X[50_000:])
    np.testing.assert_array_equal(loaded.validation.y, y[50_000:])
    np.testing.assert_array_equal(loaded.test.X, 1 - X[:10_000])
    np.testing.assert_array_equal(loaded.test.y, y[:10_000])
    assert loaded.train.X.flags.c_contiguous  # MATLAB's order would make every minibatch a slow gather
    assert "50,000 of the 60,000" in loaded.note


def test_caltech_is_turned_upright(publish_as: Callable[[str, list[bytes]], None]) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 2, (6, 28, 28), np.uint8)
    columns = np.stack([image.ravel(order="F") for image in images])  # as MATLAB flattens
    labels = np.array([[1], [2], [1], [2], [2], [1]], np.uint8)
    names = np.array(["yin yang", "wrench"], object)
    arrays: dict[str, Any] = {"classnames": names}
    for part, rows in (("train", slice(0, 3)), ("val", slice(3, 4)), ("test", slice(4, 6))):
        arrays |= {f"{part}_data": columns[rows], f"{part}_labels": labels[rows]}
    publish_as("caltech101_silhouettes", [mat_bytes(**arrays)])
    loaded = data.load("caltech101_silhouettes")
    np.testing.assert_array_equal(loaded.train.X.reshape(-1, *loaded.image_shape), images[:3])
    np.testing.assert_array_equal(loaded.validation.X.reshape(-1, *loaded.image_shape), images[3:4])
    np.testing.assert_array_equal(loaded.test.X.reshape(-1, *loaded.image_shape), images[4:])
    np.testing.assert_array_equal(loaded.test.y, [2, 1])
    assert loaded.class_names == ("yin yang", "wrench")


# --- The known data sets, from the real files where they are ---


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], data.Dataset]:
    def load(name: str) -> data.Dataset:
        missing = [s.file for s in data.SOURCES[name] if not (Path(REAL_DATA or "") / s.file).is_file()]
        if not REAL_DATA or missing:
            pytest.skip(f"needs IRBM_DATA=<folder> with the real files of {name}")
        monkeypatch.setenv("IRBM_DATA", REAL_DATA)
        return data.load(name)

    return load


def assert_binary(dataset: data.Dataset, *sizes: int) -> None:
    for split, size in zip((dataset.train, dataset.validation, dataset.test), sizes, strict=True):
        assert split.X.shape == (size, 784)
        assert split.y is not None
        assert split.y.shape == (size,)
        assert set(np.unique(split.X)) == {0, 1}


@pytest.mark.parametrize("name", ["mnist", "binarized_mnist"])
def test_real_mnist(name: str, real: Callable[[str], data.Dataset]) -> None:
    mnist = real(name)
    assert_binary(mnist, 50_000, 10_000, 10_000)
    labels = np.concatenate([mnist.train.y, mnist.validation.y])
    # The class counts of the published training and test sets.
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    np.testing.assert_array_equal(np.bincount(labels), train)
    np.testing.assert_array_equal(np.bincount(mnist.test.y), test)
    # Stochastic binarization keeps the mean intensity, 0.1307 on the training set. The standard error of
    # 47 million independent pixels is below 5e-5; the published mean is rounded at the fourth place.
    mean = (mnist.train.X.sum(dtype=int) + mnist.validation.X.sum(dtype=int)) / (60_000 * 784)
    assert abs(mean - 0.1307) < 3e-4
    # Upright: a one is a vertical stroke, so its mean image is higher than wide.
    one = mnist.train.X[mnist.train.y == 1].mean(axis=0).reshape(28, 28)
    assert (one.max(axis=1) > 0.3).sum() > 1.5 * (one.max(axis=0) > 0.3).sum()


def test_real_caltech(real: Callable[[str], data.Dataset]) -> None:
    caltech = real("caltech101_silhouettes")
    assert_binary(caltech, 4100, 2264, 2307)
    assert caltech.class_names is not None
    assert len(caltech.class_names) == 101
    assert set(np.unique(caltech.train.y)) == set(range(1, 102))
    # Upright faces (the object is 0) have a left-right symmetric mean, broader at the brow than at the chin;
    # lying on their side they would have neither.
    label = 1 + caltech.class_names.index("Faces 2")
    face = 1 - caltech.train.X[caltech.train.y == label].mean(axis=0).reshape(28, 28)
    assert np.abs(face - face[:, ::-1]).mean() < 0.5 * np.abs(face - face[::-1]).mean()
    assert face[:7].sum() > 1.2 * face[-7:].sum()


# --- Users' own files ---


def save(path: Path, **arrays: Any) -> Path:
    """In the format of the path's ending."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


def write_csv(path: Path, X: np.ndarray, y: list[Any] | None = None, header: str = "") -> Path:
    rows = [",".join(map(str, row)) for row in X.tolist()]
    if y is not None:
        rows = [f"{label},{row}" for label, row in zip(y, rows, strict=True)]
    path.write_text("\n".join(([header] if header else []) + rows) + "\n")
    return path


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (25, 6), np.uint8)


ARCHIVES = [".npz", ".mat", ".h5"]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_file_with_its_own_splits(kind: str, tmp_path: Path, X: np.ndarray) -> None:
    y = np.arange(25)
    parts = {"train": slice(0, 10), "validation": slice(10, 15), "test": slice(15, 25)}
    arrays = {f"{n}_{part}": a[rows] for part, rows in parts.items() for n, a in (("X", X), ("y", y))}
    loaded = data.load(save(tmp_path / f"mine{kind}", **arrays))
    for part, rows in parts.items():
        split = getattr(loaded, part)
        assert split.X.dtype == np.uint8
        assert split.X.flags.c_contiguous
        np.testing.assert_array_equal(split.X, X[rows])
        np.testing.assert_array_equal(split.y, y[rows])
    assert loaded.name == f"mine{kind}"
    assert loaded.note == f"mine{kind}, its own split: 10 / 5 / 10"
    unlabelled = save(tmp_path / f"x{kind}", **{n: a for n, a in arrays.items() if n.startswith("X")})
    assert data.load(str(unlabelled)).validation.y is None


@pytest.mark.parametrize("kind", [*ARCHIVES, ".npy", ".csv", ".NPY"])
def test_file_with_one_array_is_split_by_seed(kind: str, tmp_path: Path, X: np.ndarray) -> None:
    X = np.repeat(X, 4, axis=0)
    path = tmp_path / f"mine{kind}"
    if kind.lower() == ".npy":
        with path.open("wb") as file:
            np.save(file, X)
    elif kind == ".csv":
        write_csv(path, X)
    else:
        save(path, X=X)
    first, again, other = data.load(path, seed=1), data.load(path, seed=1), data.load(path, seed=2)
    splits = (first.train, first.validation, first.test)
    assert [len(split.X) for split in splits] == [80, 10, 10]
    assert first.note == f"mine{kind}, split 80/10/10 at random (seed 1): 80 / 10 / 10"
    together = np.concatenate([split.X for split in splits])
    assert sorted(map(tuple, together)) == sorted(map(tuple, X))
    np.testing.assert_array_equal(first.train.X, again.train.X)
    assert (first.train.X != other.train.X).any()


@pytest.mark.parametrize("kind", [*ARCHIVES, ".csv"])
def test_labels_stay_with_their_rows(kind: str, tmp_path: Path) -> None:
    y = np.arange(64)
    X = (y[:, None] >> np.arange(6)) & 1  # row k spells k
    path = tmp_path / f"mine{kind}"
    if kind == ".csv":
        write_csv(path, X, list(y), header="label,a,b,c,d,e,f")
    else:
        save(path, X=X, y=y)
    loaded = data.load(path)
    for split in (loaded.train, loaded.validation, loaded.test):
        np.testing.assert_array_equal(split.X @ (1 << np.arange(6)), split.y)


@pytest.mark.parametrize(("count", "sizes"), [(3, (1, 1, 1)), (9, (7, 1, 1)), (19, (17, 1, 1)), (20, (16, 2, 2))])
def test_small_files_leave_no_split_empty(count: int, sizes: tuple[int, ...], tmp_path: Path) -> None:
    loaded = data.load(save(tmp_path / "a.npz", X=np.eye(count)))
    assert (len(loaded.train.X), len(loaded.validation.X), len(loaded.test.X)) == sizes


def test_binarize_maps_above_threshold_to_one(tmp_path: Path) -> None:
    grey = np.array([[0, 127, 128], [255, 129, 1], [128, 128.5, 0]])
    path = save(tmp_path / "a.npz", X_train=grey, X_validation=grey, X_test=grey)
    loaded = data.load(path, binarize=128)
    np.testing.assert_array_equal(loaded.train.X, [[0, 0, 0], [1, 1, 0], [0, 1, 0]])
    assert "X > 128" in loaded.note


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32, np.float16])
def test_numeric_types_are_accepted(dtype: type, tmp_path: Path, X: np.ndarray) -> None:
    path = save(tmp_path / "a.npz", X_train=X.astype(dtype), X_validation=X, X_test=X)
    loaded = data.load(path)
    assert loaded.train.X.dtype == np.uint8
    np.testing.assert_array_equal(loaded.train.X, X)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("y,a,b\n3,0,1\n3,0,1\n3,0,1\n", {3}),
        ("a,b,Label\n0,1,cat\n0,1,cat\n\n0,1,cat\n", {"cat"}),
        ('\ufeff"label","a","b"\n"x, y",0,1\n"x, y",0,1\n"x, y",0,1', {"x, y"}),
        ("a,y,b\r\n0,2,1\r\n0,2,1\r\n0,2,1\r\n", {2}),
        ("0,1,label\n0,1,5\n0,1,5\n0,1,5\n", {5}),  # columns named by their numbers
        ("a,b\n0,1\n0,1\n0,1\n", None),
        ("0,1\n0,1.0\n0,1e0\n", None),
    ],
)
def test_csv_dialects(text: str, labels: set[Any] | None, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    loaded = data.load(path)
    for split in (loaded.train, loaded.validation, loaded.test):
        np.testing.assert_array_equal(split.X, [[0, 1]])
        assert (split.y if labels is None else set(split.y)) == labels


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("label,a,b\n", "empty"),
        ("y\n1\n2\n3\n", "must not be empty"),
        ("0,1\n0\n0,1\n", "number of columns changed"),
        ("y,a\n1,0\n1,0,1\n1,0\n", "row 2 has 3 fields, the header 2"),
        ("y,label,a\n1,1,0\n", "2 columns named y or label"),
        ("0,1\n0,x\n0,1\n", "could not convert string 'x'"),
        ("0,x\n0,1\n0,1\n", "could not convert string 'x'"),  # one stray letter makes no header
        ("0,1\n,1\n0,1\n", "could not convert string ''"),
        ("0,1\nnan,1\n0,1\n", r"finite numbers, got nan in row 1, column 0"),
        ("0;1\n0;1\n0;1\n", "could not convert string '0;1'"),
        ("0,1\n0,2\n0,1\n", r"only 0 and 1, got 2 in row 1, column 1; pass binarize"),
    ],
)
def test_bad_csv_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        data.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"X_train": [[0.0, 0.5], [1, 0]]}, "X_train .* got 0.5 in row 0, column 1; pass binarize=t"),
        ({"X_test": [[0, -1]]}, "X_test .* only 0 and 1, got -1"),
        ({"X_test": [[0, np.nan]]}, "X_test .* finite numbers, got nan"),
        ({"X_test": [[np.inf, 0]]}, "X_test .* finite numbers, got inf"),
        ({"X_train": np.zeros((0, 2))}, r"X_train .* not be empty, got shape \(0, 2\)"),
        ({"X_train": np.zeros((2, 0))}, r"X_train .* not be empty, got shape \(2, 0\)"),
        ({"X_train": [0, 1]}, r"X_train .* shape \(n, D\), got \(2,\); reshape"),
        ({"X_train": np.zeros((2, 2, 2))}, r"X_train .* got \(2, 2, 2\); reshape"),
        ({"X_train": np.zeros((2, 2), complex)}, "plain numbers, got dtype complex128"),
        ({"X_train": np.full((2, 2), "1")}, "plain numbers, got dtype <U1"),
        ({"X_test": [[0, 1, 1]]}, "X_test .* must have 2 columns, as X_train has, got 3"),
        ({"y_train": [1]}, "y_train .* must have 2 labels, one per row of X_train, got 1"),
        ({"y_train": np.eye(2)}, r"y_train .* shape \(n,\), one label per row, got \(2, 2\)"),
        ({"y_train": [0.0, np.nan]}, "y_train .* finite labels, got nan"),
        ({"y_train": np.zeros(2, complex)}, "y_train .* numbers or strings, got dtype complex128"),
        ({"X": [[0, 1]]}, "must hold the arrays .* found X, X_test"),
        ({"y": [0]}, "must hold the arrays .* found X_test"),
    ],
)
def test_bad_arrays_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"X_train": [[0, 1], [1, 0]], "X_validation": [[0, 1]], "X_test": [[0, 1]]}
    arrays |= {"y_train": [0, 1], "y_validation": [0], "y_test": [1]}
    path = save(tmp_path / "a.npz", **arrays)
    assert data.load(path).train.X.shape == (2, 2)  # only the change can be to blame
    with pytest.raises(ValueError, match=reason) as caught:
        data.load(save(path, **(arrays | changes)))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("missing", ["X_validation", "y_test"])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_incomplete_layouts_are_refused(kind: str, missing: str, tmp_path: Path) -> None:
    arrays = {f"X_{part}": np.eye(2) for part in ("train", "validation", "test")}
    arrays |= {f"y_{part}": np.arange(2) for part in ("train", "validation", "test")}
    del arrays[missing]
    with pytest.raises(ValueError, match=r"must hold the arrays X; or X, y; or .*; found X_"):
        data.load(save(tmp_path / f"a{kind}", **arrays))
    with pytest.raises(ValueError, match="found none of them"):
        data.load(save(tmp_path / f"b{kind}", images=np.eye(3)))


def test_two_rows_cannot_be_split_in_three(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 3 rows to be split in three, got 2"):
        data.load(save(tmp_path / "a.npz", X=np.eye(2)))


# --- Hostile and foreign files ---


class Bomb:
    """Unpickling it would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("kind", [".npy", ".npz"])
def test_pickles_are_refused_unopened(kind: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / f"a{kind}"
    bombs = np.array([[Bomb(trace)]], object)
    for content in (pickle.dumps(Bomb(trace)), object_file(kind, bombs)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot be read as {kind} .*no pickles") as caught:
            data.load(path)
        assert "unsafely" not in str(caught.value)  # NumPy's advice is not ours
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()  # the bomb is real


def object_file(kind: str, array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    if kind == ".npy":
        np.save(buffer, array, allow_pickle=True)
    else:
        np.savez(buffer, X=array)
    return buffer.getvalue()


def test_matlab_cells_and_hdf5_strings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"X in .* plain numbers, got dtype object"):
        data.load(save(tmp_path / "a.mat", X=np.array([[np.eye(2), "x"]], object)))
    with pytest.raises(ValueError, match=r"X in .* plain numbers, got dtype object"):
        data.load(save(tmp_path / "a.h5", X=[["0", "1"]]))


@pytest.mark.parametrize("kind", [*ARCHIVES, ".npy"])
@pytest.mark.parametrize("damage", ["half", "without end", "empty", "text", "noise"])
def test_damaged_files_are_refused(kind: str, damage: str, tmp_path: Path, X: np.ndarray) -> None:
    path = tmp_path / f"a{kind}"
    if kind == ".npy":
        np.save(path, X)
    else:
        save(path, X=X)
    content = path.read_bytes()
    noise = np.random.default_rng(0).bytes(1000)
    damaged = {"half": content[: len(content) // 2], "without end": content[:-20], "empty": b""}
    path.write_bytes((damaged | {"text": b"0 1 0 1\n" * 50, "noise": noise})[damage])
    with pytest.raises(ValueError, match=f"cannot be read as {kind}") as caught:
        data.load(path)
    assert str(path) in str(caught.value)


def test_misnamed_numpy_files_say_so(tmp_path: Path, X: np.ndarray) -> None:
    save(tmp_path / "a.npz", X=X).rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"several arrays: rename it to \.npz"):
        data.load(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", X)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"one array: rename it to \.npy"):
        data.load(tmp_path / "b.npz")


def test_matlab_7_3_is_refused_with_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    header = b"MATLAB 7.3 MAT-file".ljust(124) + (0x0200).to_bytes(2, "little") + b"IM"
    path.write_bytes(header.ljust(512, b"\0"))
    with pytest.raises(ValueError, match=r"7\.3: save it with save\(\.\.\., '-v7'\)"):
        data.load(path)


def test_missing_h5py_names_the_extra(tmp_path: Path, X: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.h5", X=X)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"irbm\[h5py\]"):
        data.load(path)


# --- Arguments ---


@pytest.mark.parametrize("name", ["emnist", "Digits", "data.txt", "", "folder/"])
def test_unknown_name_lists_the_known_and_the_endings(name: str) -> None:
    with pytest.raises(ValueError, match=r"digits, mnist, .* path that ends in \.npz, .*\.h5; got") as caught:
        data.load(name)
    assert repr(name) in str(caught.value)


def test_missing_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file 'a\.npz' .*check the path") as caught:
        data.load("a.npz")
    assert str(tmp_path) in str(caught.value)
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no file 'a\.npz'"):
        data.load("a.npz")


@pytest.mark.parametrize("seed", [-1, 0.5, None, "1"])
def test_bad_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be an integer >= 0, got"):
        data.load("digits", seed=seed)


@pytest.mark.parametrize("binarize", [np.nan, np.inf, "0.5"])
def test_bad_threshold_is_refused(binarize: Any, tmp_path: Path, X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="binarize must be None or a finite number, got"):
        data.load(save(tmp_path / "a.npz", X=X), binarize=binarize)


def test_known_data_sets_take_no_threshold() -> None:
    with pytest.raises(ValueError, match=r"binarize is for mnist and your own files, got 0\.5; digits is binary"):
        data.load("digits", binarize=0.5)


@pytest.mark.parametrize("binarize", [None, 0.5])
def test_columns_that_are_counted_are_a_header(tmp_path, binarize):
    """As a data frame without names writes them."""
    X = (np.random.default_rng(0).random((30, 4)) < 0.5).astype(int)
    rows = [range(4), *X.tolist()]
    (tmp_path / "own.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    found = data.load(str(tmp_path / "own.csv"), binarize=binarize)
    assert sum(len(split.X) for split in (found.train, found.validation, found.test)) == 30
