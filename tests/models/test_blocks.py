"""A step in blocks against the machine's own sweeps and gradients."""

import pytest
import torch

from irbm.models import Fixed, Infinite, Machine, Ordered, blocks
from irbm.ops import compiled
from irbm.ops.noise import CountedStream, stream
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.initial import initial_machine

pytestmark = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")

DEPTHS = [Fixed(), Ordered(), Infinite(), Ordered(penalty="softplus"), Infinite(penalty="softplus")]
NAMES = [f"{type(d).__name__}-{getattr(d, 'penalty', '')}" for d in DEPTHS]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def padded_machine(depth, l=150, K=160, D=30):
    rng = torch.Generator().manual_seed(0)
    weights, bias = 0.5 * torch.randn(K, D, generator=rng), torch.randn(K, generator=rng)
    weights[l:], bias[l:] = 0, 0
    order = torch.cat([torch.randperm(l, generator=rng), torch.arange(l, K)])
    return Machine(weights, bias, torch.randn(D, generator=rng), order, torch.tensor(l), depth)


def binary(n, D, seed):
    return (torch.rand(n, D, generator=torch.Generator().manual_seed(seed)) < 0.4).float()


def seeded(*key):
    noise = stream("cpu")
    noise.reseed(*key)
    return noise


def run(machine, n, N, n_steps, *, sampled=False):
    """A step from random rows, and what it found; then which rows are the data's and which the samples'."""
    step, chains = blocks.Step.of(machine, n + N), binary(N, 30, 2)
    found = step.gradients_(
        binary(n, 30, 1), chains, seeded(1), n_steps, last=chains, sampled=sampled, capacity=machine.capacity
    )
    data, model = step.positive_R, ~step.positive_R
    assert torch.equal(chains, step.v_RD[model])
    assert torch.equal(binary(n, 30, 1), step.v_RD[data])
    return step, found, data, model


@pytest.mark.parametrize(("n", "N"), [(1, 1), (70, 70), (30, 200)])
@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
def test_gradients_are_exact_given_the_samples(depth, n, N):
    """Against the closed form in float64; the samples are those of the last rows."""
    machine = padded_machine(depth)
    step, found, *rows = run(machine, n, N, 2)
    exact = machine.to(dtype=torch.float64)
    data, model = (exact.free_energy_gradients(step.v_RD[some].double()) for some in rows)
    for name in ("weights", "hidden_bias", "visible_bias"):
        expected = getattr(data, name) - getattr(model, name)
        torch.testing.assert_close(getattr(found, name).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
def test_gradients_at_the_sampled_z(depth):
    machine = padded_machine(depth)
    step, found, *rows = run(machine, 70, 70, 1, sampled=True)
    exact = machine.to(dtype=torch.float64)
    data, model = (exact.free_energy_gradients(step.v_RD[some].double(), z_B=step.z_R[some]) for some in rows)
    for name in ("weights", "hidden_bias", "visible_bias"):
        expected = getattr(data, name) - getattr(model, name)
        torch.testing.assert_close(getattr(found, name).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
def test_sweeps_are_the_machines_own(depth):
    """The same draws through ``Machine.gibbs``; z and its mode through ``Machine.hidden``."""
    machine, start = padded_machine(depth, K=150), binary(130, 30, 2)
    step, _, _, model = run(machine, 130, 130, 3)
    swept, z, mode, differing = step.v_RD[model], step.z_R[model], step.mode_R[model], 0
    for rows, noise in zip((slice(0, 43), slice(43, 86), slice(86, 130)), seeded(1).parts(3), strict=True):
        v, _ = machine.gibbs(start[rows], None, noise, 3)
        differing += int((v != swept[rows]).any(1).sum())
        hidden = machine.hidden(swept[rows], None, noise)  # draws for the chains' rows before those of the examples'
        differing += int((hidden.z_B != z[rows]).sum())
        assert torch.equal(hidden.mode_B, mode[rows])
    assert differing <= 2  # products of other shapes round otherwise, and a uniform may lie in between


def test_padding_has_no_gradient():
    machine = padded_machine(Infinite())
    _, found, *_ = run(machine, 10, 10, 1)
    assert found.weights.shape == machine.weights.shape
    assert not found.weights[150:].any()
    assert not found.hidden_bias[150:].any()
    assert found.weights[:150].any(1).all()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_run_is_the_same_for_any_number_of_threads(persistent, threads):
    """Every bit of it, growth included."""
    X, runs = binary(150, 40, 3), []
    settings = Settings(n_iter=3, batch_size=75, gibbs_steps=2, persistent=persistent)
    for n in (1, 2, 3):
        threads(n)
        state = TrainingState.start(initial_machine(Infinite(), 40, n_components=200), settings, 0)
        runs.append(Trainer(state, X, settings=settings).run())
    for run in runs[1:]:
        assert int(run.machine.size) == int(runs[0].machine.size)
        assert all(torch.equal(t, run.machine.tensors()[name]) for name, t in runs[0].machine.tensors().items())


def test_parts_of_a_stream_share_nothing():
    noise = seeded(5)
    first = noise.parts(3)
    drawn = [part(100) for part in (noise, *first, *noise.parts(3))]
    values = torch.cat(drawn).tolist()
    assert len(set(values)) > 690  # of 700, in 24 bits
    assert isinstance(first[0], CountedStream)
    again = seeded(5).parts(3)[1]
    assert torch.equal(again(100), drawn[2])
