"""The trainer: reports, callbacks, stopping and going on, reproducibility, divergence, capacity."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from brute import enumerate_all
from irbm.models import Fixed, Infinite, Ordered
from irbm.training import (
    Callback,
    Checkpointer,
    DivergenceError,
    EarlyStopping,
    Settings,
    Trainer,
    TrainingState,
    checkpoint,
    growth,
    optim,
)
from irbm.training.initial import initial_machine
from irbm.training.trainer import CAPACITY_UNIT, FIRST_RECORDED, SEGMENT
from machines import as_machine, random_small

rng = np.random.default_rng(0)
X = torch.from_numpy((rng.random((70, 8)) < 0.4).astype(np.uint8))
Y = torch.arange(70) % 3
QUICK = Settings(n_iter=3, batch_size=10, gibbs_steps=2)


def fresh(settings, depth=None, labels=0, seed=0, dtype=torch.float32):
    depth = Infinite() if depth is None else depth
    size = 1 if isinstance(depth, Infinite) else 5
    machine = initial_machine(depth, 8, n_components=size, n_classes=labels, seed=seed, dtype=dtype)
    return TrainingState.start(machine, settings, seed)


def trained(settings=QUICK, labels=0, seed=0, depth=None, callbacks=(), **more):
    state = fresh(settings, depth, labels, seed)
    return Trainer(state, X, Y if labels else None, settings=settings, callbacks=callbacks, **more).run()


def all_tensors(state):
    parts = {"machine": state.machine, "optimizer": state.optimizer, "chains": state.chains}
    return {f"{part}.{n}": t for part, value in parts.items() for n, t in value.tensors().items()} | {
        "sums": state.sums
    }


def without_seconds(history):
    return [{n: v for n, v in asdict(report).items() if n != "seconds"} for report in history]


def assert_same_state(a, b):
    """Bit by bit, but for the time it took."""
    ours, theirs = all_tensors(a), all_tensors(b)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    assert (a.seed, a.step, a.epoch, a.batch) == (b.seed, b.step, b.epoch, b.batch)
    assert without_seconds(a.history) == without_seconds(b.history)


# -- reports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 8), (8,), (3, 5)])
def test_examples_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"X must have the shape \(n, 8\) with n >= 1, got"):
        Trainer(fresh(QUICK), torch.zeros(shape), settings=QUICK)


def test_iterating_yields_one_report_an_epoch():
    state = fresh(QUICK)
    reports = list(trainer := Trainer(state, X, settings=QUICK))
    assert reports == state.history
    assert [(r.epoch, r.step) for r in reports] == [(1, 7), (2, 14), (3, 21)]
    assert [r.learning_rate for r in reports] == [0.05] * 3
    assert reports[-1].n_components == int(state.machine.size)
    assert all(r.seconds > 0 for r in reports)
    assert list(trainer) == []  # it is over


def test_a_report_a_time():
    """The trainer does nothing ahead: between reports the state can be looked at."""
    state = fresh(QUICK)
    for n, report in enumerate(Trainer(state, X, settings=QUICK), start=1):
        assert (state.epoch, state.step, report.epoch) == (n, 7 * n, n)


@pytest.mark.parametrize(
    ("labels", "y", "objective", "words"),
    [
        (3, None, "generative", "y must hold a class in 0..2"),
        (3, Y[:-1], "generative", r"y must be int64 and have the shape \(70,\)"),
        (3, Y.float(), "generative", "got torch.float32"),
        (3, Y - 1, "discriminative", "y must be in 0..2, got -1 to"),
        (3, Y + 1, "hybrid", "y must be in 0..2, got 1 to 3"),
        (0, Y, "generative", "y must be None"),
        (0, None, "discriminative", "objective must be 'generative' .* got 'discriminative'"),
    ],
)
def test_labels_that_do_not_fit_are_refused_before_any_work(labels, y, objective, words):
    settings = replace(QUICK, objective=objective)
    with pytest.raises(ValueError, match=words):
        Trainer(fresh(settings, labels=labels), X, y, settings=settings)


@pytest.mark.parametrize("depth", ["fixed", "ordered", "infinite"])
@pytest.mark.parametrize("labels", [0, 3])
def test_the_figures_of_a_report(depth, labels, monkeypatch):
    """With the updates left out, mean depth, effective size and reconstruction error can be enumerated."""
    monkeypatch.setattr(optim, "update_", lambda *_: None)
    small = random_small(np.random.default_rng(4), depth=depth, labels=labels)
    settings = Settings(n_iter=2, batch_size=30, regroup=None, max_components=4, gibbs_steps=1)
    v = X[:, :4]
    state = TrainingState.start(as_machine(small), settings, 0)
    reports = list(Trainer(state, v, Y if labels else None, settings=settings))
    truth, states = enumerate_all(small), v.numpy() @ [8, 4, 2, 1]
    label = Y.numpy() if labels else np.zeros(70, int)
    likeliest = truth.w[states, label, :4].argmax(1) + 1
    for epoch, report in enumerate(reports):
        assert report.mean_z == pytest.approx(likeliest.mean(), rel=1e-12)
        shuffled = np.random.default_rng(np.random.SeedSequence([0, 1, epoch])).permutation(70)
        largest = [likeliest[shuffled[first : first + 24]].max() for first in (0, 24, 48)]
        assert report.effective_size == pytest.approx(np.mean(largest), rel=1e-12)
        last = shuffled[48:]
        p_h = truth.on[states[last], label[last]] / truth.w[states[last], label[last]].sum(-1, keepdims=True)
        p_v = 1 / (1 + np.exp(-(small.b + p_h @ small.W[small.order])))
        assert report.reconstruction_error == pytest.approx(np.abs(v.numpy()[last] - p_v).mean(), rel=1e-10)
        assert report.regrouped == 0


def test_the_rate_of_a_report_decays():
    state = trained(Settings(n_iter=2, batch_size=10, gibbs_steps=1, optimizer="decay", learning_rate=0.1))
    assert [r.learning_rate for r in state.history] == pytest.approx([0.1 / 1.007, 0.1 / 1.014])


def test_every_example_is_seen_once_an_epoch_in_even_batches(monkeypatch):
    seen = []
    real = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, rows, *rest: seen.append(rows) or real(self, rows, *rest))
    trained(Settings(n_iter=2, batch_size=32, gibbs_steps=1))
    assert [len(rows) for rows in seen] == [24, 24, 22] * 2
    first, second = torch.cat(seen[:3]), torch.cat(seen[3:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(70))
    assert first.tolist() != second.tolist()
    assert first.tolist() != list(range(70))


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64, torch.int64])
def test_the_type_of_the_examples_does_not_matter(kind):
    state = fresh(QUICK)
    Trainer(state, X.to(kind), settings=QUICK).run()
    assert_same_state(state, trained())


# -- callbacks ----------------------------------------------------------------------------------------------


class Recorder(Callback):
    def __init__(self, name, log, stop_at=None):
        self.name, self.log, self.stop_at = name, log, stop_at

    def note(self, what, trainer):
        self.log.append((self.name, what, trainer.state.step, trainer.state.epoch))

    def after_segment(self, trainer):
        self.note("segment", trainer)
        if trainer.state.step == self.stop_at:
            trainer.stop()

    def after_epoch(self, trainer, report):
        assert report is trainer.state.history[-1]
        assert trainer.state.batch == 0
        self.note("epoch", trainer)

    def after_stop(self, trainer):
        self.note("stop", trainer)


def test_callbacks_are_called_in_their_order():
    log = []
    settings = Settings(n_iter=2, batch_size=1, gibbs_steps=1, max_components=3)
    trained(settings, callbacks=[Recorder("a", log), Recorder("b", log)])
    events = [("segment", 0, 0), ("segment", 32, 0), ("segment", 64, 0), ("epoch", 70, 1)]
    events += [("segment", 96, 1), ("segment", 128, 1), ("epoch", 140, 2)]
    assert log == [(name, *event) for event in events for name in "ab"]


def test_a_stop_is_told_where_it_happens():
    log = []
    settings = Settings(n_iter=2, batch_size=1, gibbs_steps=1, max_components=3)
    state = trained(settings, callbacks=[Recorder("a", log, stop_at=32), Recorder("b", log)])
    # The step in progress is ended.
    assert log[-4:] == [("a", "segment", 32, 0), ("b", "segment", 32, 0), ("a", "stop", 33, 0), ("b", "stop", 33, 0)]
    assert (state.step, state.epoch, state.batch, state.history) == (33, 0, 33, [])


class Scripted:
    """A score for each epoch, and copies of the machines it was asked about."""

    def __init__(self, *scores):
        self.scores, self.machines = scores, []

    def __call__(self, machine):
        self.machines.append({n: t.clone() for n, t in machine.tensors().items()})
        return self.scores[len(self.machines) - 1]


@pytest.mark.parametrize(
    ("scores", "patience", "ended", "best"),
    [
        ([1, 2, 3, 2, 2, 9, 9, 9], 2, 5, 3),
        ([1, 2, 3, 2, 4, 3, 3, 9], 2, 7, 5),
        ([5, 5, 5, 9, 9, 9, 9, 9], 1, 2, 1),
        ([1, 2, 3, 4, 5, 6, 7, 8], 1, 8, 8),
        ([-math.inf, math.nan, -3, -4, -4, -4, -4, -4], 3, 6, 3),
        ([math.nan, -3, -4, -4, -4, -4, -4, -4], 3, 5, 2),
        ([1, 2, 3, 2, 2, 2, 2, 2], None, 8, 3),
    ],
)
def test_early_stopping_stops_after_its_patience(scores, patience, ended, best):
    stopping = EarlyStopping(Scripted(*scores), patience=patience)
    state = trained(Settings(n_iter=8, batch_size=10, gibbs_steps=1), callbacks=[stopping])
    assert state.epoch == len(state.history) == ended
    assert (state.best.epoch, state.best.score) == (best, scores[best - 1])
    assert int(state.best.machine.capacity) == state.history[best - 1].n_components
    np.testing.assert_array_equal([row.validation_score for row in state.history], scores[:ended])


@pytest.mark.parametrize("labels", [0, 3])
def test_early_stopping_keeps_the_best_machine(labels):
    score = Scripted(1, 3, 2, 2, 2)
    stopping = EarlyStopping(score, patience=3)
    state = trained(Settings(n_iter=8, batch_size=10, gibbs_steps=1), labels=labels, callbacks=[stopping])
    best, size = score.machines[1], state.best.machine.capacity
    assert int(state.best.machine.size) == size
    for name, tensor in state.best.machine.tensors().items():
        rows = size if name in ("weights", "hidden_bias", "order", "label_weights") else None
        assert torch.equal(tensor, best[name] if rows is None else best[name][:rows]), name


@pytest.mark.parametrize("labels", [0, 3])
def test_averaging_changes_what_is_kept_and_nothing_of_the_training(labels):
    score = Scripted(1, 2, 3)
    plain, averaged = (
        trained(labels=labels),
        trained(replace(QUICK, averaging=9), labels, callbacks=[EarlyStopping(score)]),
    )
    for name, tensor in plain.machine.tensors().items():
        assert torch.equal(averaged.machine.tensors()[name], tensor), name
        same = torch.equal(averaged.kept.tensors()[name], tensor)
        assert same != tensor.is_floating_point(), name  # sizes and order are the last ones
    for name, tensor in averaged.kept.tensors().items():
        assert torch.equal(score.machines[-1][name], tensor), name
    assert torch.equal(averaged.best.machine.visible_bias, averaged.kept.visible_bias)
    assert plain.kept.weights is plain.machine.weights


def test_early_stopping_refuses_no_patience():
    with pytest.raises(ValueError, match="patience must be None or >= 1, got 0"):
        EarlyStopping(lambda machine: 0.0, patience=0)


# -- stopping and going on ----------------------------------------------------------------------------------


class StopAt(Trainer):
    """Told to stop while a given step is in progress, as by a signal."""

    at = -1

    def step(self, *batch):
        super().step(*batch)
        if self.state.step == self.at:
            self.stop()


VARIANTS = {
    "pcd": {},
    "cd": {"persistent": False},
    "sampled": {"gradient": "sampled", "n_chains": 7},
    "momentum": {"momentum": True, "optimizer": "constant", "regroup": 0.8},
    "decay": {"optimizer": "decay", "regroup": None},
    "averages": {"averaging": 9},
    "labels": {"objective": "generative"},
    "discriminative": {"objective": "discriminative"},
    "hybrid": {"objective": "hybrid"},
}


@pytest.mark.parametrize("at", [1, 20, 32, 34, 35, 50])
@pytest.mark.parametrize("variant", ["pcd", "momentum", "averages", "hybrid"])
def test_stopping_anywhere_and_going_on_changes_nothing(variant, at):
    labels = 3 if variant == "hybrid" else 0
    settings = Settings(n_iter=4, batch_size=4, gibbs_steps=1, **VARIANTS[variant])  # 18 batches an epoch
    whole = trained(settings, labels)
    state = fresh(settings, labels=labels)
    first = StopAt(state, X, Y if labels else None, settings=settings)
    first.at = at
    first.run()
    assert state.step == at
    Trainer(state, X, Y if labels else None, settings=settings).run()
    assert_same_state(state, whole)


@pytest.mark.parametrize("more", [1, 40])
def test_the_capacity_that_a_state_comes_with_does_not_matter(more):
    settings = Settings(n_iter=4, batch_size=4, gibbs_steps=1, averaging=9)
    state = fresh(settings)
    first = StopAt(state, X, settings=settings)
    first.at = 20
    first.run()
    state.machine = state.machine.with_capacity(state.machine.capacity + more)
    state.optimizer = state.optimizer.with_capacity(state.machine.capacity)
    Trainer(state, X, settings=settings).run()
    assert_same_state(state, trained(settings))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(variant):
    labels = 3 if variant in ("labels", "discriminative", "hybrid") else 0
    settings = replace(QUICK, **VARIANTS[variant])
    first, again, other = (trained(settings, labels, seed) for seed in (0, 0, 1))
    assert_same_state(first, again)
    assert not torch.equal(first.machine.weights[:5], other.machine.weights[:5])
    assert not torch.equal(first.machine.visible_bias, other.machine.visible_bias) or variant == "discriminative"


def test_the_seed_reaches_the_steps():
    """Equal examples and CD: neither the order of the examples nor chains can tell two seeds apart."""
    settings = replace(QUICK, persistent=False)
    found = []
    for seed in (0, 1):
        state = fresh(settings, seed=seed)
        Trainer(state, X[:1].repeat(70, 1), settings=settings).run()
        found.append(state.machine.weights[:2])
    assert not torch.equal(*found)


@pytest.mark.parametrize("depth", [Fixed(), Ordered(), Infinite()])
def test_the_number_of_epochs_asked_for_does_not_matter(depth):
    long = trained(replace(QUICK, n_iter=7), depth=depth)
    state = fresh(replace(QUICK, n_iter=2), depth)
    Trainer(state, X, settings=replace(QUICK, n_iter=2)).run()
    Trainer(state, X, settings=QUICK).run()
    Trainer(state, X, settings=QUICK, n_iter=7).run()
    assert_same_state(state, long)


@pytest.mark.parametrize("objective", ["generative", "hybrid"])
def test_one_thread_and_two_agree_after_a_step(objective):
    """To rounding: a float64 machine, where no uniform falls between the two roundings of a probability."""
    rng = np.random.default_rng(0)
    v, y = torch.from_numpy((rng.random((200, 300)) < 0.3).astype(np.uint8)), torch.arange(200) % 4
    settings = Settings(n_iter=1, batch_size=200, gibbs_steps=3, objective=objective)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            machine = initial_machine(Ordered(), 300, n_components=400, n_classes=4, dtype=torch.float64)
            found.append(Trainer(TrainingState.start(machine, settings, 0), v, y, settings=settings).run())
    finally:
        torch.set_num_threads(before)
    for name, tensor in all_tensors(found[0]).items():
        torch.testing.assert_close(all_tensors(found[1])[name], tensor, rtol=1e-9, atol=1e-12, msg=name)
    assert found[0].machine.weights.abs().sum() > 1


# -- divergence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adagrad", "constant"])
@pytest.mark.parametrize("depth", [Fixed(), Infinite()])
def test_a_run_that_diverges_says_so_and_leaves_the_last_good_checkpoint(depth, optimizer, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    good = Settings(n_iter=2, batch_size=10, gibbs_steps=1, max_norm=None, optimizer=optimizer)
    state = trained(good, depth=depth, callbacks=[Checkpointer(path, seconds=0)])
    kept = path.read_bytes()
    wild = replace(good, n_iter=40, learning_rate=1e38)
    with pytest.raises(DivergenceError, match=r"have run away by step \d+: lower learning_rate \(now 1e\+38\)"):
        Trainer(state, X, settings=wild, callbacks=[Checkpointer(path, seconds=0)]).run()
    loaded, settings = checkpoint.load(path)
    assert all(torch.isfinite(t).all() for t in loaded.machine.tensors().values())
    # The wild run got through its first epochs or none: what it left is good either way.
    assert loaded.step >= 14
    assert (path.read_bytes() == kept) == (settings == good)


def test_a_rate_of_1e30_diverges():
    with pytest.raises(DivergenceError):
        trained(Settings(n_iter=20, batch_size=10, gibbs_steps=1, max_norm=None, learning_rate=1e30))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["weights", "hidden_bias", "visible_bias"])
def test_any_parameter_that_is_not_finite_is_found_before_callbacks_see_it(name, value):
    state = fresh(QUICK, Fixed())
    getattr(state.machine, name).view(-1)[2] = value
    log = []
    with pytest.raises(DivergenceError):
        Trainer(state, X, settings=QUICK, callbacks=[Recorder("a", log)]).run()
    assert log == []


# -- capacity -----------------------------------------------------------------------------------------------


class Capacities(Callback):
    def __init__(self):
        self.seen = []

    def after_segment(self, trainer):
        self.seen.append((trainer.state.step, int(trainer.machine.size), trainer.machine.capacity))


@pytest.mark.parametrize("ahead", [False, True], ids=["seen at once", "seen late"])
@pytest.mark.parametrize("start", [1, 31, 32, 33, 100])
def test_the_capacity_has_room_for_all_that_can_grow(start, ahead, monkeypatch):
    """A machine that grows in every step: a unit a step, none held back by the capacity, however late the looks."""

    def always(size, z_pos, z_neg, limit):
        size.add_((size < limit).long())

    monkeypatch.setattr(growth, "update_", always)
    settings = Settings(n_iter=2, batch_size=1, gibbs_steps=1)
    state = TrainingState.start(initial_machine(Infinite(), 8, n_components=start), settings, 0)
    watch = Capacities()

    def run(n_iter):
        trainer = Trainer(state, X, settings=settings, callbacks=[watch], n_iter=n_iter)
        assert not trainer._looks_ahead  # on a CPU
        trainer._looks_ahead = ahead
        trainer.run()

    run(2)
    assert int(state.machine.size) == start + 140
    assert [step for step, _, _ in watch.seen] == [0, 32, 64, 96, 128]
    for step, size, capacity in watch.seen:
        assert size == start + step
        looked = max(start, size - SEGMENT) + 2 * SEGMENT if ahead else size + 1
        assert looked <= capacity < looked + CAPACITY_UNIT
        assert capacity % CAPACITY_UNIT == 0
    # Growth had to be possible in the odd steps after a stop and a start too.
    run(3)
    assert int(state.machine.size) == start + 210


@pytest.fixture
def growing(monkeypatch):
    """Every step adds a unit, where there is room for it."""
    monkeypatch.setattr(growth, "update_", lambda size, z_pos, z_neg, limit: size.add_((size < limit).long()))


class Steps(Trainer):
    """Looks late, as on a GPU; notes the capacity of each step, and stops after some of them."""

    def __init__(self, *args, seen, stops=(), **more):
        super().__init__(*args, **more)
        self._looks_ahead, self.seen, self.stops = True, seen, stops

    def step(self, rows):
        self.seen.append((self.state.step, self.machine.capacity))
        super().step(rows)
        if self.state.step in self.stops:
            self.stop()


@pytest.mark.parametrize("stops", [(1,), (31, 33), (32,), (45, 63), (64, 65, 130), (96, 97)])
def test_a_run_that_was_stopped_has_the_capacities_of_one_that_was_not(stops, monkeypatch):
    """Where the size is seen late, too: what was seen before the stop is worked out anew, from the ages of units."""

    def sometimes(size, z_pos, z_neg, limit):
        calls.append(None)
        size.add_(((size < limit) & torch.tensor(len(calls) % 3 == 0 or 25 < len(calls) < 60)).long())

    monkeypatch.setattr(growth, "update_", sometimes)
    settings = Settings(n_iter=3, batch_size=1, gibbs_steps=1)
    whole, parts, calls = [], [], []
    Steps(fresh(settings), X, settings=settings, seen=whole).run()
    calls, state = [], fresh(settings)
    for at in (*stops, None):
        Steps(state, X, settings=settings, seen=parts, stops=(at,)).run()
        assert at is None or state.step == at
    assert parts == whole
    assert len({capacity for _, capacity in whole}) >= 3


def test_what_runs_away_is_noticed_a_segment_late_where_looks_are_but_is_in_no_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    settings = Settings(n_iter=3, batch_size=1, gibbs_steps=1)

    class Spoiled(Steps):
        def step(self, rows):
            super().step(rows)
            if self.state.step == 40:
                self.machine.hidden_bias[0] = math.nan

    for callbacks, noticed in ([], 70), ([Checkpointer(path, seconds=0)], 64):
        trainer = Spoiled(fresh(settings), X, settings=settings, seen=[], callbacks=callbacks)
        with pytest.raises(DivergenceError, match=f"by step {noticed}"):
            trainer.run()
    assert checkpoint.load(path)[0].step == 32


def test_trainers_that_take_turns_on_a_state_make_room_for_what_the_others_grew(growing):
    """What one saw before its last turn is long past."""
    settings = Settings(n_iter=9, batch_size=1, gibbs_steps=1)
    state = fresh(settings)
    one, other = (Steps(state, X, settings=settings, seen=[]) for _ in range(2))
    for turn in (one, other, other, other, one):
        turn.run_epoch()
    assert int(state.machine.size) == 1 + 5 * 70


@pytest.mark.parametrize("bound", [1, 150])
def test_a_machine_beyond_a_bound_set_later_trains_on_at_its_size(bound, growing):
    """Seen late, too: the last look is of fewer units than the machine has."""
    free = Settings(n_iter=2, batch_size=1, gibbs_steps=1)
    state = TrainingState.start(initial_machine(Infinite(), 8, n_components=32), free, 0)
    Steps(state, X, settings=free, seen=[]).run()
    Steps(state, X, settings=replace(free, n_iter=4, max_components=bound), seen=[]).run()
    assert int(state.machine.size) == 32 + 140


@pytest.fixture
def graphs(monkeypatch):
    """What would be recorded and replayed on a GPU, by name."""
    did = []

    class Graph:
        def __init__(self, step, rows, noise, before):
            did.append("recorded")

        def replay(self, rows):
            did.append("replayed")

    monkeypatch.setattr("irbm.training.trainer.StepGraph", Graph)
    return did


def graphed(trainer, n_steps):
    trainer._noise.reseed(0)
    for _ in range(n_steps):
        trainer._graphed_step(torch.arange(10), None)


def other_settings(trainer):
    trainer.settings = replace(QUICK, learning_rate=0.5)


def other_machine(trainer):
    trainer.state.machine = replace(trainer.machine)


def other_chains(trainer):
    trainer.state.chains = replace(trainer.state.chains, v_ND=trainer.state.chains.v_ND.clone())


def other_sums(trainer):
    trainer.state.sums = trainer.state.sums.clone()


def other_examples(trainer):
    trainer.X = trainer.X.clone()


CHANGES = {
    "room": lambda trainer: trainer._make_room(100, 1),
    "machine": other_machine,
    "optimiser": lambda trainer: trainer.state.suit_(QUICK),
    "chains": other_chains,
    "sums": other_sums,
    "settings": other_settings,
    "examples": other_examples,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_recorded_step_is_not_replayed_on_what_has_changed_since(change, graphs):
    """It is of tensors that nobody trains any more, or of numbers that nobody wants."""
    one = Trainer(fresh(QUICK), X, settings=QUICK)
    graphed(one, FIRST_RECORDED + 2)
    assert graphs == ["recorded", "replayed", "replayed"]
    change(one)
    graphed(one, 1)  # as it is
    assert graphs == ["recorded", "replayed", "replayed"]
    graphed(one, 2)
    assert graphs[3:] == ["recorded", "replayed", "replayed"]


def test_nothing_is_recorded_for_few_steps(graphs):
    """As where a stream of batches is learned from one by one, each by a trainer of its own."""
    state = fresh(QUICK)
    for _ in range(3):
        graphed(Trainer(state, X, settings=QUICK), FIRST_RECORDED)
    assert graphs == []


def test_a_machine_put_in_another_ones_place_is_seen_anew(growing):
    """As the size is seen late on a GPU: what was seen of the machine before says nothing of this one."""
    settings = Settings(n_iter=3, batch_size=1, gibbs_steps=1)

    class Swapped(Steps):
        def step(self, rows):
            super().step(rows)
            if self.state.step == SEGMENT + 1:
                other = TrainingState.start(initial_machine(Infinite(), 8, n_components=400), settings, 1)
                self.state.machine, self.state.optimizer = other.machine.with_capacity(512), other.optimizer
                self.state.optimizer = self.state.optimizer.with_capacity(512)

    trained = Swapped(fresh(settings), X, settings=settings, seen=[])
    trained.run()
    assert int(trained.machine.size) == 400 + 3 * 70 - (SEGMENT + 1)


def test_a_state_of_a_cpu_has_room_on_a_gpu_before_the_first_look(growing):
    """A CPU makes room for one unit at a time, and a GPU looks at the size in every 32nd step alone."""
    settings = Settings(n_iter=2, batch_size=1, gibbs_steps=1)

    class Stopped(Trainer):
        def step(self, rows):
            super().step(rows)
            if self.state.step == 40:
                self.stop()

    state = fresh(settings)
    Stopped(state, X, settings=settings).run()
    assert state.step == 40
    Steps(state, X, settings=settings, seen=[]).run()
    assert int(state.machine.size) == 1 + 140
