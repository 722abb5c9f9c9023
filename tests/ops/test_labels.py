"""All labels at once, on the GPU and compiled for the CPU, against the slow twins, draw by draw."""

import math

import pytest
import torch

from fresh import SEED
from interpreter import device_for_kernels
from irbm.ops import compiled, labels
from irbm.ops import reference as ops

BETA = 1.01
TAIL = ops.log_tail(BETA)
KINDS = ("fixed", "ordered", "infinite")
SIZES = ((2, 1), (64, 40), (300, 211))
B, C = 5, 3  # the interpreter takes some ten milliseconds for each of B C rows
EDGE = 1e-5  # a decision may differ where its uniform is this close to its threshold


@pytest.fixture(params=["fused", "compiled"])
def fast(request):
    """The room of the fast twins, with the device they run on."""
    if request.param == "fused":
        return labels, device_for_kernels()
    if not compiled.available():
        pytest.skip("numba is not installed")
    return compiled, "cpu"


def case_of(kind, K, l, device, scale):
    """Activations and the rest of a machine with drifts up and down, so that z is shallow, deep and in between."""
    make = torch.Generator().manual_seed(SEED + 1000 * K + l)
    a_BK = scale * torch.randn(B, K, generator=make) + torch.linspace(-0.7, 0.7, B)[:, None]
    U_KC, d_C = torch.randn(K, C, generator=make), torch.randn(C, generator=make)
    beta_K = torch.full((K,), BETA * math.log(2.0)) + 0.1 * torch.rand(K, generator=make)
    a_BK[:, l:], U_KC[l:], beta_K[l:] = 0, 0, BETA * math.log(2.0)
    order_K = torch.cat([torch.randperm(l, generator=make), torch.arange(l, K)])
    a_BK, *tensors = [t.to(device) for t in (a_BK, U_KC, d_C, order_K, beta_K, torch.tensor(l))]
    return a_BK, ops.Labelled(*tensors, kind, TAIL if kind == "infinite" else -math.inf)


def in_float64(a_BK, machine):
    doubled = (t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in machine)
    return a_BK.double(), ops.Labelled(*doubled)


def scores(a_BK, machine):
    """Of each label by itself."""
    return ops.log_sum_z(a_BK[:, None] + machine.weights_KC.T, *machine[2:]) + machine.bias_C


@pytest.mark.parametrize("scale", [0.3, 5.0])
@pytest.mark.parametrize(("K", "l"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_their_twins(kind, K, l, scale, fast):
    twins, device = fast
    case = case_of(kind, K, l, device, scale)
    score_BC = twins.label_scores(*case)
    assert score_BC.dtype == torch.float64
    # Rounded to float32 are the sum a + u and what softplus adds to it: up to 1e-6 for each unit.
    torch.testing.assert_close(score_BC, scores(*in_float64(*case)), rtol=1e-6, atol=2e-6 * math.sqrt(K))


@pytest.mark.parametrize("scale", [0.3, 5.0])
@pytest.mark.parametrize(("K", "l"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_contrast_is_its_twin(kind, K, l, scale, fast):
    twins, device = fast
    a_BK, machine = case_of(kind, K, l, device, scale)
    y_B = torch.arange(B, device=device) % C
    u_pos_B, u_neg_B = (torch.rand(B, generator=torch.Generator().manual_seed(SEED + s)).to(device) for s in (1, 2))
    got = twins.label_contrast(a_BK, y_B, machine, u_pos_B, u_neg_B)
    exact = in_float64(a_BK, machine)
    expected = ops.label_contrast(exact[0], y_B, exact[1], u_pos_B.double(), u_neg_B.double())
    for name in ("error_BC", "reach_BK", "on_BK", "on_KC"):
        found, true = getattr(got, name), getattr(expected, name)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, true.float(), rtol=1e-5, atol=5e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert K < 10 or expected.on_BK.abs().max() > 0.01  # one unit may take no part
    p_BC = torch.softmax(scores(*exact), dim=-1)
    survival_BCZ = ops.survival(table(*exact))
    own_BZ = survival_BCZ[torch.arange(B), y_B]
    mixed_BZ = torch.einsum("bc,bcz->bz", p_BC, survival_BCZ)
    for name, u_B, thresholds_BZ in (("z_pos_B", u_pos_B, own_BZ), ("z_neg_B", u_neg_B, mixed_BZ)):
        clear_B = ((u_B[:, None] - thresholds_BZ[:, 1:]).abs() > EDGE).all(-1)
        assert clear_B.any()
        assert torch.equal(getattr(got, name)[clear_B], getattr(expected, name)[clear_B])
    assert torch.equal(got.mode_B, expected.mode_B)


def table(a_BK, machine):
    """The z-table of every label, written out on its own: (B, C, Z)."""
    U_KC, d_C, order_K, beta_K, size, kind, tail = machine
    gain_BCK = ops.softplus(a_BK[:, None] + U_KC.T) - beta_K
    return ops.depth_table(gain_BCK[..., order_K], size, kind, tail) + d_C[:, None]


def test_the_cases_above_reach_every_depth(fast):
    twins, device = fast
    a_BK, machine = case_of("infinite", 300, 211, device, 0.3)
    y_B, u_B = torch.zeros(B, dtype=torch.int64, device=device), torch.full((B,), 0.5, device=device)
    z_B = twins.label_contrast(a_BK, y_B, machine, u_B, u_B).z_pos_B
    assert z_B.min() < 100
    assert z_B.max() > 211


def test_a_sum_over_examples_is_the_same_each_time(fast):
    twins, device = fast
    a_BK, machine = case_of("infinite", 64, 40, device, 1.0)
    y_B, u_B = torch.zeros(B, dtype=torch.int64, device=device), torch.full((B,), 0.5, device=device)
    first, second = (twins.label_contrast(a_BK, y_B, machine, u_B, u_B) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
