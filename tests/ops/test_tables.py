"""Products by look-up against plain ones: exactly, where sums are exact in float32, and to its rounding elsewhere."""

import pytest
import torch

from fresh import SEED
from irbm.models import Frozen, Infinite, Machine
from irbm.ops import compiled
from irbm.ops.compiled import tables
from irbm.ops.noise import stream
from irbm.training import Settings, objectives
from irbm.training.chains import Chains

pytestmark = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")

# Rows, bits of a row, columns: words and blocks filled, begun, one too many; more rows than are summed at once.
SHAPES = [(1, 1, 32), (3, 32, 32), (5, 31, 33), (100, 784, 500), (7, 66, 63), (tables.AT_ONCE + 1, 34, 40)]


@pytest.fixture
def always(monkeypatch):
    """Tables whatever the size, if there are enough columns for a block."""
    monkeypatch.setattr(tables, "gain", lambda rows, matrix: matrix.shape[1] >= tables.WIDTH)


def of_bits(*shape, seed=0):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(SEED + seed)) < 0.4).float()


def of_eighths(*shape, seed=1):
    """Sums of a few hundred of them are exact in float32."""
    return torch.randint(-800, 800, shape, generator=torch.Generator().manual_seed(SEED + seed)) / 8


@pytest.mark.parametrize(("B", "N", "R"), SHAPES)
def test_products_are_exact_where_float32_is(B, N, R, always, use_threads):
    x_BN, matrix_NR, bias_R = of_bits(B, N), of_eighths(N, R), of_eighths(R, seed=2)
    for threads in (1, 2, 3):
        use_threads(threads)
        out_BR = tables.Tables(matrix_NR, bias_R).linear(x_BN)
        assert torch.equal(out_BR.double(), x_BN.double() @ matrix_NR.double() + bias_R.double())
        into_BR = torch.empty(B, R)
        assert tables.Tables(matrix_NR, bias_R).linear(x_BN, into_BR) is into_BR
        assert torch.equal(into_BR, out_BR)


@pytest.mark.parametrize(("D", "N", "K"), SHAPES)
def test_outer_products_are_exact_where_float32_is(D, N, K, always, use_threads):
    x_NK, v_ND = of_eighths(N, K), of_bits(N, D)
    for threads in (1, 2, 3):
        use_threads(threads)
        assert torch.equal(tables.outer(x_NK, v_ND).double(), x_NK.double().T @ v_ND.double())


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (63, 66), (130, 64), (500, 784)])
def test_rows_become_columns(shape, use_threads):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    for threads in (1, 2):
        use_threads(threads)
        assert torch.equal(tables.transposed(matrix), matrix.T)


def test_any_numbers_are_rounded_no_worse_than_in_a_product():
    rng = torch.Generator().manual_seed(SEED)
    x_BN, matrix_NR, bias_R = of_bits(100, 784), torch.randn(784, 500, generator=rng), torch.randn(500, generator=rng)
    assert tables.gain(100, matrix_NR)
    exact = x_BN.double() @ matrix_NR.double() + bias_R.double()
    ours = (tables.Tables(matrix_NR, bias_R).linear(x_BN) - exact).abs().max()
    assert 0 < ours < 2 * (torch.addmm(bias_R, x_BN, matrix_NR) - exact).abs().max()


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, float("nan"), float("inf"), 1 + 2.0**-23])
@pytest.mark.parametrize("at", [(0, 0), (39, 34), (20, 33)], ids=str)  # the first, the last, one beyond a word
def test_numbers_besides_0_and_1_are_multiplied(value, at, always):
    x_BN, matrix_NR, bias_R = of_bits(40, 35), of_eighths(35, 40), of_eighths(40, seed=2)
    x_NK = of_eighths(40, 36)
    x_BN[at] = 1.0
    assert tables._words(x_BN, matrix_NR, columns=False) is not None
    assert tables._words(x_BN, x_NK, columns=True) is not None
    x_BN[at] = value
    assert tables._words(x_BN, matrix_NR, columns=False) is None
    assert tables._words(x_BN, x_NK, columns=True) is None
    torch.testing.assert_close(
        tables.Tables(matrix_NR, bias_R).linear(x_BN), torch.addmm(bias_R, x_BN, matrix_NR), equal_nan=True
    )
    torch.testing.assert_close(tables.outer(x_NK, x_BN), x_NK.T @ x_BN, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_states_of_another_kind_are_refused_as_by_a_product(kind, always):
    x_BN, matrix_NR, bias_R = of_bits(40, 64).to(kind), of_eighths(64, 40), of_eighths(40, seed=2)
    with pytest.raises(RuntimeError, match="dtype"):
        tables.Tables(matrix_NR, bias_R).linear(x_BN)
    with pytest.raises(RuntimeError, match="dtype"):
        tables.outer(of_eighths(40, 36), x_BN)


@pytest.mark.parametrize(("bits", "bias"), [(63, 40), (96, 40), (64, 39), (64, 41)])
def test_sizes_that_do_not_fit_are_refused_as_by_a_product(bits, bias, always):
    with pytest.raises(RuntimeError):
        tables.Tables(of_eighths(64, 40), of_eighths(bias)).linear(of_bits(40, bits))
    with pytest.raises(RuntimeError, match="multiplied"):
        tables.outer(of_eighths(41, 36), of_bits(40, 64))


def test_gradients_go_through_states_where_they_are_asked_for(always):
    x_BN = of_bits(40, 64).requires_grad_()
    tables.Tables(of_eighths(64, 40), of_eighths(40)).linear(x_BN).sum().backward()
    torch.testing.assert_close(x_BN.grad, of_eighths(64, 40).sum(1).expand(40, 64))


def test_views_with_gaps_are_read_as_what_they_show(always):
    wide_BN, tall_RN, bias_R = of_bits(9, 80), of_eighths(40, 80), of_eighths(80, seed=2)[::2]
    expected = wide_BN[:, ::2].double() @ tall_RN[:, ::2].T.double() + bias_R.double()
    assert torch.equal(tables.Tables(tall_RN[:, ::2].T, bias_R).linear(wide_BN[:, ::2]).double(), expected)
    x_NK, v_ND = tall_RN.T, wide_BN.T
    assert torch.equal(tables.outer(x_NK, v_ND).double(), x_NK.double().T @ v_ND.double())


def test_small_products_are_left_to_others(monkeypatch):
    monkeypatch.setattr(tables, "_sum", None)
    tables.Tables(of_eighths(64, 100), of_eighths(100)).linear(of_bits(50, 64))
    tables.outer(of_eighths(50, 100), of_bits(50, 64))
    with pytest.raises(TypeError):
        tables.Tables(of_eighths(784, 500), of_eighths(500)).linear(of_bits(100, 784))


def machine_of(K, D, labels):
    """Weights and biases whose sums are exact."""
    order_K = torch.randperm(K, generator=torch.Generator().manual_seed(SEED))
    W_KD, c_K, b_D = of_eighths(K, D) / 64, of_eighths(K, seed=2) / 64, of_eighths(D, seed=3) / 64
    U_KC, d_C = (of_eighths(K, labels, seed=6) / 64, of_eighths(labels, seed=7) / 64) if labels else (None, None)
    return Machine(W_KD, c_K, b_D, order_K, torch.tensor(K), Infinite(), U_KC, d_C)


@pytest.mark.parametrize("labels", [0, 3])
def test_sweeps_by_tables_are_the_machine_s_own(labels, always):
    machine, noise = machine_of(50, 70, labels), stream("cpu")
    v_BD, y_B, found = of_bits(40, 70, seed=4), torch.arange(40) % labels if labels else None, []
    frozen = Frozen.of(machine)
    assert isinstance(frozen.upward, tables.Tables)
    assert isinstance(frozen.downward, tables.Tables)
    for asked in (machine, frozen):
        noise.reseed(3)
        found.append(asked.gibbs(v_BD, y_B, noise, 4))
    for ours, expected in zip(*found, strict=True):
        assert (ours is expected is None) or torch.equal(ours, expected)
    kept_D = torch.arange(70) % 3 == 0
    clamped_BD, _ = frozen.gibbs(v_BD, y_B, noise, 4, clamp_visible=kept_D)
    assert torch.equal(clamped_BD[:, kept_D], v_BD[:, kept_D])
    assert not torch.equal(clamped_BD[:, ~kept_D], v_BD[:, ~kept_D])


@pytest.mark.parametrize("labels", [0, 3])
def test_a_training_step_by_tables_is_the_step_without(labels, always, monkeypatch):
    machine, noise, found = machine_of(50, 70, labels), stream("cpu"), []
    v_BD, y_B = of_bits(40, 70, seed=4), torch.arange(40) % labels if labels else None
    asked = []
    for by_tables in (True, False):
        monkeypatch.setattr(tables, "gain", lambda *of, by=by_tables: asked.append(by) or by)
        chains = Chains(of_bits(45, 70, seed=5), torch.arange(45) % labels if labels else None)
        noise.reseed(3)
        phases = objectives.generative(machine, v_BD, y_B, chains, Settings(gibbs_steps=2), noise)
        found.append((phases, chains))
    assert asked.count(True) == 2 * 2 + 2  # both ways of two sweeps, activations and the gradient
    (ours, its), (expected, their) = found
    assert torch.equal(its.v_ND, their.v_ND)
    assert not torch.equal(its.v_ND, of_bits(45, 70, seed=5))
    assert torch.equal(ours.z_pos_B, expected.z_pos_B)
    assert torch.equal(ours.z_neg_N, expected.z_neg_N)
    for one, other in zip(ours.gradients, expected.gradients, strict=True):
        assert (one is other is None) or torch.allclose(one, other, atol=1e-6)
