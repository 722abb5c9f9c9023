"""Saved machines come back bit by bit; anything else is refused with one clear error."""

import json
import re
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import irbm
from irbm.files import read_tensors, write_tensors

CLASSES = [irbm.RBM, irbm.OrderedRBM, irbm.InfiniteRBM, irbm.RBMClassifier, irbm.InfiniteRBMClassifier]


def make(cls, dtype=np.float64, **more):
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    if issubclass(cls, irbm.RBMClassifier | irbm.InfiniteRBMClassifier):
        more = {"label_weights": draw(5, 3), "label_bias": draw(3), "classes": ["a", "b", "cc"]} | more
    return cls.from_parameters(draw(5, 6), draw(5), draw(6), order=[3, 1, 0, 4, 2], **more)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_saved_model_loads_bit_identical(cls, dtype, tmp_path):
    model = make(cls, dtype)
    model.save(tmp_path / "m.safetensors")
    again = cls.load(tmp_path / "m.safetensors")
    for name, value in model.machine_.tensors().items():
        assert value.dtype == again.machine_.tensors()[name].dtype
        assert torch.equal(value, again.machine_.tensors()[name])
    assert again.machine_.depth == model.machine_.depth
    assert again.get_params() == model.get_params()
    if hasattr(model, "classes_"):
        assert (again.classes_ == model.classes_).all()
    X = np.random.default_rng(1).integers(0, 2, (9, 6))
    assert np.array_equal(model.free_energy(X), again.free_energy(X))


def test_settings_that_differ_from_defaults_come_back(tmp_path):
    model = make(irbm.InfiniteRBM, beta=1.7, penalty="softplus").set_params(binarize=0.25, random_state=3)
    model.save(tmp_path / "m")
    assert irbm.InfiniteRBM.load(tmp_path / "m").get_params() == model.get_params()


@pytest.mark.parametrize("names", [np.array(["a", "b", "c"], object), ["a", "b", "c" * 2000]], ids=["objects", "long"])
def test_labels_of_every_kind_come_back(tmp_path, names):
    model = make(irbm.RBMClassifier, classes=names)
    model.save(tmp_path / "m")
    again = irbm.RBMClassifier.load(tmp_path / "m")
    assert again.classes_.tolist() == list(names)
    X = np.random.default_rng(1).integers(0, 2, (9, 6))
    assert (again.predict(X) == model.predict(X)).all()


def test_a_file_cannot_ask_for_more_room_than_its_labels_need(tmp_path):
    make(irbm.RBMClassifier).save(tmp_path / "m")
    rewrite(tmp_path / "m", about={"classes_dtype": "<U100000000"})
    assert irbm.RBMClassifier.load(tmp_path / "m").classes_.nbytes < 100


def test_numbers_of_numpy_can_be_saved(tmp_path):
    model = make(irbm.InfiniteRBM, beta=np.float32(1.1))
    model.save(tmp_path / "m")
    assert irbm.InfiniteRBM.load(tmp_path / "m").beta == np.float32(1.1)


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    for path in (tmp_path / "absent" / "m", tmp_path):
        with pytest.raises(OSError, match=re.escape(f"cannot write {path} (")):
            make(irbm.RBM).save(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    make(irbm.RBM).save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        make(irbm.RBM).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.safetensors"
    make(irbm.InfiniteRBM).save(path)
    return path


def rewrite(path, *, tensors=None, about=None):
    """The good file with some of its contents replaced."""
    old_tensors, old_about = read_tensors(path, "model")
    changed = {n: t for n, t in (old_tensors | (tensors or {})).items() if t is not None}
    write_tensors(path, changed, "model", old_about | (about or {}))


def test_truncated_anywhere(good):
    content = good.read_bytes()
    for cut in [0, 4, 8, 20, len(content) // 2, len(content) - 1]:
        good.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="damaged, truncated or not a safetensors file"):
            irbm.InfiniteRBM.load(good)


def test_not_safetensors_at_all(good):
    for content in [b"hello world, this is text", b"\x80\x04\x95pickle", b"PK\x03\x04" + bytes(200)]:
        good.write_bytes(content)
        with pytest.raises(ValueError, match="not a safetensors file"):
            irbm.InfiniteRBM.load(good)


def test_absurd_sizes(good):
    good.write_bytes(struct.pack("<Q", 2**62) + good.read_bytes()[8:])
    with pytest.raises(ValueError, match="damaged"):
        irbm.InfiniteRBM.load(good)
    header = {"weights": {"dtype": "F64", "shape": [2**31, 2**31], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    good.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ValueError, match="damaged"):
        irbm.InfiniteRBM.load(good)


def test_foreign_safetensors(good):
    save_file({"weights": torch.zeros(2, 2)}, good)
    with pytest.raises(ValueError, match="not written by irbm"):
        irbm.InfiniteRBM.load(good)


def test_another_kind_of_file_and_another_version(good):
    tensors, about = read_tensors(good, "model")
    write_tensors(good, tensors, "checkpoint", about)
    with pytest.raises(ValueError, match="holds a checkpoint, not a model"):
        irbm.InfiniteRBM.load(good)
    good.write_bytes(good.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    with pytest.raises(ValueError, match="format version 9"):
        irbm.InfiniteRBM.load(good)


def test_another_class(good):
    with pytest.raises(ValueError, match="holds a InfiniteRBM: load it with that class, not RBM"):
        irbm.RBM.load(good)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="check the path"):
        irbm.RBM.load(tmp_path / "nowhere")


HOSTILE = {
    "integer weights": ({"weights": torch.ones(5, 6, dtype=torch.int32)}, {}, "float32 or all float64"),
    "half precision": ({"weights": torch.ones(5, 6, dtype=torch.float16)}, {}, "float32 or all float64"),
    "one parameter in float32": ({"hidden_bias": torch.ones(5)}, {}, "float32 or all float64"),
    "too few biases": ({"hidden_bias": torch.ones(4).double()}, {}, "hidden_bias must have shape"),
    "three-dimensional weights": ({"weights": torch.ones(5, 6, 1).double()}, {}, "weights must be"),
    "no weights": ({"weights": torch.ones(0, 6).double()}, {}, "weights must be"),
    "NaN": ({"weights": torch.full((5, 6), torch.nan).double()}, {}, "weights must be finite"),
    "an order twice the same": ({"order": torch.tensor([0, 0, 1, 2, 3])}, {}, "permutation"),
    "an order out of range": ({"order": torch.tensor([1, 2, 3, 4, 5])}, {}, "permutation"),
    "an order of floats": ({"order": torch.arange(5.0)}, {}, "permutation"),
    "a size too large": ({"size": torch.tensor(6)}, {}, "size must be in 1..5"),
    "no size": ({"size": torch.tensor(0)}, {}, "size must be in 1..5"),
    "a size of another type": ({"size": torch.tensor(5.0)}, {}, "one int64"),
    "padding that is not zero": ({"size": torch.tensor(4)}, {}, "must be zero and last"),
    "a tensor missing": ({"hidden_bias": None}, {}, "a machine needs tensors"),
    "a tensor too many": ({"evil": torch.ones(1)}, {}, "a machine needs tensors"),
    "another depth": ({}, {"machine": {"depth": "fixed"}}, "cannot hold"),
    "no depth": ({}, {"machine": {"depth": "abyss"}}, "unknown kind of machine"),
    "a word for beta": ({}, {"machine": {"depth": "infinite", "beta": "x"}}, "beta must be a number"),
    "beta out of range": (
        {},
        {"machine": {"depth": "infinite", "beta": 0.5, "penalty": "constant"}},
        "beta must be > 1",
    ),
    "a setting that does not exist": ({}, {"settings": {"__class__": "x"}}, "settings are not those of"),
    "a machine that is a number": ({}, {"machine": 7}, "unknown kind of machine"),
    "a depth that is a list": ({}, {"machine": {"depth": []}}, "unknown kind of machine"),
    "an order in bfloat16": ({"order": torch.arange(5).bfloat16()}, {}, "permutation"),
    "a word for the setting beta": ({}, {"settings": {"beta": "x"}}, "beta must be > 1"),
    "an unknown device": ({}, {"settings": {"device": "meta"}}, "device must be"),
    "labels in a density model": (
        {"label_weights": torch.ones(5, 2).double(), "label_bias": torch.ones(2).double()},
        {},
        "has no label parameters",
    ),
    "settings out of range": ({}, {"settings": {"beta": -1.0}}, "beta must be > 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_contents(name, good):
    tensors, about, message = HOSTILE[name]
    rewrite(good, tensors=tensors, about=about)
    with pytest.raises(ValueError, match=message) as caught:
        irbm.InfiniteRBM.load(good)
    assert str(good) in str(caught.value)


def test_hostile_class_labels(tmp_path):
    path = tmp_path / "c.safetensors"
    make(irbm.RBMClassifier).save(path)
    for about in [
        {"classes": ["a", "b"]},
        {"classes": ["a", "a", "b"]},
        {"classes_dtype": "|O"},
        {"classes": 7},
        {"classes_dtype": "<i100000000"},
    ]:
        make(irbm.RBMClassifier).save(path)
        rewrite(path, about=about)
        with pytest.raises(ValueError, match="not a sound model file"):
            irbm.RBMClassifier.load(path)
