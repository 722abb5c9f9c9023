"""Training on a GPU: the step agrees with the CPU's, the graph with the step, and a run with itself.

The first of these runs in Triton's interpreter too (ops/test_interpreter.py), with the kernels on the CPU.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from fresh import SEED
from interpreter import device_for_kernels
from irbm.evaluation import ais
from irbm.evaluation.paths import Base, Path
from irbm.models import Fixed, Frozen, Infinite, Ordered
from irbm.ops import dispatch, kernels, noise, products
from irbm.ops.noise import uniform_noise
from irbm.training import Settings, Trainer, TrainingState, checkpoint, growth
from irbm.training.graph import StepGraph
from irbm.training.initial import initial_machine
from irbm.training.trainer import FIRST_RECORDED, SEGMENT
from twins import undisputed

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

rng = np.random.default_rng(0)
X = torch.from_numpy((rng.random((130, 40)) < 0.4).astype(np.uint8))
Y = torch.arange(130) % 3


def tensors_of(state):
    parts = {"machine": state.machine, "optimizer": state.optimizer, "chains": state.chains}
    named = {f"{part}.{n}": t for part, value in parts.items() for n, t in value.tensors().items()}
    return {n: t.cpu().clone() for n, t in (named | {"sums": state.sums}).items()}


# -- one step against the CPU's -------------------------------------------------------------------------------------

SIZE = 45


class Handed:
    """A noise of uniforms as they come, whatever key it is seeded by; counts its calls."""

    def __init__(self, noise, device):
        self.noise, self.device, self.calls = noise, device, 0

    def reseed(self, *key):
        pass

    def __call__(self, *shape):
        self.calls += 1
        return self.noise(*shape).to(self.device)


def started(depth, settings, labels, device):
    """A machine in the midst of training: weights, and sums of squares and ages that AdaGrad divides by."""
    machine = initial_machine(depth, 40, n_components=SIZE, n_classes=labels)
    state = TrainingState.start(machine, settings, 0)
    for i, (name, tensor) in enumerate(state.machine.tensors().items()):
        if tensor.is_floating_point():
            tensor.copy_(0.6 * (uniform_noise(SEED, 5, i)(*tensor.shape) - 0.5))
            if settings.optimizer == "adagrad":
                state.optimizer.squares[name].copy_(0.01 + uniform_noise(SEED, 6, i)(*tensor.shape))
    state.optimizer.age_K.copy_(torch.arange(SIZE))
    state.machine = state.machine.to(device=device)
    for sums in (state.optimizer.squares, state.optimizer.velocity, state.optimizer.means):
        sums.update({n: t.to(device) for n, t in sums.items()})
    counts = {name: getattr(state.optimizer, name).to(device) for name in ("averaged", "age_K", "step")}
    state.optimizer = replace(state.optimizer, **counts)
    chains = {"v_ND": state.chains.v_ND, "y_N": state.chains.y_N}
    state.chains = replace(state.chains, **{n: None if t is None else t.to(device) for n, t in chains.items()})
    state.sums = state.sums.to(device)
    return state


VARIANTS = {
    "PCD": {"n_chains": 10},
    "CD": {"persistent": False},
    "sampled": {"gradient": "sampled", "n_chains": 7},
    "momentum": {"momentum": True, "optimizer": "constant"},
    "averages": {"averaging": 5},
    "generative, labels": {"objective": "generative"},
    "discriminative": {"objective": "discriminative"},
    "hybrid": {"objective": "hybrid", "alpha": 0.3},
}


@pytest.mark.parametrize("depth", [Fixed(), Ordered(), Infinite()], ids=lambda d: d.kind)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_from_the_same_uniforms_is_the_cpus(variant, depth, monkeypatch):
    compare_a_step(variant, depth, device_for_kernels(), True, monkeypatch)


@needs_cuda
@pytest.mark.parametrize("depth", [Fixed(), Ordered(), Infinite()], ids=lambda d: d.kind)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_of_a_gpu_without_kernels_is_the_cpus(variant, depth, monkeypatch):
    compare_a_step(variant, depth, "cuda", False, monkeypatch)


def compare_a_step(variant, depth, device, with_kernels, monkeypatch):
    """All decisions are the same; parameters differ by rounding.

    The largest part of it is the weights' two bfloat16 parts: up to 2^-16 (2^-14 in the interpreter, which cuts off) of
    sum |W| v, some 3, in an activation; a tenth of that, 2e-5, in a gradient, which is at most 1, so that its square is
    off by twice as much. One decision that fell differently would move a visible bias by 0.1/10 of the rate over a root
    below 1.5: 3e-4 or more.
    """
    labels = 3 if variant in ("generative, labels", "discriminative", "hybrid") else 0
    settings = Settings(n_iter=1, batch_size=8, gibbs_steps=2, regroup=0.8, **VARIANTS[variant])
    calls = []

    def step(noise, *, where="cpu", fast=False):
        """One step: what it decided, and all that it left."""
        monkeypatch.setattr(dispatch, "has_kernels", lambda a: fast and a.dtype != torch.float64)
        state = started(depth, settings, labels, where)
        trainer = Trainer(state, X, Y if labels else None, settings=settings)
        trainer._noise = Handed(noise, where)
        trainer._limits.copy_(torch.tensor([0.8, 1e9], dtype=torch.float64))
        trainer._make_room(int(trainer.machine.size), SEGMENT)
        before = tensors_of(state)
        trainer.step(torch.arange(30, 38, device=where))
        calls.append(trainer._noise.calls)
        after = tensors_of(state)
        assert not torch.equal(after["machine.order"], before["machine.order"])
        assert (after["machine.weights"] - before["machine.weights"]).abs().max() > 2e-3
        return [t for name, t in after.items() if is_decided(name, t)], after

    n, _, expected = undisputed(step, lambda n: uniform_noise(SEED, n), lambda after: after["machine.visible_bias"])
    _, got = step(uniform_noise(SEED, n), where=device, fast=with_kernels)
    assert len(set(calls)) == 1  # as many draws on both
    for name, tensor in expected.items():
        if is_decided(name, tensor):
            assert torch.equal(got[name], tensor), name
        else:
            atol = 4e-5 if name.startswith("optimizer.squares") else 2e-5
            torch.testing.assert_close(got[name], tensor, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def is_decided(name, tensor):
    return not tensor.is_floating_point() or name.startswith(("chains", "sums"))


# -- runs on the device ---------------------------------------------------------------------------------------------

RUNS = {
    "generative": ({"n_chains": 64}, 0, Infinite()),
    "CD": ({"persistent": False}, 0, Infinite()),
    "softplus penalty": ({}, 0, Infinite(penalty="softplus")),
    "sampled": ({"gradient": "sampled"}, 0, Infinite()),
    "ordered": ({}, 0, Ordered()),
    "fixed": ({"l2": 0.01}, 0, Fixed()),
    "momentum": ({"momentum": True, "optimizer": "constant"}, 0, Infinite()),
    "decay": ({"optimizer": "decay"}, 0, Infinite()),
    "averages": ({"averaging": 5}, 0, Infinite()),
    "generative, labels": ({}, 3, Infinite()),
    "discriminative": ({"objective": "discriminative"}, 3, Infinite()),
    "hybrid": ({"objective": "hybrid"}, 3, Infinite()),
}


class Stopping(Trainer):
    at: int | None = None

    def step(self, rows):
        super().step(rows)
        if self.state.step == self.at:
            self.stop()


class Eager(Trainer):
    def _graphed_step(self, rows, noise):
        self._device_step(rows)


def run(name, *, kind=Trainer, state=None, seed=0, at=None):
    """39 steps: 13 batches of ten an epoch, and the end of a segment in the third."""
    more, labels, depth = RUNS[name]
    settings = Settings(n_iter=3, batch_size=10, gibbs_steps=3, regroup=0.8, **more)
    if state is None:
        size = 1 if isinstance(depth, Infinite) else 20
        machine = initial_machine(depth, 40, n_components=size, n_classes=labels, device="cuda")
        state = TrainingState.start(machine, settings, seed)
    trainer = kind(state, X, Y if labels else None, settings=settings)
    trainer.at = at
    return trainer.run(), settings


def assert_same_bits(one, other):
    ours, theirs = tensors_of(one), tensors_of(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    assert (one.step, one.epoch, one.batch) == (other.step, other.epoch, other.batch)
    assert [replace(r, seconds=0.0) for r in one.history] == [replace(r, seconds=0.0) for r in other.history]


@pytest.fixture
def graphs(monkeypatch):
    """What steps are recorded and replayed, by name: without any, every comparison would be of a step with itself."""
    did = []
    for name, method in (("recorded", "__init__"), ("replayed", "replay")):
        real = getattr(StepGraph, method)

        def noted(*args, name=name, real=real, **more):
            did.append(name)
            return real(*args, **more)

        monkeypatch.setattr(StepGraph, method, noted)
    return did


@needs_cuda
@pytest.mark.parametrize("name", RUNS)
def test_the_graph_is_the_step_and_a_seed_is_a_run(name, graphs):
    graphed = run(name)[0]
    assert graphs[0] == "recorded"
    assert graphs.count("replayed") >= 39 - FIRST_RECORDED - graphs.count("recorded")
    again = run(name)[0]
    assert_same_bits(graphed, again)
    graphs.clear()
    assert_same_bits(graphed, run(name, kind=Eager)[0])
    assert graphs == []
    other = run(name, seed=1)[0]
    assert not torch.equal(graphed.machine.weights[:20], other.machine.weights[:20])
    assert graphed.machine.weights.abs().max() > 0.01
    assert not isinstance(graphed.machine.depth, Infinite) or int(graphed.machine.size) > 1


@needs_cuda
@pytest.mark.parametrize("at", [1, 20, 32, 35])
@pytest.mark.parametrize("name", ["generative", "momentum", "averages", "hybrid"])
def test_a_checkpoint_in_mid_epoch_goes_on_to_the_same_bits(name, at, tmp_path):
    whole = run(name)[0]
    cut, settings = run(name, kind=Stopping, at=at)
    assert cut.step == at
    checkpoint.save(tmp_path / "run", cut, settings)
    loaded, _ = checkpoint.load(tmp_path / "run", "cuda")
    assert_same_bits(run(name, state=loaded)[0], whole)


@needs_cuda
@pytest.mark.parametrize("name", RUNS)
def test_an_older_card_records_its_steps_without_bfloat16(name, graphs, monkeypatch):
    monkeypatch.setattr(products, "arrange", lambda *_: pytest.fail("bfloat16 on a card that has none"))
    monkeypatch.setattr(dispatch, "_has_bfloat16", lambda device: False)
    graphed = run(name)[0]
    assert "replayed" in graphs
    assert_same_bits(graphed, run(name, kind=Eager)[0])
    assert graphed.machine.weights.abs().max() > 0.01
    assert not isinstance(graphed.machine.depth, Infinite) or int(graphed.machine.size) > 1


@needs_cuda
@pytest.mark.parametrize("name", RUNS)
def test_without_triton_a_seed_is_a_run_all_the_same(name, monkeypatch):
    for module in (dispatch, noise):
        monkeypatch.setattr(module, "available", lambda device: False)
    monkeypatch.setattr(StepGraph, "__init__", lambda *_, **__: pytest.fail("recorded without kernels"))
    one = run(name)[0]
    assert_same_bits(one, run(name)[0])
    assert one.machine.weights.abs().max() > 0.01
    assert not isinstance(one.machine.depth, Infinite) or int(one.machine.size) > 1


@needs_cuda
def test_a_batch_of_another_size_and_a_float64_machine_train_too():
    settings = Settings(n_iter=2, batch_size=50, gibbs_steps=2)  # 44, 44, 42
    for dtype in (torch.float32, torch.float64):
        machine = initial_machine(Infinite(), 40, device="cuda", dtype=dtype)
        state = Trainer(TrainingState.start(machine, settings, 0), X, settings=settings).run()
        assert state.step == 6
        assert state.machine.weights.dtype == dtype
        assert state.machine.weights.abs().max() > 0


@needs_cuda
@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_host_waits_for_nothing_in_a_step_and_drains_nothing_between_segments():
    """What waits for all that was asked of the device is an error here; the look at an earlier segment does not."""
    settings = Settings(n_iter=1, batch_size=10, gibbs_steps=2)
    machine = initial_machine(Infinite(), 40, device="cuda")
    trainer = Trainer(TrainingState.start(machine, settings, 0), X, settings=settings)
    rows = torch.arange(10, device="cuda")

    def segment():
        trainer._begin_segment()
        for _ in range(SEGMENT):
            trainer.step(rows)

    segment()
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        segment()
        segment()
    finally:
        torch.cuda.set_sync_debug_mode(before)


@needs_cuda
@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("objective", ["generative", "discriminative", "hybrid"])
def test_a_larger_capacity_is_recorded_while_the_device_is_at_work(objective, graphs, monkeypatch):
    """The second recording neither waits nor gives memory back, and is of the step."""
    monkeypatch.setattr(growth, "update_", lambda size, z_pos, z_neg, limit: size.add_((size < limit).long()))
    settings = Settings(n_iter=1, batch_size=1, gibbs_steps=2, objective=objective)
    labels = 0 if objective == "generative" else 3

    def grown(kind):
        machine = initial_machine(Infinite(), 40, n_components=150, n_classes=labels, device="cuda")
        trainer = kind(TrainingState.start(machine, settings, 0), X, Y if labels else None, settings=settings)
        rows, capacities = torch.arange(len(X), device="cuda"), set()
        for first in range(0, 4 * SEGMENT, SEGMENT):
            trainer._begin_segment()
            for row in range(first, first + SEGMENT):
                trainer.step(rows[row : row + 1])
            capacities.add(trainer.machine.capacity)
            if kind is Trainer:  # the first recording may
                torch.cuda.set_sync_debug_mode("error")
                for name in ("synchronize", "empty_cache"):
                    monkeypatch.setattr(torch.cuda, name, lambda name=name: pytest.fail(f"torch.cuda.{name}"))
        assert len(capacities) == 2
        return trainer.state

    eager = grown(Eager)
    try:
        recorded = grown(Trainer)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert graphs.count("recorded") == 2
    assert graphs.count("replayed") == 4 * SEGMENT - FIRST_RECORDED - 1
    assert_same_bits(eager, recorded)


@needs_cuda
@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
def test_threads_that_train_and_anneal_at_once_find_what_each_finds_alone(graphs):
    """They share the recording stream; what one asks for while the other records is none of its business."""
    machine = initial_machine(Infinite(), 40, n_components=30, device="cuda")
    machine.weights.copy_(uniform_noise(1, 0, device="cuda")(*machine.weights.shape) - 0.5)
    path = Path("free", Frozen.of(machine), Base.usual(machine.visible_bias, machine.capacity))
    even = torch.linspace(0, 1, 200, dtype=torch.float64, device="cuda")

    def annealed():
        return ais.forward(path, even, 50, uniform_noise(3, 0, device="cuda")).value

    alone = [run("generative")[0], annealed()]
    with ThreadPoolExecutor(4) as pool:
        trained = [pool.submit(run, "generative") for _ in range(4)]
        values = [pool.submit(annealed) for _ in range(4)]
    for job in trained:
        assert_same_bits(job.result()[0], alone[0])
    assert [job.result() for job in values] == [alone[1]] * 4
    assert graphs.count("recorded") >= 5


@needs_cuda
@pytest.mark.parametrize("name", ["generative", "hybrid"])
def test_trainers_that_take_turns_are_one_run(name, graphs):
    """Each has its own recordings, of whatever the state holds when its turn comes."""
    more, labels, depth = RUNS[name]
    settings = Settings(n_iter=6, batch_size=10, gibbs_steps=3, regroup=0.8, **more)

    def start():
        machine = initial_machine(depth, 40, n_classes=labels, device="cuda")
        return TrainingState.start(machine, settings, 0)

    y = Y if labels else None
    alone = Trainer(start(), X, y, settings=settings).run()
    state = start()
    one, other = (Trainer(state, X, y, settings=settings) for _ in range(2))
    graphs.clear()
    for turn in (one, other, other, one, one, other):
        turn.run_epoch()
    assert graphs.count("recorded") >= 2
    assert "replayed" in graphs
    assert_same_bits(state, alone)
