"""The fused annealing kernel against its slow twin, on CUDA or, in a process of its own, in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from irbm.ops import annealing, fused
from irbm.ops import reference as ops
from irbm.ops.reference import Heat

HAS_TRITON = importlib.util.find_spec("triton") is not None
DEVICE = next((d for d in ("cpu", "cuda") if fused.available(d) and (d == "cpu" or torch.cuda.is_available())), None)
TAIL = ops.log_tail(1.01)
KINDS = ("fixed", "ordered", "infinite")
EDGE = 1e-5  # a decision may differ where its uniform is this close to its threshold


def drawn(kind, K, B, device, per_row, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    a_BK = 6 * torch.randn(B, K, generator=generator)
    beta_K = 1.4 * uniform(K)
    shape = (B,) if per_row else ()
    heats = [Heat(uniform(*shape).double(), uniform(*shape).double()) for _ in range(2)]
    moved = [t.to(device) for t in (a_BK, beta_K, uniform(B), uniform(B, K))]
    return moved, [Heat(*(t.to(device) for t in heat)) for heat in heats]


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("K", [1, 2, 40, 128, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_samples_are_those_of_the_twin(kind, K, per_row):
    if DEVICE is None:
        pytest.skip("no CUDA device: test_this_file_in_the_interpreter runs it" if HAS_TRITON else "no Triton here")
    (a_BK, beta_K, u_B, u_BK), (here, there) = drawn(kind, K, 8, DEVICE, per_row)
    found = annealing.annealed_sample(a_BK, beta_K, kind, TAIL, here, there, u_B, u_BK)
    wanted = ops.annealed_sample(a_BK, beta_K, kind, TAIL, here, there, u_B, u_BK)
    for log_sum, expected in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(log_sum, expected, rtol=0, atol=2e-6 * K + 2e-6)
    tau = there.tau[:, None] if per_row else there.tau
    survival_BZ = ops.survival(ops.annealed_table(a_BK, beta_K, kind, TAIL, there))
    at_an_edge = ((survival_BZ - u_B[:, None]).abs() < EDGE).any(1, keepdim=True)
    at_an_edge = at_an_edge | ((torch.sigmoid(tau * a_BK) - u_BK).abs() < EDGE)
    assert not ((found[2] != wanted[2]) & ~at_an_edge).any()
    assert at_an_edge.all(1).sum() <= 2  # of eight rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_draws_what_its_uniforms_say(kind):
    if DEVICE is None:
        pytest.skip("no CUDA device: test_this_file_in_the_interpreter runs it" if HAS_TRITON else "no Triton here")
    (a_BK, beta_K, _, _), (here, there) = drawn(kind, 40, 8, DEVICE, per_row=False)
    key = torch.tensor(7, dtype=torch.int64, device=DEVICE)
    u_B, u_BK = fused.hidden_uniforms(8, 40, key, 3, DEVICE)
    keyed = annealing.annealed_sample_keyed(a_BK, beta_K, kind, TAIL, here, there, key, 3)
    given = annealing.annealed_sample(a_BK, beta_K, kind, TAIL, here, there, u_B, u_BK)
    assert all(torch.equal(a, b) for a, b in zip(keyed, given, strict=True))


def test_this_file_in_the_interpreter():
    if not HAS_TRITON or DEVICE is not None:
        pytest.skip("runs here already, or there is no Triton")
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(Path(__file__)), "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert " passed" in done.stdout
