"""Machines of known ln Z: the sums over counts against brute force, and each kind is as hard as it says."""

import numpy as np
import pytest
import torch

from brute import Small, enumerate_all, visible_states
from irbm.experiments import known
from irbm.models import Fixed, Infinite, Ordered

DEPTHS = [
    Fixed(),
    Ordered(),
    Ordered(0.7, "softplus"),
    Infinite(1.3),
    Infinite(1.1, "softplus"),
]
KINDS_OF_UNITS = [[0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [1, 1, 0, 1, 0]]


@pytest.mark.parametrize("depth", DEPTHS, ids=str)
@pytest.mark.parametrize("kinds", KINDS_OF_UNITS, ids=str)
def test_sums_over_counts_are_sums_over_states(depth, kinds):
    rng = np.random.default_rng(3)
    filters = [(rng.normal(size=4), float(rng.normal())) for _ in range(max(kinds) + 1)]
    b = rng.normal(size=4)
    found = known._counted("small", depth, filters, np.array(kinds), b)
    small = Small(
        W=np.stack([filters[k][0] for k in kinds]),
        c=np.array([filters[k][1] for k in kinds]),
        b=b,
        order=list(range(5)),
        depth=type(depth).__name__.lower(),
        beta=getattr(depth, "beta", 0.0),
        penalty=getattr(depth, "penalty", "constant"),
    )
    assert found.log_z == pytest.approx(enumerate_all(small).log_z, abs=1e-10)
    np.testing.assert_array_equal(found.machine.weights, small.W)
    np.testing.assert_array_equal(found.machine.hidden_bias, small.c)


def test_every_kind_comes_with_every_depth_and_again_the_same():
    first = list(known.machines(["plain", "labelled"], seed=5, per_kind=2))
    again = list(known.machines(["plain", "labelled"], seed=5, per_kind=2))
    assert len(first) == 2 * 5 * 2
    assert [one.log_z for one in first] == [one.log_z for one in again]
    assert len({one.log_z for one in first}) == len(first)
    assert {type(one.machine.depth) for one in first} == {Fixed, Ordered, Infinite}
    assert [bool(one.machine.n_classes) for one in first] == [False] * 10 + [True] * 10


def log_p(one):
    """ln p(v) of every state: (2^D,)."""
    return -one.machine.free_energy(torch.tensor(visible_states(one.machine.n_visible))) - one.log_z


def test_a_narrow_machine_has_one_state_as_heavy_as_many():
    for one in known.machines(["narrow"], seed=2, per_kind=1):
        two = torch.sort(log_p(one), descending=True).values[:2].exp()
        assert two[0] > 0.1
        assert two[0] > 20 * two[1]


def test_a_deep_trap_is_deep_at_its_one_pattern_and_shallow_in_the_noise():
    """Units of three patterns cost more than one pattern gives back, and z stays small."""
    noise = torch.tensor(np.random.default_rng(0).integers(0, 2, (200, 16)), dtype=torch.float64)
    seen = set()
    for one in (known.deep_trap(np.random.default_rng(seed), Infinite(1.01)) for seed in (1, 2)):
        pattern_KD = one.machine.weights > 0
        alone = bool((pattern_KD == pattern_KD[0]).all())
        likeliest = visible_states(16)[log_p(one).argmax()][None]
        z_at_mode = int(one.machine.log_prob_z(torch.tensor(likeliest)).argmax())
        assert (z_at_mode == 300) == alone
        assert one.machine.log_prob_z(noise).argmax(1).median() < 3
        if alone:
            np.testing.assert_array_equal(likeliest[0], pattern_KD[0])
        seen.add(alone)
    assert seen == {True, False}


def test_a_multimodal_machine_has_states_that_no_single_flip_betters():
    states = torch.tensor(visible_states(16))
    value = 2 ** torch.arange(15, -1, -1)
    for one in known.machines(["multimodal"], seed=1, per_kind=1):
        log_p_V = log_p(one)
        index = (states.long() * value).sum(1)
        neighbours = torch.stack([log_p_V[index ^ bit] for bit in value.tolist()])
        heavy = log_p_V > log_p_V.max() - 20
        assert int(((log_p_V > neighbours.max(0).values) & heavy).sum()) > 1
