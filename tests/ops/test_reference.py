"""The reference operations at the edges of floating point."""

import math

import pytest
import torch

from irbm.models import Fixed, Infinite, Ordered
from irbm.ops import reference as ops


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_is_exact(dtype):
    x = torch.linspace(-50, 50, 2001, dtype=dtype)
    exact = torch.logaddexp(x.double(), torch.zeros(1, dtype=torch.float64))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(ops.softplus(x).double(), exact, rtol=tolerance, atol=1e-300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pattern", ["up", "down", "mixed"])
@pytest.mark.parametrize("depth", [Fixed(), Ordered(), Infinite()])
def test_finite_and_ordered_at_ten_thousand_units_of_ten_thousand(dtype, pattern, depth):
    l = 10_000
    torch.manual_seed(0)
    a = {"up": torch.full((l,), 1e4), "down": torch.full((l,), -1e4), "mixed": torch.empty(l).uniform_(-1e4, 1e4)}
    gain = ops.softplus(a[pattern].to(dtype)) - depth.penalties(torch.zeros(l, dtype=dtype))
    t = depth.table(gain[None], torch.tensor(l))
    possible = t > -math.inf
    assert torch.isfinite(torch.logsumexp(t, -1)).all()
    survival = ops.survival(t)[0]
    assert torch.isfinite(survival).all()
    assert (survival[1:] <= survival[:-1]).all()
    assert survival[0] == 1
    log_p = torch.log_softmax(t, -1)
    assert torch.isfinite(log_p[possible]).all()
    if pattern == "up" and not isinstance(depth, Fixed):
        # Neighbouring z differ by 1e4 - beta ln 2: float32 sums of 1e8 would lose the difference.
        steps = (t[0, 1:l] - t[0, : l - 1]).double()
        torch.testing.assert_close(steps, gain[1:].double(), rtol=1e-7, atol=0)


def test_survival_keeps_the_digits_of_small_probabilities():
    t = torch.tensor([[0.0, -200.0, -400.0]], dtype=torch.float64)
    assert ops.survival(t)[0, 2].item() == pytest.approx(math.exp(-400.0), rel=1e-12)


def test_the_extreme_uniforms_stay_in_range():
    survival = ops.survival(torch.randn(5, 8, dtype=torch.float64))
    largest = torch.full((5,), 1 - 2**-24)
    assert (ops.sample_z(survival, torch.zeros(5)) == 8).all()
    assert (ops.sample_z(survival, largest) >= 1).all()
    logits = torch.randn(5, 4)
    assert (ops.sample_categorical(logits, torch.zeros(5)) == 0).all()
    assert (ops.sample_categorical(logits, largest) <= 3).all()
