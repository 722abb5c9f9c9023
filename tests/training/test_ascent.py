"""Learning itself: exact gradients climb the exact likelihood, and sampled ones end where the exact ones do."""

import numpy as np
import pytest
import torch

from brute import visible_states
from irbm.models import Gradients, Machine
from irbm.training import Settings, Trainer, TrainingState
from machines import as_machine, random_small

STATES = torch.tensor(visible_states(4))
KINDS = [("fixed", "constant")] + [(d, p) for d in ("ordered", "infinite") for p in ("constant", "softplus")]
RATE, STEPS = 0.3, 200


def examples(n=40):
    """Three patterns of four bits with a tenth of the bits flipped: far from independent, and skewed."""
    rng = np.random.default_rng(0)
    patterns = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1]])
    return torch.tensor(patterns[rng.choice(3, n, p=[0.5, 0.3, 0.2])] ^ (rng.random((n, 4)) < 0.03)).double()


def log_likelihood(machine, v):
    return float((-machine.free_energy(v)).mean() - torch.logsumexp(-machine.free_energy(STATES), 0))


def exact_gradient(machine, v):
    """Data less model, the model's expectation being a sum over all sixteen states."""
    p = torch.softmax(-machine.free_energy(STATES), 0)
    data = machine.free_energy_gradients(v)
    model = [machine.free_energy_gradients(state[None]) for state in STATES]
    parts = zip(data, *model, strict=True)
    return Gradients(*(None if d is None else d - sum(w * m for w, m in zip(p, ms, strict=True)) for d, *ms in parts))


def first_machine(depth, penalty):
    small = random_small(np.random.default_rng(1), depth=depth, penalty=penalty, scale=0.3, beta=1.01)
    return as_machine(small)


def climbed(depth, penalty, steps):
    """The exact log-likelihood before and after every step of plain ascent, full batch."""
    machine, v = first_machine(depth, penalty), examples()
    heights = [log_likelihood(machine, v)]
    for _ in range(steps):
        for name, g in exact_gradient(machine, v)._asdict().items():
            if g is not None:
                getattr(machine, name).sub_(RATE * g)
        heights.append(log_likelihood(machine, v))
    return np.array(heights)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def climb(request):
    return *request.param, climbed(*request.param, STEPS)


def test_exact_gradients_climb_in_every_step(climb):
    *_, heights = climb
    assert (np.diff(heights) > 0).all()
    assert heights[-1] > heights[0] + 0.6  # not just the first inch


def test_pcd_ends_where_exact_ascent_does(climb):
    """The trainer with persistent chains, the same start, rate and number of steps, without regrouping or growth.

    A gradient from N = 300 chains has a variance below 1/4N in each of P = 24 parameters, of which ascent at rate r
    keeps r / 2 as lost likelihood: r P / 8 N = 0.003 nats. What is lost while still climbing, and to chains that lag
    behind, adds to it: 20 runs ended 0.010 below to 0.002 above exact climbs of 0.64 to 0.72 nats. 0.03 is three
    times that.
    """
    depth, penalty, heights = climb
    machine, v = first_machine(depth, penalty), examples()
    settings = Settings(
        n_iter=STEPS, batch_size=len(v), learning_rate=RATE, optimizer="constant", gibbs_steps=5, n_chains=300,
        regroup=None, max_components=4, l1=0.0, max_norm=None,
    )  # fmt: skip
    state = Trainer(TrainingState.start(machine, settings, 0), v, settings=settings).run()
    assert int(state.machine.size) == 4
    assert log_likelihood(state.machine, v) == pytest.approx(heights[-1], abs=0.03)


def test_a_frozen_chain_would_be_seen(monkeypatch):
    """The same with chains that never move: the comparison above can fail."""
    monkeypatch.setattr(Machine, "gibbs", lambda self, v, y, *_, **__: (v, y))
    machine, v = first_machine("infinite", "constant"), examples()
    settings = Settings(
        n_iter=100, batch_size=len(v), learning_rate=RATE, optimizer="constant", max_components=4, regroup=None
    )
    state = Trainer(TrainingState.start(machine, settings, 0), v, settings=settings).run()
    assert log_likelihood(state.machine, v) < climbed("infinite", "constant", 100)[-1] - 0.1
