"""ln of the sum over z in float64, on the GPU and compiled for the CPU, against the slow twin and by hand."""

import math

import numpy as np
import pytest
import torch

from fresh import SEED
from interpreter import device_for_kernels
from irbm.models import Fixed, Infinite, Ordered
from irbm.models.machine import Machine
from irbm.ops import compiled, dispatch, scoring
from irbm.ops import reference as ops
from irbm.ops.compiled import elementary

BETA = 1.01
TAIL = ops.log_tail(BETA)
KINDS = ("fixed", "ordered", "infinite")
SIZES = ((1, 1), (2, 1), (64, 40), (300, 211))
B = 6


@pytest.fixture(params=["fused", "compiled"])
def fast(request):
    """The room of a fast twin, with the device it runs on."""
    if request.param == "fused":
        return scoring, device_for_kernels()
    if not compiled.available():
        pytest.skip("numba is not installed")
    return compiled, "cpu"


def made():
    return torch.Generator().manual_seed(SEED)


def case_of(kind, K, l, scale, device, generator, dtype=torch.float64):
    """Activations with drifts up and down, so that z is shallow, deep and in between, and the rest of a machine."""
    a_BK = scale * torch.randn(B, K, generator=generator) + torch.linspace(-1.5, 1.5, B)[:, None]
    beta_K = BETA * math.log(2.0) + 0.1 * torch.rand(K, generator=generator)
    a_BK[:, l:], beta_K[l:] = 0, BETA * math.log(2.0)
    order_K = torch.cat([torch.randperm(l, generator=generator), torch.arange(l, K)])
    tail = TAIL if kind == "infinite" else -math.inf
    floats = (t.to(device=device, dtype=dtype) for t in (a_BK, beta_K))
    (a_BK, beta_K), (order_K, size) = floats, (t.to(device) for t in (order_K, torch.tensor(l)))
    return a_BK, order_K, beta_K, size, kind, tail


def by_hand(a_K, order_K, beta_K, size, kind, tail):
    """One row with Python's own sums, which lose nothing."""
    gains = [max(a, 0.0) + math.log1p(math.exp(-abs(a))) - b for a, b in zip(a_K, beta_K, strict=True)]
    t = [math.fsum(gains[i] for i in order_K[: k + 1]) for k in range(len(gains))]
    if kind == "fixed":
        return t[size - 1]
    possible = t[:size] if kind == "ordered" else [*t, t[-1] + tail]
    return max(possible) + math.log(math.fsum(math.exp(x - max(possible)) for x in possible))


@pytest.mark.parametrize("scale", [0.3, 5.0, 300.0])
@pytest.mark.parametrize(("K", "l"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_right_to_the_last_digits(kind, K, l, scale, fast):
    twin, device = fast
    case = case_of(kind, K, l, scale, device, made())
    found_B = twin.log_sum_z(*case)
    assert found_B.dtype == torch.float64
    a_BK, order_K, beta_K, size, *how = case
    wanted = [by_hand(a_K, order_K.tolist(), beta_K.tolist(), int(size), *how) for a_K in a_BK.tolist()]
    # Each of K sums so far is rounded, as are its gains, and none is larger than the sum of all sizes.
    within = {"rtol": 0, "atol": (K + 4) * 2.0**-53 * float((a_BK.abs() + 2).sum(1).max())}
    torch.testing.assert_close(found_B.cpu(), torch.tensor(wanted, dtype=torch.float64), **within)
    torch.testing.assert_close(found_B, ops.log_sum_z(*case), **within)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_in_float32_are_taken_as_they_are(kind, fast):
    twin, device = fast
    a_BK, order_K, beta_K, *how = case_of(kind, 300, 211, 5.0, device, made(), torch.float32)
    wanted_B = ops.log_sum_z(a_BK.double(), order_K, beta_K.double(), *how)
    torch.testing.assert_close(twin.log_sum_z(a_BK, order_K, beta_K, *how), wanted_B, rtol=1e-14, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_is_read_as_what_it_shows(kind, fast):
    twin, device = fast
    a_BK, *rest = case_of(kind, 64, 40, 2.0, device, made())
    view = torch.stack([a_BK, a_BK + 1], dim=-1)[..., 0]
    assert not view.is_contiguous()
    assert torch.equal(twin.log_sum_z(view, *rest), twin.log_sum_z(a_BK, *rest))


def test_no_rows_have_no_sums(fast):
    twin, device = fast
    a_BK, *rest = case_of("infinite", 64, 40, 2.0, device, made())
    assert twin.log_sum_z(a_BK[:0], *rest).shape == (0,)


def test_no_number_is_no_sum(fast):
    twin, device = fast
    a_BK, *rest = case_of("infinite", 64, 40, 2.0, device, made())
    a_BK[2, 7] = math.nan
    assert twin.log_sum_z(a_BK, *rest).isnan().tolist() == [row == 2 for row in range(B)]


@pytest.mark.parametrize("kind", KINDS)
def test_activations_without_bound_have_sums_without_bound(kind, fast):
    twin, device = fast
    a_BK, *rest = case_of(kind, 64, 40, 2.0, device, made())
    a_BK[2, 7] = math.inf
    assert twin.log_sum_z(a_BK, *rest).isinf().tolist() == [row == 2 for row in range(B)]


@pytest.mark.skipif(not compiled.available(), reason="numba is not installed")
def test_threads_share_rows_and_change_none(use_threads):
    case = case_of("infinite", 300, 211, 2.0, "cpu", made())
    use_threads(1)
    alone = compiled.log_sum_z(*case)
    use_threads(2)
    assert torch.equal(compiled.log_sum_z(*case), alone)


@pytest.mark.skipif(not compiled.available(), reason="numba is not installed")
def test_exp_and_log1p_keep_the_digits_of_float64():
    x = -np.random.default_rng(SEED).exponential(30, 20_000)
    x[:3] = 0, -1e-17, elementary.LOWEST_64
    small = np.exp(x)
    np.testing.assert_allclose([elementary.exp64(one) for one in x], small, rtol=5e-16)
    np.testing.assert_allclose([elementary.log1p64(one) for one in small], np.log1p(small), rtol=7e-16)
    assert elementary.exp64(-1e6) < 1e-300
    assert math.isnan(elementary.exp64(math.nan))


@pytest.mark.parametrize("depth", [Fixed(), Ordered(), Infinite()])
@pytest.mark.parametrize("labels", [0, 3])
def test_free_energies_come_from_a_fast_twin_but_for_autograd(depth, labels, monkeypatch):
    if not compiled.available():
        pytest.skip("numba is not installed")
    make, K, D = made(), 20, 9
    W_KD, c_K, b_D, U_KC, d_C = (
        torch.randn(shape, generator=make, dtype=torch.float64) for shape in ((K, D), (K,), (D,), (K, 3), (3,))
    )
    own = {"label_weights": U_KC, "label_bias": d_C} if labels else {}
    machine = Machine(W_KD, c_K, b_D, torch.randperm(K, generator=make), torch.tensor(K), depth, **own)
    v_BD = (torch.rand(B, D, generator=make) < 0.5).double()
    calls, real = [], compiled.log_sum_z
    monkeypatch.setattr(dispatch.compiled, "log_sum_z", lambda *given: calls.append(1) or real(*given))
    fast_B = machine.free_energy(v_BD)
    assert len(calls) == 1
    leaf = W_KD.clone().requires_grad_()
    slow_B = Machine(leaf, c_K, b_D, machine.order, machine.size, depth, **own).free_energy(v_BD)
    assert len(calls) == 1
    assert slow_B.requires_grad
    torch.testing.assert_close(fast_B, slow_B.detach(), rtol=1e-13, atol=1e-13)
