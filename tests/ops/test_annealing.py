"""The fused annealing kernel against its slow twin, on CUDA or in Triton's interpreter."""

import pytest
import torch

from irbm.ops import annealing, fused
from irbm.ops import reference as ops
from irbm.ops.kernels import Key
from irbm.ops.reference import Heat

TAIL = ops.log_tail(1.01)
EDGE = 1e-5  # a decision may differ where its uniform is this close to its threshold


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("K", [1, 2, 40, 128, 300])
@pytest.mark.parametrize("kind", ["fixed", "ordered", "infinite"])
def test_sums_and_samples_are_those_of_the_twin(kind, K, per_row, device):
    B, generator = 8, torch.Generator().manual_seed(K)

    def uniform(*shape):
        return torch.rand(shape, generator=generator).to(device)

    a_BK = 6 * torch.randn(B, K, generator=generator).to(device)
    beta_K = 1.4 * uniform(K)
    answer_MK, part_B = 6 * torch.randn(3, K, generator=generator).to(device), torch.arange(B, device=device) % 3
    shape = (B,) if per_row else ()
    here, there = (Heat(uniform(*shape).double(), uniform(*shape).double()) for _ in range(2))
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
    assert at_an_edge.all(1).sum() <= 2  # of eight rows
