"""The fused annealing kernels against their slow twins, on CUDA or in Triton's interpreter."""

import pytest
import torch

from fresh import SEED
from irbm.ops import annealing, fused
from irbm.ops import reference as ops
from irbm.ops.kernels import INTERPRETED, Key, constexpr, jit, row_launch, tl
from irbm.ops.reference import Heat

TAIL = ops.log_tail(1.01)
EDGE = 1e-5  # a decision may differ where its uniform is this close to its threshold
FEW = 4 if INTERPRETED else 20  # rows: the interpreter takes a tenth of a second for each


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("K", [1, 2, 40, 128, 300])
@pytest.mark.parametrize("pulls", [(1, 1), (0, 100), (100, 0)])  # weak; to a clamp, and let go
@pytest.mark.parametrize("kind", ["fixed", "ordered", "infinite"])
def test_sums_and_samples_are_those_of_the_twin(kind, K, pulls, per_row, device):
    B, generator = FEW, torch.Generator().manual_seed(SEED + K)

    def uniform(*shape):
        return torch.rand(shape, generator=generator).to(device)

    a_BK = 6 * torch.randn(B, K, generator=generator).to(device)
    beta_K = 1.4 * uniform(K)
    answer_MK, part_B = 6 * torch.randn(3, K, generator=generator).to(device), torch.arange(B, device=device) % 3
    shape = (B,) if per_row else ()
    here, there = (Heat(uniform(*shape).double(), pull * uniform(*shape).double()) for pull in pulls)
    key = Key(torch.tensor(7, dtype=torch.int64, device=device), 3)
    found = annealing.annealed_sample(a_BK, answer_MK, part_B, beta_K, kind, TAIL, here, there, key)
    u_B, u_BK = fused.hidden_uniforms(B, K, *key, device)
    wanted = ops.annealed_sample(a_BK, answer_MK, part_B, beta_K, kind, TAIL, here, there, u_B, u_BK)
    for log_sum, expected in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(log_sum, expected, rtol=0, atol=2e-6 * K + 2e-6)
    there_BK = ops.heated(a_BK, answer_MK[part_B], there.tau)
    survival_BZ = ops.survival(ops.annealed_table(there_BK, beta_K, kind, TAIL, there.kappa))
    at_an_edge = ((survival_BZ - u_B[:, None]).abs() < EDGE).any(1, keepdim=True)
    at_an_edge = at_an_edge | ((torch.sigmoid(there_BK) - u_BK).abs() < EDGE)
    assert not ((found[2] != wanted[2]) & ~at_an_edge).any()
    assert at_an_edge.all(1).sum() <= 2


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("M", [1, 5, 16, 64])
@pytest.mark.parametrize(("B", "D"), [(FEW, 1), (FEW, 30), (4, 784), (3, 3000)])  # the last: more threads than 16 x 16
def test_parts_and_visibles_are_those_of_the_twin(B, D, M, per_row, device):
    generator = torch.Generator().manual_seed(SEED + 100 * D + M)

    def normal(*shape, dtype=torch.float32):
        return 3 * torch.randn(shape, generator=generator, dtype=dtype).to(device)

    tau = torch.rand((B,) if per_row else (), generator=generator, dtype=torch.float64).to(device)
    log_share_M = torch.log_softmax(normal(M, dtype=torch.float64), 0)
    state = (normal(B, D), normal(M, D), log_share_M, normal(B, M, dtype=torch.float64), normal(B, M), tau)
    key = Key(torch.tensor(7, dtype=torch.int64, device=device), 3)
    part_B, v_BD = annealing.annealed_visible(*state, key)
    u_B, u_BD = fused.hidden_uniforms(B, 1, *key, device)[0], fused.visible_uniforms(B, D, *key, device)
    wanted_B, field_BD = ops.annealed_field(*state, u_B)
    assert part_B.dtype == torch.int64
    assert torch.equal(part_B, wanted_B)
    at_an_edge = (torch.sigmoid(field_BD) - u_BD).abs() < EDGE
    assert not ((v_BD != ops.sample_bernoulli(field_BD, u_BD)) & ~at_an_edge).any()
    assert at_an_edge.sum() <= B * D * EDGE * 10 + 2


def test_views_are_read_as_what_they_show(device):
    B, M, D = 12, 3, 20
    generator = torch.Generator().manual_seed(SEED)
    tau = torch.rand(2 * B, generator=generator, dtype=torch.float64).to(device)[::2]
    log_share_M = torch.randn(2 * M, generator=generator, dtype=torch.float64).to(device)[::2]
    base_BM = torch.randn(M, B, generator=generator, dtype=torch.float64).to(device).T
    field_BD, bias_MD, answer_BM = (torch.randn(n, generator=generator).to(device) for n in ((B, D), (M, D), (B, M)))
    key = Key(torch.tensor(5, dtype=torch.int64, device=device), 1)
    found = annealing.annealed_visible(field_BD, bias_MD, log_share_M, base_BM, answer_BM, tau, key)
    others = (t.contiguous() for t in (log_share_M, base_BM, answer_BM, tau))
    wanted = annealing.annealed_visible(field_BD, bias_MD, *others, key)
    assert all(map(torch.equal, found, wanted))
    hidden = (field_BD, bias_MD, torch.arange(B, device=device) % M, torch.rand(D, generator=generator).to(device))
    heats = [Heat(tau, 3 * tau), Heat(1 - tau, torch.rand(2 * B, generator=generator).double().to(device)[::2])]
    found = annealing.annealed_sample(*hidden, "infinite", TAIL, *heats, key)
    plain = [Heat(*(t.contiguous() for t in heat)) for heat in heats]
    assert all(map(torch.equal, found, annealing.annealed_sample(*hidden, "infinite", TAIL, *plain, key)))


@jit
def _chosen_kernel(score_M, u_N, seed, stream, part_N, M, PARTS: constexpr):
    at_M = tl.arange(0, PARTS)
    score_M = tl.load(score_M + at_M, mask=at_M < M, other=float("-inf"))
    part = annealing._chosen(score_M, at_M, M, tl.load(u_N + tl.program_id(0)))
    tl.store(part_N + tl.program_id(0), part)


@pytest.mark.parametrize("parts", [16, 64])
def test_parts_of_no_weight_are_never_chosen(parts, device):
    """Neither the first, by the least uniform there is, nor the last, by the largest."""
    M = 7
    score_M = torch.full((M,), -1e4, dtype=torch.float64, device=device)
    score_M[2:4] = torch.tensor([0.0, -1.0], device=device)
    u_N = torch.tensor([2.0**-32, 0.73, 0.74, 1 - 2.0**-24], device=device)  # e^0 has 0.731 of the weight
    part_N = torch.empty(4, dtype=torch.int64, device=device)
    _chosen_kernel[(4,)](score_M, u_N, 0, 0, part_N, M, parts)
    assert part_N.tolist() == [2, 2, 3, 3]


@jit
def _reach_kernel(a_BK, answer_K, beta_K, tau, kappa, tail, seed, stream, reach_BK, K, BLOCK: constexpr):
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    a_K = tl.load(a_BK + tl.program_id(0) * K + at_K, mask=inside_K, other=0.0)
    answer_K = tl.load(answer_K + at_K, mask=inside_K, other=0.0)
    beta_K = tl.load(beta_K + at_K, mask=inside_K, other=0.0)
    _, _, reach_K, _ = annealing._heated(
        a_K, answer_K, beta_K, at_K, inside_K, K, tail, tl.load(tau), tl.load(kappa), "infinite"
    )
    tl.store(reach_BK + tl.program_id(0) * K + at_K, reach_K, mask=inside_K)


def test_what_is_certain_of_z_is_certain_to_the_last_digit(device):
    """A thousandth of a millionth less, and of the billions of draws of an estimate some would take z back to 1."""
    B, K, deep = 8, 300, 100
    generator = torch.Generator().manual_seed(SEED)
    a_BK = torch.randn(B, K, generator=generator)
    a_BK[:, :deep] = 40.0  # worth so much that no z leaves one of them out
    a_BK, beta_K = a_BK.to(device), torch.full((K,), 0.7, device=device)
    one, none = torch.ones((), dtype=torch.float64, device=device), torch.zeros((), dtype=torch.float64, device=device)
    reach_BK = torch.empty(B, K, dtype=torch.float64, device=device)
    _reach_kernel[(B,)](
        a_BK, torch.zeros(K, device=device), beta_K, one, none, TAIL, 0, 0, reach_BK, K, **row_launch(K)
    )
    assert (reach_BK[:, deep - 1] - 1).abs().max() < 1e-12
    assert (reach_BK[:, deep:].amin() < 0.9).all()
