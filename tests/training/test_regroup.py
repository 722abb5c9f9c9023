"""Random permutation: what is shuffled, how uniformly, by which schedule, and what must not move."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from irbm.models import Infinite
from irbm.ops import dispatch, reference
from irbm.ops.noise import uniform_noise
from irbm.training import Settings, Trainer, TrainingState, optim, regroup
from irbm.training.initial import initial_machine

# -- the shuffle --------------------------------------------------------------------------------------------


def uniformity(shuffle, n=12_000):
    """How likely the first four of seven positions are after n shuffles, if all 24 orders are equally likely."""
    noise = uniform_noise(0)
    start = torch.tensor([6, 2, 0, 5, 1, 3, 4])
    counts = dict.fromkeys(itertools.permutations([6, 2, 0, 5]), 0)
    for _ in range(n):
        order = start.clone()
        shuffle(order, torch.tensor(4), noise(7))
        counts[tuple(order[:4].tolist())] += 1
    return chisquare(list(counts.values())).pvalue


def test_every_order_of_the_first_positions_is_equally_likely():
    assert uniformity(dispatch.shuffle_) > 1e-3


def one_cycle(order, length, u):
    """Rotates: each unit is everywhere equally often, but most orders never come."""
    turn = int(u[0] * int(length))
    order[: int(length)] = order[: int(length)].roll(turn)


def coarse_keys(order, length, u):
    """Ties keep their old order."""
    dispatch.shuffle_(order, length, (u * 10).floor() / 10)


def one_too_few(order, length, u):
    dispatch.shuffle_(order, length - 1, u)


@pytest.mark.parametrize("broken", [one_cycle, coarse_keys, one_too_few])
def test_the_uniformity_test_sees_a_broken_shuffle(broken):
    assert uniformity(broken, n=3000) < 1e-6


@pytest.mark.parametrize("shuffle_", [dispatch.shuffle_, reference.shuffle_])
@pytest.mark.parametrize("length", range(8))
def test_exactly_the_first_positions_move(length, shuffle_):
    start, noise = torch.tensor([6, 2, 0, 5, 1, 3, 4]), uniform_noise(length)
    moved = torch.zeros(7, dtype=torch.bool)
    for _ in range(200):
        order = start.clone()
        shuffle_(order, torch.tensor(length), noise(7))
        assert sorted(order[:length].tolist()) == sorted(start[:length].tolist())
        assert torch.equal(order[length:], start[length:])
        moved |= order != start
    # In 200 shuffles of two or more positions a given one stays throughout with probability below 2^-200.
    assert moved.tolist() == [position < length and length > 1 for position in range(7)]


# -- the schedule -------------------------------------------------------------------------------------------


def lengths(limits, *sizes):
    return [int(limits.length(torch.tensor(size))) for size in sizes]


def test_adaptive_regroups_nothing_in_the_first_epoch():
    assert lengths(regroup.limits("adaptive", 0, []), 1, 2, 100, 10_000) == [0, 0, 0, 0]


@pytest.mark.parametrize("epoch", range(1, 10))
def test_adaptive_regroups_three_quarters_up_to_epoch_ten(epoch):
    assert lengths(regroup.limits("adaptive", epoch, [5.0] * epoch), 1, 2, 4, 100, 103) == [0, 1, 3, 75, 77]


def test_adaptive_follows_the_mean_of_the_last_fifth_of_the_epochs_afterwards():
    mean_z = [1000.0] * 8 + [50.0, 60.0]  # 20 % of ten epochs are two
    assert lengths(regroup.limits("adaptive", 10, mean_z), 500) == [45]
    mean_z = [1000.0] * 16 + [50.0, 60.0, 70.0, 84.0]
    assert lengths(regroup.limits("adaptive", 20, mean_z), 500) == [56]


@pytest.mark.parametrize("mean_z", [0.5, 9.9, 10.0, 10.9])
def test_adaptive_regroups_nothing_where_the_mean_depth_is_small(mean_z):
    assert lengths(regroup.limits("adaptive", 15, [mean_z] * 15), 200) == [0]


def test_adaptive_never_exceeds_nine_tenths_of_the_size():
    limits = regroup.limits("adaptive", 30, [1e6] * 30)
    sizes = range(1, 3000)
    assert lengths(limits, *sizes) == [9 * size // 10 for size in sizes]


@pytest.mark.parametrize("epoch", [0, 1, 10, 100])
def test_a_fraction_and_none_hold_in_every_epoch(epoch):
    mean_z = [50.0] * epoch
    assert lengths(regroup.limits(0.5, epoch, mean_z), 1, 2, 7, 1000) == [0, 1, 3, 500]
    assert lengths(regroup.limits(1, epoch, mean_z), 1, 7, 1000) == [1, 7, 1000]
    assert lengths(regroup.limits(0.0, epoch, mean_z), 7, 1000) == [0, 0]
    assert lengths(regroup.limits(None, epoch, mean_z), 7, 1000) == [0, 0]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 14, 100])
def test_the_last_fifth_is_never_empty(n):
    values = [float(i) for i in range(n)]
    expected = np.mean(values[-max(1, round(n / 5)) :])
    assert regroup.recent_mean(values) == pytest.approx(expected, rel=1e-12)


# -- in training --------------------------------------------------------------------------------------------

X = torch.from_numpy((np.random.default_rng(0).random((40, 6)) < 0.4).astype(np.uint8))


def state_of(size, settings):
    """A machine with a different number everywhere, and an optimiser state likewise."""
    machine = initial_machine(Infinite(), 6, n_components=size)
    state = TrainingState.start(machine, settings, seed=0)
    for i, tensor in enumerate([*machine.tensors().values(), *state.optimizer.tensors().values()]):
        if tensor.is_floating_point():
            tensor.copy_(uniform_noise(5, i)(*tensor.shape))
    return state


def test_only_the_index_moves(monkeypatch):
    """With the updates left out, everything but the order and the chains is where it was, bit by bit."""
    settings = Settings(n_iter=3, batch_size=10, regroup=1.0, momentum=True, max_components=9)
    state = state_of(9, settings)
    before = {n: t.clone() for n, t in {**state.machine.tensors(), **state.optimizer.tensors()}.items()}
    monkeypatch.setattr(optim, "update_", lambda *_: None)
    Trainer(state, X, settings=settings).run()
    after = {**state.machine.with_capacity(9).tensors(), **state.optimizer.with_capacity(9).tensors()}
    order = before.pop("order")
    assert not torch.equal(after["order"], order)
    assert sorted(after.pop("order").tolist()) == list(range(9))
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


def test_the_ages_of_units_do_not_follow_the_order():
    """Units are born one after the other: however positions are shuffled, unit i is never younger than i + 1."""
    settings = Settings(n_iter=8, batch_size=10, regroup=1.0, gibbs_steps=1)
    state = Trainer(TrainingState.start(initial_machine(Infinite(), 6), settings, 0), X, settings=settings).run()
    size, age = int(state.machine.size), state.optimizer.age_K
    assert size > 5
    assert not torch.equal(state.machine.order[:size], torch.arange(size))
    assert int(age[0]) == state.step == 32
    assert (age[1:size] < age[: size - 1]).all()
    assert not age[size:].any()


@pytest.mark.parametrize("regrouped", [None, 0.5, "adaptive"])
def test_the_trainer_regroups_by_the_schedule(regrouped, monkeypatch):
    """Every step shuffles as many positions as the schedule says, before anything else happens in it."""
    seen = []

    def spy(order, length, u):
        seen.append((int(length), len(order), len(u)))

    monkeypatch.setattr(dispatch, "shuffle_", spy)
    settings = Settings(n_iter=13, batch_size=10, regroup=regrouped, gibbs_steps=1, max_components=4)
    state = state_of(4, settings)
    monkeypatch.setattr(optim, "update_", lambda *_: None)
    Trainer(state, X, settings=settings).run()
    # A depth of at most 4, less 10, leaves nothing to regroup from epoch 10 on.
    expected = {None: [0] * 13, 0.5: [2] * 13, "adaptive": [0] + [3] * 9 + [0] * 3}[regrouped]
    assert [length for length, _, _ in seen] == [length for length in expected for _ in range(4)]
    assert [report.regrouped for report in state.history] == expected
    assert all(capacity == uniforms == 32 for _, capacity, uniforms in seen)
