"""Update rules against a loop over units in NumPy, written from SPEC section 3."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from irbm.models import Gradients, Infinite
from irbm.training import Settings, Trainer, TrainingState, optim
from irbm.training.initial import initial_machine
from machines import as_machine, random_small

BY_UNIT = ("weights", "hidden_bias", "label_weights")
NAMES = (*BY_UNIT, "visible_bias", "label_bias")


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch):
    """Ten updates, so that short runs see both sides of the warm-up."""
    monkeypatch.setattr(optim, "WARM_UP", dict.fromkeys(optim.WARM_UP, 10))


class Reference:
    """One unit after the other, one number after the other where it matters."""

    def __init__(self, parameters, settings):
        self.p = {name: array.copy() for name, array in parameters.items()}
        self.squares = {name: np.zeros_like(array) for name, array in parameters.items()}
        self.velocity = {name: np.zeros_like(array) for name, array in parameters.items()}
        self.age = np.zeros(len(parameters["hidden_bias"]), int)
        self.t = 0
        self.s = settings

    def step(self, gradients, size):
        s = self.s
        rate = s.learning_rate / (1 + self.t / 1000) if s.optimizer == "decay" else s.learning_rate
        for name, parameter in self.p.items():
            if name in BY_UNIT:
                for i in range(size):
                    self.move(name, i, gradients[name][i], rate, self.age[i], plain=self.age[i] < 10)
            else:
                self.move(name, slice(None), gradients[name], rate, self.t, plain=False)
            if name in ("weights", "label_weights"):
                threshold = rate * s.l1
                bound = s.max_norm if name == "weights" else s.label_max_norm
                for i in range(size):
                    row = parameter[i]
                    for j, w in enumerate(row):
                        row[j] = math.copysign(max(abs(w) - threshold, 0.0), w)
                    norm = math.sqrt(sum(w * w for w in row))
                    if bound is not None and norm > bound:
                        row *= bound / norm
        self.age[:size] += 1
        self.t += 1

    def move(self, name, at, g, rate, age, plain):
        s = self.s
        if name in ("weights", "label_weights"):
            g = g + s.l2 * self.p[name][at]
        self.squares[name][at] += g * g
        move = rate * g
        if s.optimizer == "adagrad" and not plain:
            move = rate * g / (np.sqrt(self.squares[name][at]) + 1e-8)
        if s.momentum:
            mu = 0.5 + 0.4 * min(age / 1000, 1.0)
            move = mu * self.velocity[name][at] + move
            self.velocity[name][at] = move
        self.p[name][at] = self.p[name][at] - move


def labelled(capacity=7, size=4, scale=1.0):
    small = random_small(np.random.default_rng(2), depth="infinite", labels=3, n_hidden=size, scale=scale)
    return as_machine(small).with_capacity(capacity)


def arrays(machine):
    return {name: getattr(machine, name).numpy().copy() for name in NAMES}


def random_gradients(machine, rng):
    """As the machine gives them: nothing for padding. Some are exactly zero, as for pixels that are never on."""
    out = {}
    for name in NAMES:
        g = rng.normal(size=getattr(machine, name).shape) * 0.3
        g[..., 0] = 0.0 if name == "weights" else g[..., 0]
        if name in BY_UNIT:
            g[int(machine.size) :] = 0.0
        out[name] = g
    return out


def as_gradients(arrays):
    return Gradients(**{name: torch.from_numpy(g.copy()) for name, g in arrays.items()})


OPTIONS = [
    {},
    {"l1": 0.02},
    {"l2": 0.3},
    {"max_norm": 1.5, "label_max_norm": 0.8},
    {"l1": 0.02, "l2": 0.1, "max_norm": 2.0, "label_max_norm": None},
]


@pytest.mark.parametrize("more", OPTIONS, ids=lambda more: ",".join(more) or "plain")
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "constant", "decay"])
def test_updates_agree_with_the_loop(optimizer, momentum, more):
    """30 steps in which two units are born, compared after each: warm-ups begin at each unit's own birth."""
    plain = {"l1": 0.0, "max_norm": None, "label_max_norm": None}
    settings = Settings(optimizer=optimizer, momentum=momentum, learning_rate=0.1, **(plain | more))
    # Momentum and decay are float32 fractions of ages and steps: 6e-8 of each move, over 30 moves.
    tolerance = {"rtol": 0, "atol": 1e-6} if momentum or optimizer == "decay" else {"rtol": 1e-12, "atol": 1e-14}
    machine, rng = labelled(), np.random.default_rng(0)
    state, loop = optim.initial_state(machine, settings), Reference(arrays(machine), settings)
    for step in range(30):
        gradients = random_gradients(machine, rng)
        loop.step(gradients, int(machine.size))
        optim.update_(machine, state, as_gradients(gradients), settings)
        for name in NAMES:
            np.testing.assert_allclose(getattr(machine, name).numpy(), loop.p[name], **tolerance)
        np.testing.assert_array_equal(state.age_K.numpy(), loop.age)
        assert int(state.step) == step + 1
        if step in (6, 14):
            machine.size.add_(1)
    assert loop.age.tolist() == [30, 30, 30, 30, 23, 15, 0]


def test_adagrad_warms_up_each_new_unit_for_ten_updates():
    """A constant gradient g moves a new unit by rate g ten times, then by rate / sqrt(t)."""
    settings = Settings(learning_rate=0.1, l1=0.0, max_norm=None)
    machine = initial_machine(Infinite(), 1, dtype=torch.float64)
    state, moves = optim.initial_state(machine, settings), []
    g = torch.full((1, 1), 0.02, dtype=torch.float64)
    for _ in range(13):
        before = machine.weights.clone()
        gradients = Gradients(g, torch.zeros(1).double(), torch.full((1,), 0.02).double(), None, None)
        optim.update_(machine, state, gradients, settings)
        moves.append(float((before - machine.weights).item()))
    assert moves[:10] == pytest.approx([0.002] * 10, rel=1e-12)
    assert moves[10:] == pytest.approx([0.1 / math.sqrt(t) for t in (11, 12, 13)], rel=1e-6)
    # The visible bias is no new unit: AdaGrad from the first step.
    assert -float(machine.visible_bias) == pytest.approx(sum(0.1 / math.sqrt(t) for t in range(1, 14)), rel=1e-5)


@pytest.mark.parametrize(("step", "factor"), [(0, 1.0), (1000, 1 / 2), (9000, 1 / 10)])
def test_the_decaying_rate_falls_like_one_over_t(step, factor):
    at = torch.tensor(step)
    assert float(optim.rate(Settings(optimizer="decay", learning_rate=0.2), at)) == pytest.approx(0.2 * factor)
    assert float(optim.rate(Settings(optimizer="constant", learning_rate=0.2), at)) == 0.2
    assert float(optim.rate(Settings(optimizer="adagrad", learning_rate=0.2), at)) == 0.2


def test_momentum_rises_with_age():
    ages = torch.tensor([0, 250, 500, 1000, 10**6])
    assert optim.momentum(ages).tolist() == pytest.approx([0.5, 0.6, 0.7, 0.9, 0.9])


# -- averages -----------------------------------------------------------------------------------------------


def average_of(life, updates):
    """Of what a parameter has been: the first ones count alike, older ones than ``updates`` less and less."""
    moves = [1 / min(age, updates) for age in range(1, len(life) + 1)]
    shares = [move * math.prod(1 - later for later in moves[age:]) for age, move in enumerate(moves, 1)]
    assert sum(shares) == pytest.approx(1)
    return sum(share * value for share, value in zip(shares, life, strict=True))


@pytest.mark.parametrize("more", [{}, {"momentum": True, "optimizer": "constant"}], ids=["adagrad", "momentum"])
def test_averages_are_over_the_last_updates_of_each_unit(more):
    """30 steps in which two units are born: a unit's average knows nothing of the time before its birth."""
    settings = Settings(learning_rate=0.1, averaging=8, **more)
    machine, rng = labelled(), np.random.default_rng(0)
    state, seen = optim.initial_state(machine, settings), []
    for step in range(30):
        optim.update_(machine, state, as_gradients(random_gradients(machine, rng)), settings)
        seen.append(arrays(machine))
        if step in (6, 14):
            machine.size.add_(1)
    kept = arrays(optim.averaged(machine, state))
    for name in NAMES:
        if name in BY_UNIT:
            for unit, born in enumerate([0, 0, 0, 0, 7, 15]):
                expected = average_of([past[name][unit] for past in seen[born:]], 8)
                np.testing.assert_allclose(kept[name][unit], expected, rtol=0, atol=1e-12)
            assert not kept[name][6].any()
        else:
            np.testing.assert_allclose(kept[name], average_of([past[name] for past in seen], 8), rtol=0, atol=1e-12)
        assert np.abs(kept[name] - seen[-1][name]).max() > 1e-3


@pytest.mark.parametrize("gap", [False, True], ids=["later", "and begun anew"])
def test_averages_that_begin_later_know_nothing_of_the_time_before(gap):
    """Also those that were left off for some updates."""
    machine, rng = labelled(), np.random.default_rng(0)
    off = Settings(learning_rate=0.1)
    on = replace(off, averaging=8)
    state, seen = optim.initial_state(machine, on if gap else off), []
    for step in range(40):
        settings = on if step >= 20 or (gap and step < 5) else off
        state = optim.suited(state, machine, settings)
        if step == 20:
            np.testing.assert_array_equal(optim.averaged(machine, state).weights, machine.weights)
        optim.update_(machine, state, as_gradients(random_gradients(machine, rng)), settings)
        seen.append(arrays(machine))
        if step == 30:
            machine.size.add_(1)
    kept = arrays(optim.averaged(machine, state))
    for name in NAMES:
        whole = average_of([past[name] for past in seen[20:]], 8)
        if name in BY_UNIT:
            np.testing.assert_allclose(kept[name][:4], whole[:4], rtol=0, atol=1e-12)
            young = average_of([past[name][4] for past in seen[31:]], 8)
            np.testing.assert_allclose(kept[name][4], young, rtol=0, atol=1e-12)
        else:
            np.testing.assert_allclose(kept[name], whole, rtol=0, atol=1e-12)


def test_a_few_updates_are_averaged_alike():
    assert average_of([1.0, 2.0, 6.0], 8) == pytest.approx(3.0)
    assert average_of([0.0, 0.0, 8.0], 2) == pytest.approx(4.0)


def test_without_averages_the_machine_is_kept_as_it_is():
    machine, settings = labelled(), Settings()
    state = optim.initial_state(machine, settings)
    optim.update_(machine, state, as_gradients(random_gradients(machine, np.random.default_rng(0))), settings)
    assert not state.means
    assert optim.averaged(machine, state).weights is machine.weights


# -- what keeps weights small -------------------------------------------------------------------------------


def no_gradients(machine):
    return Gradients(*(torch.zeros_like(getattr(machine, n)) for n in Gradients._fields))


@pytest.mark.parametrize("optimizer", ["adagrad", "constant"])
def test_l1_takes_weights_to_exactly_zero_and_no_further(optimizer):
    settings = Settings(optimizer=optimizer, learning_rate=0.1, l1=0.5, max_norm=None, label_max_norm=None)
    machine = labelled()
    before, state = arrays(machine), optim.initial_state(machine, settings)
    for steps in range(1, 101):
        optim.update_(machine, state, no_gradients(machine), settings)
        for name in ("weights", "label_weights"):
            shrunk = np.maximum(np.abs(before[name]) - 0.05 * steps, 0.0)
            # The sum of a hundred thresholds of 0.05 carries a few roundings of numbers around 3.
            np.testing.assert_allclose(np.abs(getattr(machine, name).numpy()), shrunk, atol=1e-13)
    assert not machine.weights.any()
    assert not machine.label_weights.any()
    for name in ("hidden_bias", "visible_bias", "label_bias"):  # biases are not penalised
        np.testing.assert_array_equal(getattr(machine, name).numpy(), before[name])


def test_l1_makes_trained_weights_sparse():
    X = (np.random.default_rng(0).random((60, 8)) < 0.3).astype(np.uint8)
    X[:, 0] = 0  # never on
    share = {}
    for l1 in (0.0, 0.2):
        settings = Settings(n_iter=10, batch_size=20, gibbs_steps=1, l1=l1)
        state = TrainingState.start(initial_machine(Infinite(), 8), settings, 0)
        machine = Trainer(state, torch.from_numpy(X), settings=settings).run().machine
        share[l1] = float((machine.weights[: int(machine.size)] == 0).double().mean())
    assert share[0.2] > share[0.0] + 0.2


def test_max_norm_scales_long_rows_and_leaves_short_ones():
    settings = Settings(l1=0.0, max_norm=2.0, label_max_norm=1.0)
    machine = labelled()
    before = arrays(machine)
    optim.update_(machine, optim.initial_state(machine, settings), no_gradients(machine), settings)
    for name, bound in (("weights", 2.0), ("label_weights", 1.0)):
        norms = np.linalg.norm(before[name], axis=1)
        long = norms > bound
        assert long.any()
        assert (~long[:4]).any()
        now = getattr(machine, name).numpy()
        np.testing.assert_array_equal(now[~long], before[name][~long])
        np.testing.assert_allclose(np.linalg.norm(now[long], axis=1), bound, rtol=1e-14)
        np.testing.assert_allclose(now[long] / bound, before[name][long] / norms[long, None], rtol=1e-14)


def test_l2_shrinks_weights_and_no_biases():
    settings = Settings(optimizer="constant", learning_rate=0.1, l1=0.0, l2=0.5, max_norm=None, label_max_norm=None)
    machine = labelled()
    before, state = arrays(machine), optim.initial_state(machine, settings)
    for _ in range(7):
        optim.update_(machine, state, no_gradients(machine), settings)
    for name in NAMES:
        factor = 0.95**7 if name in ("weights", "label_weights") else 1.0
        np.testing.assert_allclose(getattr(machine, name).numpy(), factor * before[name], rtol=1e-13)


def test_constraints_apply_after_the_move():
    """A step that would leave the ball ends on its surface."""
    settings = Settings(optimizer="constant", learning_rate=100.0, l1=0.0, max_norm=3.0)
    machine = labelled()
    gradients = as_gradients(random_gradients(machine, np.random.default_rng(1)))
    optim.update_(machine, optim.initial_state(machine, settings), gradients, settings)
    np.testing.assert_allclose(machine.weights[:4].norm(dim=1).numpy(), 3.0, rtol=1e-13)


# -- padding and capacity -----------------------------------------------------------------------------------

X = torch.from_numpy((np.random.default_rng(0).random((60, 8)) < 0.4).astype(np.uint8))
Y = torch.arange(60) % 3


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "constant", "decay"])
@pytest.mark.parametrize("objective", ["generative", "discriminative", "hybrid"])
def test_padding_stays_zero(objective, optimizer, momentum):
    settings = Settings(
        n_iter=4, batch_size=10, gibbs_steps=1, objective=objective, optimizer=optimizer, momentum=momentum, l2=0.01
    )
    state = TrainingState.start(initial_machine(Infinite(), 8, n_classes=3), settings, 0)
    Trainer(state, X, Y, settings=settings).run()
    size, capacity = int(state.machine.size), state.machine.capacity
    assert 1 < size < capacity
    padded = {n: t for n, t in state.machine.tensors().items() if n in BY_UNIT}
    padded |= {n: t for n, t in state.optimizer.tensors().items() if n.split(".")[-1] in (*BY_UNIT, "age")}
    assert len(padded) == 3 + 1 + 3 * (optimizer == "adagrad") + 3 * momentum
    for name, tensor in padded.items():
        assert len(tensor) == capacity, name
        assert not tensor[size:].any(), name
    assert torch.equal(state.machine.order[size:], torch.arange(size, capacity))


@pytest.mark.parametrize("optimizer", ["adagrad", "constant"])
def test_the_state_survives_a_change_of_capacity(optimizer):
    """Ten steps, then a larger capacity, ten steps, a smaller one, ten steps: as if nothing had happened."""
    settings = Settings(optimizer=optimizer, momentum=True, learning_rate=0.1)
    moved, still = labelled(capacity=7), labelled(capacity=7)
    state, unmoved = optim.initial_state(moved, settings), optim.initial_state(still, settings)
    rng = np.random.default_rng(3)
    for step in range(30):
        if step in (10, 20):
            capacity = {10: 64, 20: 5}[step]
            moved, state = moved.with_capacity(capacity), state.with_capacity(capacity)
        gradients = random_gradients(still, rng)
        optim.update_(still, unmoved, as_gradients(gradients), settings)
        fitted = {n: np.zeros(getattr(moved, n).shape) for n in NAMES}
        for name, g in gradients.items():
            rows = min(len(g), len(fitted[name]))
            fitted[name][:rows] = g[:rows]
        optim.update_(moved, state, as_gradients(fitted), settings)
    again, state = moved.with_capacity(7), state.with_capacity(7)
    for name, tensor in still.tensors().items():
        assert torch.equal(again.tensors()[name], tensor), name
    assert set(state.tensors()) == set(unmoved.tensors())
    for name, tensor in unmoved.tensors().items():
        assert torch.equal(state.tensors()[name], tensor), name


def test_other_settings_keep_what_they_can_use():
    """partial_fit after set_params: squares stay with AdaGrad, velocities start at zero, ages go on."""
    machine, settings = labelled(), Settings()
    state = optim.initial_state(machine, settings)
    optim.update_(machine, state, as_gradients(random_gradients(machine, np.random.default_rng(0))), settings)
    with_momentum = optim.suited(state, machine, replace(settings, momentum=True))
    assert with_momentum.squares is state.squares
    assert set(with_momentum.velocity) == set(NAMES)
    assert not any(t.any() for t in with_momentum.velocity.values())
    assert torch.equal(with_momentum.age_K, state.age_K)
    assert optim.suited(state, machine, replace(settings, optimizer="constant")).squares == {}


@pytest.mark.parametrize(("objective", "warm_up"), [("generative", 20), ("discriminative", 10), ("hybrid", 10)])
def test_new_units_warm_up_by_the_objective(objective, warm_up, monkeypatch):
    """A gradient of 0.01: the plain rate moves a weight by 0.01 rates, AdaGrad by more."""
    monkeypatch.undo()
    machine = initial_machine(Infinite(), 2, n_classes=2)
    settings = Settings(objective=objective, learning_rate=0.1, l1=0.0)
    state = optim.initial_state(machine, settings)
    gradients = Gradients(*(torch.full_like(getattr(machine, name), 0.01) for name in Gradients._fields))
    moves = []
    for _ in range(40):
        before = machine.weights.clone()
        optim.update_(machine, state, gradients, settings)
        moves.append(float((before - machine.weights).abs().max()))
    plain = [abs(move - 0.001) < 1e-5 for move in moves]
    assert plain == [True] * warm_up + [False] * (40 - warm_up)
