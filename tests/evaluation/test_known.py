"""Machines of known ln Z: the sums over counts against brute force, and each kind is as hard as it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from brute import Small, enumerate_all, visible_states
from irbm.experiments import known
from irbm.experiments.trust import naive
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


def test_every_deep_trap_is_one(monkeypatch):
    """With every sign of health, the usual estimate is below what the pattern alone weighs."""
    monkeypatch.setattr(known, "_summed", lambda kind, machine: known.Known(kind, machine, math.nan))
    for one in known.machines(["deep_trap"], per_kind=2):
        machine = one.machine
        pattern = (machine.visible_bias < 0).double()
        heavy = float(-machine.free_energy(pattern[None]))
        usual = naive(machine, machine.visible_bias, 200, 50, seed=0)
        assert usual["value"] < heavy - 2.5, machine.depth
        assert usual["ess"] > 45, machine.depth
        noise = (
            torch.rand(200, 16, generator=torch.Generator().manual_seed(0)) < torch.sigmoid(machine.visible_bias)
        ).double()
        if not isinstance(machine.depth, Fixed):
            assert machine.log_prob_z(pattern[None]).argmax() >= 299
            assert machine.log_prob_z(noise).argmax(1).median() < 3


@pytest.mark.parametrize("depth", DEPTHS, ids=str)
@pytest.mark.parametrize("units", [[0], [2], [5], [4, 1], [0, 3, 5]], ids=str)
def test_sums_over_independent_visibles_are_sums_over_states(depth, units):
    rng = np.random.default_rng(4)
    W, c, b = np.zeros((6, 3)), rng.normal(size=6), rng.normal(size=3)
    W[np.arange(6), np.arange(6) % 3] = rng.normal(size=6)
    W[units] = rng.normal(size=(len(units), 3))
    small = Small(
        W=W,
        c=c,
        b=b,
        order=list(range(6)),
        depth=type(depth).__name__.lower(),
        beta=getattr(depth, "beta", 0.0),
        penalty=getattr(depth, "penalty", "constant"),
    )
    found = known._independent("small", known._machine(depth, W, c, b), units)
    assert found.log_z == pytest.approx(enumerate_all(small).log_z, abs=1e-10)


def test_a_needle_is_one_state_beside_fair_coins():
    for one in known.machines(["needle"], per_kind=1):
        filters = (one.machine.weights != 0).sum(1)
        needle = int(filters.argmax())
        assert filters.sort().values[-2:].tolist() == [1, 100]
        without = replace(one.machine, hidden_bias=one.machine.hidden_bias.clone())
        without.hidden_bias[needle] = -1e6
        share = -math.expm1(known._independent("without", without, [needle]).log_z - one.log_z)
        assert 0.05 < share < 0.999
        state = (one.machine.weights[needle] > 0).double()[None]
        fair = torch.randint(0, 2, (100, 100), generator=torch.Generator().manual_seed(0)).double()
        above = -one.machine.free_energy(state) + one.machine.free_energy(fair).min()
        assert float(above) > 40


def test_a_multimodal_machine_has_states_that_no_single_flip_betters():
    states = torch.tensor(visible_states(16))
    value = 2 ** torch.arange(15, -1, -1)
    for one in known.machines(["multimodal"], seed=1, per_kind=1):
        log_p_V = log_p(one)
        index = (states.long() * value).sum(1)
        neighbours = torch.stack([log_p_V[index ^ bit] for bit in value.tolist()])
        heavy = log_p_V > log_p_V.max() - 20
        assert int(((log_p_V > neighbours.max(0).values) & heavy).sum()) > 1


def test_a_company_makes_a_state_that_few_of_it_do_not_make():
    """Eight add to the coins what none of them adds alone, nor half of them together."""
    for one in known.machines(["company"], per_kind=1):
        units = torch.nonzero((one.machine.weights != 0).sum(1) == 32)[:, 0].tolist()
        assert len(units) == 8

        def log_z_without(off, one=one, units=units):
            hidden_bias = one.machine.hidden_bias.clone()
            hidden_bias[off] = -1e6
            return known._independent("without", replace(one.machine, hidden_bias=hidden_bias), units).log_z

        coins = log_z_without(units)
        added = math.expm1(one.log_z - coins)
        assert 0.05 < added < 1000
        for unit in units:
            assert math.expm1(log_z_without([u for u in units if u != unit]) - coins) < 0.01
        assert math.expm1(log_z_without(units[:4]) - coins) < 0.01
