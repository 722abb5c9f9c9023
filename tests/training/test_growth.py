"""When a machine grows, when it must not, and what it sheds."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import irbm
from brute import Small, enumerate_all, visible_states
from irbm.models import Fixed, Infinite, Ordered
from irbm.ops import dispatch, reference
from irbm.ops.noise import CountedStream
from irbm.training import Callback, Settings, Trainer, TrainingState, growth, trainer
from irbm.training.initial import initial_machine
from machines import as_machine, random_small

# -- the decision -------------------------------------------------------------------------------------------


def grown(size, z_pos, z_neg, limit=100, update_=growth.update_):
    tensor = torch.tensor(size)
    update_(tensor, torch.tensor(z_pos), torch.tensor(z_neg), limit)
    return int(tensor)


@examples(max_examples=300, deadline=None, derandomize=True)
@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 8), min_size=1, max_size=7),
    st.lists(st.integers(1, 8), min_size=1, max_size=7),
    st.integers(1, 8),
)
def test_grows_by_one_exactly_when_a_pair_reaches_beyond(size, z_pos, z_neg, limit):
    pairs = [(z_pos[i % len(z_pos)], z_neg[i % len(z_neg)]) for i in range(max(len(z_pos), len(z_neg)))]
    beyond = any(a > size and b > size for a, b in pairs)
    for update_ in (growth.update_, reference.grow_):
        assert grown(size, z_pos, z_neg, limit, update_) == size + (beyond and size < limit)


CASES = {
    "neither": ([3, 2], [1, 3], 3),
    "only the example": ([4, 4], [3, 3], 3),
    "only the partner": ([3, 3], [4, 4], 3),
    "both, in different pairs": ([4, 1], [1, 4], 3),
    "both, at l and not beyond": ([3, 3], [3, 3], 3),
    "both": ([4, 1], [4, 1], 4),
    "several pairs": ([4, 5, 6], [4, 5, 6], 4),
    "three chains to one example": ([9], [1, 1, 9], 4),
    "five chains to two examples: the fifth meets the first": ([9, 1], [1, 9, 1, 9, 9], 4),
    "five chains to two examples: the fourth meets the second": ([9, 1], [1, 9, 1, 9, 1], 3),
    "five examples to two chains": ([1, 1, 1, 9, 1], [1, 9], 4),
    "five examples to two chains, another": ([1, 1, 1, 9, 1], [9, 1], 3),
}


@pytest.mark.parametrize("name", CASES)
def test_pairing(name):
    z_pos, z_neg, expected = CASES[name]
    assert grown(3, z_pos, z_neg) == expected


def test_the_limit_is_reached_and_not_passed():
    assert grown(3, [9], [9], limit=4) == 4
    assert grown(4, [9], [9], limit=4) == 4
    assert grown(5, [9], [9], limit=4) == 5  # a machine that came with more units keeps them


# -- in training --------------------------------------------------------------------------------------------

X = torch.from_numpy((np.random.default_rng(0).random((60, 8)) < 0.4).astype(np.uint8))
Y = torch.arange(60) % 3


def trained(machine, y=None, **more):
    settings = Settings(**({"n_iter": 5, "batch_size": 10, "gibbs_steps": 2} | more))
    return Trainer(TrainingState.start(machine, settings, 0), X, y, settings=settings).run()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("objective", ["generative", "discriminative", "hybrid"])
def test_an_infinite_machine_grows_up_to_max_components(objective, persistent):
    more = {"objective": objective, "persistent": persistent}
    free = trained(initial_machine(Infinite(), 8, n_classes=3), Y, **more)
    bound = trained(initial_machine(Infinite(), 8, n_classes=3), Y, max_components=4, **more)
    assert free.machine.size > 6
    assert bound.machine.size == 4
    assert max(report.n_components for report in bound.history) == 4
    assert not bound.machine.weights[4:].any()


def test_growth_needs_both_sides(monkeypatch):
    """A batch that always reaches beyond, and chains that never do: no growth; and with both, one unit a step."""
    from irbm.training import objectives

    real = objectives.gradients

    def with_depths(z_pos, z_neg):
        def fake(machine, *rest):
            phases = real(machine, *rest)
            shape = torch.ones_like
            return phases._replace(z_pos_B=shape(phases.z_pos_B) * z_pos, z_neg_N=shape(phases.z_neg_N) * z_neg)

        monkeypatch.setattr(objectives, "gradients", fake)
        return int(trained(initial_machine(Infinite(), 8), n_iter=7).machine.size)

    assert with_depths(10_000, 1) == 1
    assert with_depths(1, 10_000) == 1
    # 42 steps, more than one segment: the capacity never stands in the way.
    assert with_depths(10_000, 10_000) == 43


@pytest.mark.parametrize("n_chains", [3, 10, 25])
def test_any_number_of_chains_grows(n_chains):
    assert trained(initial_machine(Infinite(), 8), n_chains=n_chains).machine.size > 5


@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize("depth", [Fixed(), Ordered(0.01), Ordered()])
def test_fixed_and_ordered_machines_never_grow(depth, padding):
    """Not even where depth costs nearly nothing and there is room."""
    machine = initial_machine(depth, 8, n_components=5).with_capacity(5 + padding)
    state = trained(machine, learning_rate=0.5)
    assert [report.n_components for report in state.history] == [5] * 5
    assert state.machine.capacity == 5 + padding
    assert not state.machine.weights[5:].any()


class Sizes(Callback):
    def __init__(self):
        self.seen = []

    def after_segment(self, trainer):
        self.seen.append((int(trainer.machine.size), trainer.machine.capacity))


def test_the_sizes_of_a_run_never_fall_nor_jump():
    settings = Settings(n_iter=10, batch_size=2, gibbs_steps=1)
    watch = Sizes()
    state = TrainingState.start(initial_machine(Infinite(), 8), settings, 0)
    Trainer(state, X, settings=settings, callbacks=[watch]).run()
    sizes = [size for size, _ in watch.seen]
    assert sizes == sorted(sizes)
    assert all(after - before <= 32 for before, after in itertools.pairwise(sizes))


FEW = {factor: partial(trainer._recorded_room, growth=factor) for factor in (1.25, 2.0)}


@pytest.mark.parametrize(
    ("room", "least", "factor"), [(trainer._room, 32, 1.0), (FEW[1.25], 256, 1.25), (FEW[2], 256, 2)]
)
def test_capacities_hold_the_size_and_waste_no_more_than_they_grow_by(room, least, factor):
    rooms = [room(size) for size in range(1, 3000)]
    assert all(size <= room <= max(least, factor * size + 32) for size, room in enumerate(rooms, 1))
    assert rooms == sorted(rooms)
    assert all(room % 32 == 0 for room in rooms)


@pytest.mark.parametrize(("factor", "rooms"), [(1.25, [256, 320, 416, 544, 704, 896, 1120]), (2.0, [256, 512, 1024])])
def test_a_device_that_records_its_steps_has_few_capacities_to_record(factor, rooms):
    assert sorted({FEW[factor](size) for size in range(1, 1000)}) == rooms


@pytest.mark.parametrize(("classes", "room"), [(0, 512), (3, 320)])
def test_capacities_double_where_products_skip_padding(classes, room, monkeypatch):
    assert recording(monkeypatch, classes)._room(200, 64) == room


def test_capacities_of_large_machines_do_not_swing(monkeypatch):
    """At twice 32,768 units products would need more than 32 bits to count by."""
    large, rooms = recording(monkeypatch, 0), []
    for capacity in (32_768, 33_024, 65_536):
        weights = torch.empty(capacity, 784, device="meta")
        large.state.machine = replace(large.machine, weights=weights)
        rooms.append(large._room(32_750, 64))
    assert rooms == [33_024] * 3


def recording(monkeypatch, classes):
    """A trainer that takes itself to be on a GPU, as far as capacities go."""
    monkeypatch.setattr(trainer, "KeyedStream", CountedStream)
    monkeypatch.setattr(dispatch, "has_kernels", lambda a: True)
    settings = Settings(n_iter=1, batch_size=10)
    machine = initial_machine(Infinite(), 8, n_classes=classes)
    y = torch.zeros(len(X), dtype=torch.int64) if classes else None
    return Trainer(TrainingState.start(machine, settings, 0), X, y, settings=settings)


# -- pruning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["fixed", "ordered", "infinite"])
@pytest.mark.parametrize("labels", [0, 3])
def test_prune_drops_small_rows_and_keeps_the_order(depth, labels):
    small = random_small(np.random.default_rng(1), depth=depth, labels=labels, n_hidden=6)
    for unit in (0, 3, 5):
        small.W[unit] *= 1e-3
    machine = as_machine(small).with_capacity(9)
    kept = [unit for unit in small.order if unit not in (0, 3, 5)]
    pruned = growth.prune(machine)
    expected = replace(small, W=small.W[kept], c=small.c[kept], order=[0, 1, 2], U=small.U[kept] if labels else None)
    assert int(pruned.size) == pruned.capacity == 3
    v = torch.tensor(visible_states(4))
    truth = enumerate_all(expected)
    np.testing.assert_allclose(pruned.free_energy(v).numpy(), truth.free_energy(), rtol=1e-10)
    np.testing.assert_allclose(pruned.hidden_mean(v).numpy(), truth.p_h(), rtol=1e-10)
    assert machine.size == 6  # the argument is not touched


@pytest.mark.parametrize(("factor", "left"), [(0.99, 3), (1.01, 4)])
def test_prune_draws_the_line_at_a_tenth_of_the_mean_norm(factor, left):
    # Norms 1, 1, 1 and x with x = 0.1 * mean: x = 0.1 (3 + x) / 4, so x = 3 / 39.
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"))
    machine.weights.div_(machine.weights.norm(dim=1, keepdim=True))
    machine.weights[2].mul_(factor * 3 / 39)
    assert int(growth.prune(machine).size) == left


def test_prune_keeps_a_machine_of_zeros():
    assert int(growth.prune(initial_machine(Infinite(), 4, n_components=2)).size) == 2


def test_a_pruned_estimator_goes_on_training():
    model = irbm.InfiniteRBM(n_iter=4, batch_size=10, gibbs_steps=1, random_state=0, device="cpu").fit(X.numpy())
    before = model.n_components_
    model.machine_.weights[1].zero_()
    rows = np.delete(model.components_, model.machine_.order.tolist().index(1), axis=0)
    kept = np.linalg.norm(rows, axis=1) >= 0.1 * np.linalg.norm(model.components_, axis=1).mean()
    model.prune()
    assert model.n_components_ < before
    np.testing.assert_array_equal(model.components_, rows[kept])
    size = model.n_components_
    model.partial_fit(X.numpy())
    assert len(model.history_) == 5
    assert model.n_components_ >= size


def test_a_pruned_machine_is_averaged_over_orders_of_what_is_left():
    how = {"n_iter": 4, "batch_size": 10, "gibbs_steps": 1, "random_state": 0, "device": "cpu"}
    model = irbm.InfiniteRBM(regroup=1.0, **how).fit(X.numpy())
    model.machine_.weights[1].zero_()
    assert model.prune().history_[-1]["regrouped"] > model.n_components_
    assert np.isfinite(model.averaged_likelihood(X.numpy(), 2).value)


# -- as a classic RBM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["constant", "softplus"])
@pytest.mark.parametrize("units", ["effective", "all"])
def test_the_converted_rbm_is_the_machine_with_z_clamped(units, penalty):
    """p(v) of the RBM equals p(v | z = N), N = round(N_h) or l, by enumeration of (v, h, z). Sec. 4.2."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (4, 5))
    data = (patterns[rng.integers(0, 4, 80)] ^ (rng.random((80, 5)) < 0.1)).astype(np.uint8)
    model = irbm.InfiniteRBM(
        n_iter=30, batch_size=20, gibbs_steps=1, learning_rate=0.3, max_components=5, penalty=penalty, random_state=0
    )  # fmt: skip
    model.fit(data)
    model._history[-1] = replace(model._history[-1], effective_size=2.6)
    N = {"effective": 3, "all": 5}[units]
    W, c = model.components_.astype(float), model.intercept_hidden_.astype(float)
    b = model.intercept_visible_.astype(float)
    weight_of_v = enumerate_all(Small(W, c, b, list(range(5)), "infinite", 1.01, penalty)).w[:, 0, N - 1]
    rbm = model.to_rbm(units)
    assert rbm.n_components_ == rbm.n_components == N
    p = np.exp(rbm.score_samples(visible_states(5)))
    np.testing.assert_allclose(p, weight_of_v / weight_of_v.sum(), rtol=1e-5)
    assert np.ptp(p) > 0.05  # far from uniform: the comparison says something


def test_a_saved_model_keeps_its_history_and_converts_alike(tmp_path):
    data = (np.random.default_rng(0).random((80, 6)) < 0.4).astype(float) * 3
    model = irbm.InfiniteRBM(n_iter=4, batch_size=10, gibbs_steps=1, binarize=1.0, random_state=5).fit(data)
    model.save(tmp_path / "model")
    loaded = irbm.InfiniteRBM.load(tmp_path / "model")
    assert loaded.history_ == model.history_
    assert loaded.effective_size_ == model.effective_size_
    first, second = model.to_rbm(), loaded.to_rbm()
    assert np.array_equal(first.components_, second.components_)
    assert second.binarize == 1.0
    assert torch.equal(second._visible_means.cpu(), torch.from_numpy((data > 1).mean(0)).float())
    assert len(loaded.partial_fit(data).history_) == 5


def test_to_rbm_refuses_other_words():
    model = irbm.InfiniteRBM.from_parameters(np.ones((2, 3)), np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="units must be 'effective' or 'all', got 'some'"):
        model.to_rbm("some")


# -- the start ----------------------------------------------------------------------------------------------


def test_the_first_weights():
    """Zeros and one unit for infinite machines; N(0, 0.01) for the others, which zeros would keep symmetric."""
    infinite = initial_machine(Infinite(), 50, seed=1)
    assert int(infinite.size) == 1
    assert not any(t.any() for n, t in infinite.tensors().items() if n != "size")
    fixed = initial_machine(Fixed(), 400, n_components=300, n_classes=10, seed=1)
    n = fixed.weights.numel()
    # Five standard errors of a mean and of a standard deviation of n normals.
    assert abs(float(fixed.weights.mean())) < 5 * 0.01 / n**0.5
    assert abs(float(fixed.weights.std()) - 0.01) < 5 * 0.01 / (2 * n) ** 0.5
    assert abs(float(fixed.label_weights.std()) - 0.01) < 5 * 0.01 / (2 * 3000) ** 0.5
    assert abs(float((fixed.weights / 0.01).pow(4).mean()) - 3) < 5 * 96**0.5 / n**0.5
    assert not fixed.hidden_bias.any()
    assert not fixed.visible_bias.any()
    assert torch.equal(fixed.weights, initial_machine(Fixed(), 400, n_components=300, n_classes=10, seed=1).weights)
    assert not torch.equal(fixed.weights, initial_machine(Fixed(), 400, n_components=300, seed=2).weights)


def test_chains_start_as_fair_coins():
    settings = Settings(n_chains=4000)
    state = TrainingState.start(initial_machine(Infinite(), 5, n_classes=4), settings, seed=0)
    v, y = state.chains.v_ND, state.chains.y_N
    assert set(v.unique().tolist()) == {0.0, 1.0}
    assert (v.mean(0) - 0.5).abs().max() < 5 * 0.5 / 4000**0.5
    share = torch.bincount(y, minlength=4) / 4000
    assert (share - 0.25).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5
