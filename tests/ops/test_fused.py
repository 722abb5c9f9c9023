"""The fused kernels against their slow twins, draw by draw, on fresh input."""

import math

import pytest
import torch
from scipy import stats

from fresh import SEED
from irbm.models import Gradients, Infinite, Machine
from irbm.ops import dispatch, fused, kernels
from irbm.ops import reference as ops
from irbm.ops.kernels import as_uniform, constexpr, jit, tl
from irbm.training import optim
from irbm.training.settings import Settings

BETA = 1.01
TAIL = ops.log_tail(BETA)
KINDS = ("fixed", "ordered", "infinite")
SIZES = ((1, 1), (2, 1), (64, 40), (128, 128), (300, 211))
ROWS = 8  # the interpreter takes some ten milliseconds for each
EDGE = 1e-5  # a decision may differ where its uniform is this close to its threshold


@jit
def _uniform_kernel(bits_N, u_N, seed, stream, N: constexpr):
    at_N = tl.arange(0, N)
    tl.store(u_N + at_N, as_uniform(tl.load(bits_N + at_N).to(tl.uint32)))


def test_no_uniform_is_zero_or_one(device):
    """By a zero an event of any probability would happen."""
    bits_N = torch.tensor([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], dtype=torch.int64, device=device)
    u_N = torch.empty(len(bits_N), device=device)
    _uniform_kernel[(1,)](bits_N, u_N, 0, 0, N=len(bits_N))
    assert u_N.min() > 0
    assert u_N.max() < 1
    assert u_N.sort().values[1] < 2.0**-30


# -- slow twins ---------------------------------------------------------------------------------------------------


def z_table(a_BK, order_K, beta_K, size, kind, tail):
    gain_BK = ops.softplus(a_BK) - beta_K
    t_BZ = ops.z_table(gain_BK[:, order_K], tail if kind == "infinite" else -math.inf)
    z_Z = torch.arange(1, t_BZ.shape[1] + 1, device=t_BZ.device)
    possible_Z = {"fixed": z_Z == size, "ordered": z_Z <= size, "infinite": z_Z > 0}[kind]
    return t_BZ.masked_fill(~possible_Z, -math.inf)


def rank_of(order_K):
    return torch.empty_like(order_K).scatter_(0, order_K, torch.arange(len(order_K), device=order_K.device))


def hidden_sample(a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK):
    survival_BZ = ops.survival(z_table(a_BK, order_K, beta_K, size, kind, tail))
    z_B = ops.sample_z(survival_BZ, u_B)
    return z_B, ops.sample_hidden(a_BK, rank_of(order_K), z_B, u_BK)


def hidden_reach(a_BK, order_K, beta_K, size, kind, tail, u_B):
    t_BZ = z_table(a_BK, order_K, beta_K, size, kind, tail)
    survival_BZ = ops.survival(t_BZ)
    trained_K = torch.arange(a_BK.shape[1], device=a_BK.device) < size
    reach_BK = survival_BZ[:, :-1][:, rank_of(order_K)] * trained_K
    mode_B = t_BZ[:, :-1].masked_fill(~trained_K, -math.inf).argmax(-1) + 1
    return reach_BK, torch.sigmoid(a_BK), ops.sample_z(survival_BZ, u_B), mode_B


def visible_sample(field_BD, u_BD):
    return ops.sample_bernoulli(field_BD, u_BD)


def update_weights_(
    parameter_KD, gradient_KD, squares_KD, age_K, lr, l1, l2, max_norm, *, warm_up, epsilon
):  # fmt: skip
    gradient_KD = gradient_KD + l2 * parameter_KD
    squares_KD.addcmul_(gradient_KD, gradient_KD)
    move_KD = lr * gradient_KD
    young_K1 = (age_K < warm_up)[:, None]
    parameter_KD.sub_(torch.where(young_K1, move_KD, move_KD / (squares_KD.sqrt() + epsilon)))
    parameter_KD.copy_(torch.sign(parameter_KD) * (parameter_KD.abs() - lr * l1).clamp(min=0))
    if max_norm is not None:
        parameter_KD.mul_(max_norm / parameter_KD.norm(dim=1, keepdim=True).clamp(min=max_norm))


# -- input and comparison -----------------------------------------------------------------------------------------


def hidden_input(kind, K, l, device, *, scale=1.0, B=ROWS, seed=SEED):
    """(a, order, beta, size, kind, tail) with drifts up and down, so that z is shallow, deep and in between."""
    make = torch.Generator().manual_seed(seed + 1000 * K + l)
    a_BK = scale * torch.randn(B, K, generator=make) + 0.5 * torch.randn(B, 1, generator=make)
    beta_K = torch.full((K,), BETA * math.log(2.0)) + 0.1 * torch.rand(K, generator=make)
    if kind == "infinite":
        a_BK[:, l:] = 0
        beta_K[l:] = BETA * math.log(2.0)
    order_K = torch.cat([torch.randperm(l, generator=make), torch.arange(l, K)])
    return a_BK.to(device), order_K.to(device), beta_K.to(device), torch.tensor(l, device=device), kind, TAIL


def draws(*shape, device, seed=SEED + 1):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(device)


def assert_same_decisions(got, expected, edge, *, thresholds=1):
    """Equal wherever the uniform was not at an edge; and hardly any is, by the number of thresholds it could meet."""
    assert got.dtype == expected.dtype
    assert (got == expected)[~edge].all()
    assert edge.sum() <= 2 + 5 * (2 * EDGE * thresholds) * edge.numel()


def assert_same_hidden(got, case, u_B, u_BK):
    a_BK, order_K = case[:2]
    survival_BZ = ops.survival(z_table(*case))
    z_B, h_BK = got
    edge_B = ((u_B[:, None] - survival_BZ[:, 1:]).abs() < EDGE).any(-1)
    assert_same_decisions(z_B, hidden_sample(*case, u_B, u_BK)[0], edge_B, thresholds=a_BK.shape[1])
    edge_BK = (u_BK - torch.sigmoid(a_BK)).abs() < EDGE
    assert_same_decisions(h_BK, ops.sample_hidden(a_BK, rank_of(order_K), z_B, u_BK), edge_BK)


# -- the hidden half-step -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["ordered", "infinite"])
def test_what_is_certain_of_z_holds_for_every_uniform(kind, dtype, device):
    """P(z >= 100) = 1 in float32, and the largest uniform there is: z must be 100 at least, in every row."""
    B, K, deep = 16, 300, 100
    a_BK = torch.randn(B, K, generator=torch.Generator().manual_seed(SEED)).to(device)
    a_BK[:, :deep] = 40.0  # worth so much that no z leaves one of them out
    beta_K, size = torch.full((K,), 0.7, device=device), torch.tensor(K, device=device)
    u_B, u_BK = torch.full((B,), 1 - 2.0**-24, device=device), torch.full((B, K), 0.5, device=device)
    order_K = torch.arange(K, device=device)
    z_B, h_BK = fused.hidden_sample(a_BK, order_K, beta_K, size, kind, TAIL, u_B, u_BK, dtype=dtype)
    assert z_B.min() >= deep
    assert h_BK[:, :deep].all()


@pytest.mark.parametrize("scale", [0.3, 5.0])
@pytest.mark.parametrize(("K", "l"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_sample_decides_as_its_twin(kind, K, l, scale, device):
    case = hidden_input(kind, K, l, device, scale=scale)
    u_B, u_BK = draws(ROWS, device=device), draws(ROWS, K, device=device)
    assert_same_hidden(fused.hidden_sample(*case, u_B, u_BK), case, u_B, u_BK)


def test_the_cases_above_reach_every_depth(device):
    """At a seed, so that it is of the kernel and not of the input: one in a hundred lacks some depth."""
    case = hidden_input("infinite", 300, 211, device, scale=0.3, B=40, seed=0)
    z_B = fused.hidden_sample(*case, draws(40, device=device, seed=1), draws(40, 300, device=device, seed=1))[0]
    assert (z_B < 20).any()
    assert ((z_B > 20) & (z_B <= 211)).any()
    assert ((z_B > 211) & (z_B <= 300)).any()
    assert (z_B == 301).any()


@pytest.mark.parametrize("scale", [0.3, 5.0])
@pytest.mark.parametrize(("K", "l"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_reach_is_its_twin(kind, K, l, scale, device):
    case = hidden_input(kind, K, l, device, scale=scale)
    u_B = draws(ROWS, device=device)
    reach_BK, active_BK, z_B, mode_B = fused.hidden_reach(*case, u_B)
    true_reach_BK, true_active_BK, true_z_B, true_mode_B = hidden_reach(*case, u_B)
    torch.testing.assert_close(reach_BK, true_reach_BK.float(), rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(active_BK, true_active_BK, rtol=1e-6, atol=1e-7)
    t_BZ = z_table(*case)
    edge_B = ((u_B[:, None] - ops.survival(t_BZ)[:, 1:]).abs() < EDGE).any(-1)
    assert_same_decisions(z_B, true_z_B, edge_B, thresholds=K)
    best_B = t_BZ[:, :l].topk(min(2, l)).values
    tie_B = best_B[:, 0] - best_B[:, -1] < EDGE if l > 1 else torch.zeros_like(edge_B)
    assert_same_decisions(mode_B, true_mode_B, tie_B, thresholds=K)


@pytest.mark.parametrize("scale", [0.3, 10.0])
@pytest.mark.parametrize("kind", ["ordered", "infinite"])
def test_reach_is_exact_to_millionths_where_t_is_in_the_thousands(kind, scale, device):
    case = hidden_input(kind, 1000, 900, device, scale=scale, B=6)
    a_BK, order_K, beta_K = case[:3]
    reach_BK = fused.hidden_reach(*case, draws(6, device=device))[0]
    exact = hidden_reach(a_BK.double(), order_K, beta_K.double(), *case[3:], draws(6, device=device))[0]
    # Half a millionth where weights are summed in pairs; the interpreter's float32 sum goes one by one.
    assert (reach_BK - exact).abs().max() < (1e-5 if kernels.INTERPRETED else 2e-6)
    assert scale < 1 or z_table(*case)[:, 899].max() > 2000


@pytest.mark.parametrize("kind", ["ordered", "infinite"])
def test_reach_keeps_the_digits_of_small_probabilities(kind, device):
    K = 100
    _, order_K, beta_K, size, _, tail = hidden_input(kind, K, K, device)
    case = (torch.full((2, K), -2.0, device=device), order_K, beta_K, size, kind, tail)
    got, expected = (
        fused.hidden_reach(*case, draws(2, device=device))[0],
        hidden_reach(*case, draws(2, device=device))[0],
    )
    assert 0 < expected.min() < 1e-20
    torch.testing.assert_close(got, expected.float(), rtol=2e-5, atol=0)


def test_the_first_of_several_likeliest_depths_is_the_mode(device):
    K = 70
    a_BK = torch.zeros(2, K, device=device)
    case = (a_BK, torch.arange(K, device=device), ops.softplus(a_BK[0]), torch.tensor(50, device=device))
    assert (fused.hidden_reach(*case, "infinite", TAIL, draws(2, device=device))[3] == 1).all()


def test_the_padding_of_a_longer_row_changes_nothing(device):
    a_BK, order_K, beta_K, size, kind, tail = hidden_input("infinite", 60, 41, device, scale=0.3)
    pad = (0, 90)
    wide = (
        torch.nn.functional.pad(a_BK, pad),
        torch.cat([order_K, torch.arange(60, 150, device=device)]),
        torch.nn.functional.pad(beta_K, pad, value=BETA * math.log(2.0)),
    )
    short = fused.hidden_reach(a_BK, order_K, beta_K, size, kind, tail, draws(ROWS, device=device))[0]
    long = fused.hidden_reach(*wide, size, kind, tail, draws(ROWS, device=device))[0]
    torch.testing.assert_close(short, long[:, :60], rtol=1e-5, atol=1e-6)


# -- the visible half-step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [1, 100, 512, 700])
def test_visible_sample_decides_as_its_twin(D, device):
    field_BD = 6 * draws(4, D, device=device) - 3
    u_BD = draws(4, D, device=device, seed=2)
    edge_BD = (u_BD - torch.sigmoid(field_BD)).abs() < EDGE
    assert_same_decisions(fused.visible_sample(field_BD, u_BD), visible_sample(field_BD, u_BD), edge_BD)


# -- draws from a key ---------------------------------------------------------------------------------------------


def test_keyed_draws_are_uniform_and_unrelated(device):
    u_B, u_BK = (u.cpu() for u in fused.hidden_uniforms(40, 150, 7, 3, device))
    u_BD = fused.visible_uniforms(12, 700, 7, 3, device).cpu()
    for u in (u_B, u_BK, u_BD):
        assert u.min() >= 0
        assert u.max() < 1
        assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3
        assert u.unique().numel() > 0.99 * u.numel()
    others = {
        "row": (u_BK[1:], u_BK[:-1]),
        "unit": (u_BK[:, 1:], u_BK[:, :-1]),
        "four of a counter": (u_BD[:, 1::4], u_BD[:, ::4]),
        "counter": (u_BD[:, 4:], u_BD[:, :-4]),
        "z": (u_BK[:, 0], u_B),
        "visible": (u_BK[:12], u_BD[:, :150]),
        "seed": (u_BK, fused.hidden_uniforms(40, 150, 7 + 2**32, 3, device)[1].cpu()),
        "stream": (u_BK, fused.hidden_uniforms(40, 150, 7, 4, device)[1].cpu()),
    }
    for name, (one, other) in others.items():
        r = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(r) < 4 / math.sqrt(one.numel()), name


def test_a_draw_depends_on_its_row_and_position_only(device):
    u_B, u_BK = fused.hidden_uniforms(3, 64, 11, 0, device)
    more_B, more_BK = fused.hidden_uniforms(5, 300, 11, 0, device)
    assert torch.equal(u_B, more_B[:3])
    assert torch.equal(u_BK, more_BK[:3, :64])
    assert torch.equal(
        fused.visible_uniforms(2, 600, 11, 0, device), fused.visible_uniforms(3, 1500, 11, 0, device)[:2, :600]
    )


@pytest.mark.parametrize("by_pointer", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_keyed_forms_decide_as_the_twins_on_the_same_draws(kind, by_pointer, device):
    K, key = 150, 2**40 + 3
    seed = torch.tensor(key, device=device) if by_pointer else key
    case = hidden_input(kind, K, 100, device, scale=0.3)
    u_B, u_BK = fused.hidden_uniforms(ROWS, K, key, 5, device)
    got = fused.hidden_sample_keyed(*case, seed, 5)
    assert_same_hidden(got, case, u_B, u_BK[:, rank_of(case[1])])
    assert torch.equal(fused.hidden_reach_keyed(*case, seed, 5)[2], got[0])
    field_BD = 6 * draws(2, 600, device=device) - 3
    u_BD = fused.visible_uniforms(2, 600, key, 5, device)
    edge_BD = (u_BD - torch.sigmoid(field_BD)).abs() < EDGE
    assert_same_decisions(fused.visible_sample_keyed(field_BD, seed, 5), visible_sample(field_BD, u_BD), edge_BD)


# -- the update ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("l1", "l2", "max_norm"), [(0.0, 0.0, None), (0.05, 0.0, 3.0), (0.02, 0.3, 3.0), (0.0, 0.1, 1.0)]
)
@pytest.mark.parametrize("D", [1, 37, 300])
def test_update_is_its_twin(D, l1, l2, max_norm, device):
    make = torch.Generator().manual_seed(SEED + D)
    K = 6
    parameter = torch.randn(K, D, generator=make).mul_(torch.linspace(0.02, 1, K)[:, None]).to(device)
    squares = torch.rand(K, D, generator=make).to(device)
    age_K = torch.arange(6, 6 + K, device=device)
    fast, slow = (parameter.clone(), squares.clone()), (parameter.clone(), squares.clone())
    lr = 0.1
    for _ in range(3):
        gradient = torch.randn(K, D, generator=make).to(device)
        for update, (p, s) in ((fused.update_weights_, fast), (update_weights_, slow)):
            update(p, gradient, s, age_K, lr, l1, l2, max_norm, warm_up=10, epsilon=1e-8)
        age_K += 1
    torch.testing.assert_close(fast[0], slow[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fast[1], slow[1], rtol=1e-6, atol=1e-6)
    assert not l1 or D < 100 or (fast[0] == 0).any()


@pytest.mark.parametrize("C", [0, 3])
def test_the_optimizer_does_the_same_with_kernels_and_without(C, device, monkeypatch):
    make = torch.Generator()
    K, D, l = 300, 290, 290  # more than one block of biases of either kind, and padding

    def randn(*shape):
        return torch.randn(*shape, generator=make).to(device)

    def updated(with_kernels):
        make.manual_seed(C)  # the first step divides each slope by itself: at some seeds one in 87,000 rounds away
        monkeypatch.setattr(dispatch, "has_kernels", lambda _: with_kernels)
        labels = {"label_weights": randn(K, C), "label_bias": randn(C)} if C else {}
        order_K, size = torch.arange(K, device=device), torch.tensor(l, device=device)
        machine = Machine(randn(K, D), randn(K), randn(D), order_K, size, Infinite(), **labels)
        settings = Settings(learning_rate=0.1, l1=0.05, l2=0.1, max_norm=4.0, label_max_norm=1.5)
        state = optim.initial_state(machine, settings)
        state.age_K.copy_(torch.arange(K) % (2 * optim.WARM_UP["generative"]))
        for _ in range(2):
            gradients = Gradients(randn(K, D), randn(K), randn(D), randn(K, C) if C else None, randn(C) if C else None)
            optim.update_(machine, state, gradients, settings)
        return machine.tensors() | state.tensors()

    fast, slow = updated(True), updated(False)
    assert fast["step"] == 2
    assert fast["age"][l - 1] == (l - 1) % (2 * optim.WARM_UP["generative"]) + 2
    for name, tensor in slow.items():
        torch.testing.assert_close(fast[name], tensor, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_update_does_not_hide_a_broken_gradient(device):
    parameter, squares = torch.ones(2, 5, device=device), torch.ones(2, 5, device=device)
    gradient = torch.ones(2, 5, device=device)
    gradient[1, 2] = math.nan
    age_K, lr = torch.tensor([20, 20], device=device), 0.1
    fused.update_weights_(parameter, gradient, squares, age_K, lr, 1e-3, 0.0, 1.0, warm_up=10, epsilon=1e-8)
    assert parameter[1, 2].isnan()
    assert parameter[0].isfinite().all()


# -- where they run -----------------------------------------------------------------------------------------------


def test_a_first_kernel_draws_and_adds_up(device):
    n = kernels.FEWEST_COLUMNS
    out = torch.zeros(n, dtype=torch.float64, device=device)
    kernels._trial_kernel[(1,)](2**40 + 3, 5, out, n)
    drawn = fused.visible_uniforms(1, n, 2**40 + 3, 5, device)[0].double()
    torch.testing.assert_close(out, drawn.cumsum(0), rtol=1e-12, atol=0)


def test_arguments_a_kernel_would_misread_are_refused(device):
    case = hidden_input("ordered", 8, 8, device)
    u_B, u_BK = draws(ROWS, device=device), draws(ROWS, 8, device=device)
    with pytest.raises(ValueError, match=r"kind must be one of .* got 'endless'"):
        fused.hidden_sample(*case[:4], "endless", TAIL, u_B, u_BK)
    with pytest.raises(ValueError, match="u_BK must be contiguous"):
        fused.hidden_sample(*case, u_B, draws(8, ROWS, device=device).T)
    with pytest.raises(ValueError, match="a must be float32, got float64"):
        fused.hidden_sample(case[0].double(), *case[1:], u_B, u_BK)
    with pytest.raises(ValueError, match="field must be contiguous"):
        fused.visible_sample(case[0].T, u_BK.T.contiguous())
