"""Estimates never run in TF32, whichever of torch's ways set it, and leave every setting as it was."""

import numpy as np
import pytest
import torch

from irbm.evaluation import estimate as record
from irbm.evaluation.diagnostics import order_invariance
from irbm.evaluation.permutations import free_energies
from irbm.evaluation.precision import full_precision
from irbm.models import Machine
from machines import as_machine, random_small

pytestmark = pytest.mark.filterwarnings("ignore:Please use the new API settings")  # torch 2.9, of its older way

B = torch.backends
V = torch.zeros(3, 4)
newer = pytest.mark.skipif(not hasattr(B, "fp32_precision"), reason="torch 2.9 and later")


def legacy(value):
    torch.set_float32_matmul_precision(value)


def allow():
    B.cuda.matmul.allow_tf32 = True


def fp32(setting, value):
    setting.fp32_precision = value


WAYS = {
    "nothing": lambda: None,
    "high": lambda: legacy("high"),
    "medium": lambda: legacy("medium"),
    "allow_tf32": allow,
    "everywhere": lambda: fp32(B, "tf32"),
    "bf16 everywhere": lambda: fp32(B, "bf16"),
    "CUDA": lambda: fp32(B.cudnn, "tf32"),
    "products": lambda: fp32(B.cuda.matmul, "tf32"),
    "products on CPUs": lambda: fp32(B.mkldnn.matmul, "bf16"),
    "products as everywhere": lambda: (fp32(B, "tf32"), fp32(B.cuda.matmul, "tf32")),
    "both": lambda: (legacy("high"), fp32(B.cuda.matmul, "ieee")),
}
OLDER = ("nothing", "high", "medium", "allow_tf32")


def clear():
    """As torch starts."""
    legacy("highest")
    if hasattr(B, "fp32_precision"):
        for setting in (B, B.cudnn, B.cuda.matmul, B.mkldnn.matmul):
            fp32(setting, "none")


@pytest.fixture(autouse=True)
def cleared():
    clear()
    yield
    clear()


def said():
    """What torch says of each setting, the error where it refuses."""

    def of(read):
        try:
            return read()
        except RuntimeError as error:
            return str(error)

    found = [of(torch.get_float32_matmul_precision), of(lambda: B.cuda.matmul.allow_tf32)]
    if hasattr(B, "fp32_precision"):
        found += [s.fp32_precision for s in (B, B.cudnn, B.cudnn.conv, B.cuda.matmul, B.mkldnn, B.mkldnn.matmul)]
    return found


def from_here_on():
    """What torch says now, and as the more general settings change later."""
    found = [said()]
    if hasattr(B, "fp32_precision"):
        for general in (B, B.cudnn):
            for value in ("ieee", "tf32", "none"):
                fp32(general, value)
                found.append(said())
    return found


@pytest.mark.parametrize("way", [w if w in OLDER else pytest.param(w, marks=newer) for w in WAYS])
def test_full_precision_and_back(way):
    WAYS[way]()
    expected = from_here_on()
    clear()
    WAYS[way]()
    with full_precision():
        assert torch.get_float32_matmul_precision() == "highest"
        assert B.cuda.matmul.allow_tf32 is False
        if hasattr(B, "fp32_precision"):
            assert B.cuda.matmul.fp32_precision == B.mkldnn.matmul.fp32_precision == "ieee"
    assert from_here_on() == expected


def test_back_after_an_error():
    legacy("high")
    with pytest.raises(KeyError), full_precision():
        raise KeyError
    assert torch.get_float32_matmul_precision() == "high"


@newer
@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
def test_within_flags_for_cpus():
    with B.mkldnn.flags(enabled=True, fp32_precision="tf32"):
        before = said()
        with full_precision():
            assert B.mkldnn.matmul.fp32_precision == "ieee"
        assert said() == before


def test_order_is_judged_in_full_precision(monkeypatch):
    found, real = [], Machine.log_prob_z

    def watched(self, *rest):
        found.append(torch.get_float32_matmul_precision())
        return real(self, *rest)

    monkeypatch.setattr(Machine, "log_prob_z", watched)
    legacy("medium")
    order_invariance(as_machine(random_small(np.random.default_rng(0), depth="infinite"), torch.float32), V, 1)
    assert found == ["highest"]


@pytest.mark.parametrize("judge", [record.estimate, lambda machine: free_energies(machine, V)])
def test_likelihoods_are_of_full_precision(judge, monkeypatch):
    """Both of their sides: ln Z, and free energies of examples."""
    found, real = [], Machine.free_energy

    def watched(self, *rest):
        found.append(torch.get_float32_matmul_precision())
        return real(self, *rest)

    monkeypatch.setattr(Machine, "free_energy", watched)
    monkeypatch.setattr(record, "_estimate", lambda machine, *_: machine.free_energy(V))
    legacy("medium")
    judge(as_machine(random_small(np.random.default_rng(0), depth="infinite"), torch.float32))
    assert found == ["highest"]
