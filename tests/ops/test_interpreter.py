"""The kernels' tests where there is no CUDA: again, in Triton's interpreter, in a process of their own.

The interpreter is chosen when Triton is first imported, which other tests may have done already.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from irbm.ops import kernels

HERE = Path(__file__).parent
FILES = [
    "test_fused.py",
    "test_labels.py",
    "test_products.py",
    "test_counting.py",
    "test_annealing.py",
    "test_scoring.py",
    "../training/test_cuda.py",
]


@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
@pytest.mark.skipif(kernels.INTERPRETED or torch.cuda.is_available(), reason="the tests run in this process")
@pytest.mark.parametrize("name", FILES)
def test_kernels_in_the_interpreter(name):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations=5", HERE / name],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


def test_without_triton_everything_loads_and_says_so():
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import irbm\n"
        "from irbm.ops import annealing, counting, fused, kernels, products\n"
        "assert not kernels.available('cuda') and not kernels.available('cpu')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], env=os.environ | {"TRITON_INTERPRET": "0"})
    assert run.returncode == 0


class Trial:
    """A kernel that runs, or that Triton fails to compile, or compiles to something else."""

    def __init__(self, error=None, step=0.5):
        self.error, self.step, self.launched = error, step, 0

    def __getitem__(self, grid):
        return self

    def __call__(self, seed, stream, out, columns):
        self.launched += 1
        if self.error:
            raise self.error
        out.copy_(self.step * torch.arange(columns))


@pytest.fixture
def card(monkeypatch):
    """A GPU of some capability, as far as questions go, and what comes of a first kernel there."""

    def of(capability, trial):
        kernels._compiles_for.cache_clear()
        monkeypatch.setattr(kernels, "triton", object())
        monkeypatch.setattr(kernels, "INTERPRETED", False)
        monkeypatch.setattr(kernels, "_trial_kernel", trial)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        real = torch.zeros
        monkeypatch.setattr(torch, "zeros", lambda *shape, device, **how: real(*shape, **how))
        return kernels.available("cuda")

    yield of
    kernels._compiles_for.cache_clear()


def test_kernels_are_for_cards_that_triton_knows(card):
    assert card((7, 0), Trial())
    assert not card((6, 1), Trial())


def test_where_nothing_compiles_kernels_stay_away_with_one_warning(card):
    trial = Trial(RuntimeError("Failed to find C compiler.\nMore."))
    with pytest.warns(UserWarning, match=r"cannot compile here \(Failed to find C compiler\.\): GPU work"):
        assert not card((9, 0), trial)
    assert not kernels.available("cuda")
    assert trial.launched == 1


@pytest.mark.parametrize("step", [0.0, 2.0, math.nan])
def test_where_kernels_find_something_else_they_stay_away(step, card):
    with pytest.warns(UserWarning, match="what a first kernel finds is wrong"):
        assert not card((7, 5), Trial(step=step))
