"""Products of rows of 0 and 1 from three bfloat16 parts, against float64; with a stand-in for tensor cores on CPUs."""

import pytest
import torch

from fresh import SEED
from irbm.evaluation import ais
from irbm.evaluation.paths import Base, Path
from irbm.models import Frozen, Infinite, frozen
from irbm.ops import kernels, parts
from irbm.ops.noise import KeyedStream, uniform_noise
from irbm.ops.parts import Parts
from irbm.training.initial import initial_machine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def widened(monkeypatch):
    """Matrices of every size, and what tensor cores do where there are none: products of bfloat16 in float32."""
    if not parts.run_on(torch.device(DEVICE)):
        monkeypatch.setattr(parts, "_add_product_", lambda total, x, part: total.add_(x.float() @ part.float()))
    monkeypatch.setattr(parts, "suit", lambda matrix: matrix.dtype == torch.float32)


@pytest.fixture
def not_tried_yet():
    parts.run_on.cache_clear()
    yield
    parts.run_on.cache_clear()


def fresh(*shape, of=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED + of)).to(DEVICE)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_three_parts_hold_every_bit(scale):
    matrix = scale * fresh(40, 17) ** 3
    made = Parts(matrix, matrix[0])._parts
    assert all(part.dtype == torch.bfloat16 for part in made)
    assert torch.equal(sum(part.double() for part in made)[:40, :17], matrix.double())
    assert not torch.equal(sum(part.double() for part in made[:2])[:40, :17], matrix.double())


@pytest.mark.parametrize(("B", "N", "R"), [(1, 1, 1), (5, 13, 7), (64, 784, 333), (3, 4000, 24), (200, 1001, 500)])
def test_products_are_as_exact_as_those_of_float32(B, N, R, widened):
    matrix, bias, x = fresh(N, R), fresh(R, of=2), (fresh(B, N, of=1) < -0.8).float()
    exact = torch.addmm(bias.double(), x.double(), matrix.double())
    made = Parts(matrix, bias)
    found = made.linear(x)
    assert torch.equal(made.linear(x), found)  # nothing was added to what is kept
    assert found.shape == (B, R)
    assert (found.double() - exact).abs().max() <= 4 * (torch.addmm(bias, x, matrix) - exact).abs().max() + 1e-6
    assert found.dtype == torch.float32


def machine_of(K, D, labels=0):
    machine = initial_machine(Infinite(), D, n_components=K, n_classes=labels, device=DEVICE)
    for n, tensor in enumerate(machine.tensors().values()):
        if tensor.is_floating_point():
            tensor.copy_(0.4 * fresh(*tensor.shape, of=n))
    return machine


def base_of_three(machine):
    """Parts among which a chain's changes."""
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, device=DEVICE)
    return Base(fresh(3, machine.n_visible, of=10), 0.1 * fresh(3, machine.capacity, of=11), shares.log())


@pytest.mark.parametrize("labels", [0, 3])
def test_a_frozen_machine_has_the_same_fields_and_activations(labels, widened):
    machine = machine_of(21, 30, labels)
    copy = Frozen.of(machine)
    assert isinstance(copy.upward, Parts)
    v, h = (fresh(9, 30, of=7) < 0).float(), (fresh(9, 21, of=8) < 0).float()
    y = torch.arange(9, device=DEVICE) % 3 if labels else None
    activations = copy.activations(v, y)
    assert activations.is_contiguous()  # as kernels want them
    torch.testing.assert_close(activations, machine.activations(v, y), rtol=0, atol=1e-5)
    assert copy.visible_field(h).is_contiguous()
    torch.testing.assert_close(copy.visible_field(h), machine.visible_field(h), rtol=0, atol=1e-5)


@pytest.mark.parametrize("labels", [0, 3])
def test_its_sweeps_are_those_of_the_machine(labels, widened):
    """The same uniforms, the same decisions, but for a handful at an edge."""
    machine, v = machine_of(40, 30, labels), (fresh(300, 30, of=7) < 0).float()
    y = torch.arange(300, device=DEVICE) % 3 if labels else None
    (found, label), (wanted, other) = (
        one.gibbs_step(v, y, uniform_noise(SEED, 0, device=DEVICE)) for one in (Frozen.of(machine), machine)
    )
    assert (found != wanted).any(1).sum() <= 2  # thresholds differ by some 1e-6, of 300 x 71 uniforms
    assert found.std() > 0.1
    if labels:
        assert (label != other).sum() <= 2


def test_steps_of_a_path_are_those_of_the_machine_itself(widened, monkeypatch):
    machine, found = machine_of(40, 30), []
    for suit in (True, False):
        monkeypatch.setattr(parts, "suit", lambda matrix, suit=suit: suit)
        path = Path("free", Frozen.of(machine), base_of_three(machine))
        assert isinstance(path.frozen.upward, Parts) == suit
        noise = uniform_noise(SEED, 0, device=DEVICE)
        start = path.start(300, noise)
        here, there = (path.at(torch.tensor(tau, dtype=torch.float64, device=DEVICE)) for tau in (0.5, 0.6))
        found.append((start, *path.step(start, here, there, noise)))
    (start, gain, states), (other_start, wanted, others) = found
    assert torch.equal(start.v_BD, other_start.v_BD)
    torch.testing.assert_close(gain, wanted, rtol=0, atol=1e-4)
    assert (states.v_BD != others.v_BD).any(1).sum() <= 2
    assert (states.part_B != others.part_B).sum() <= 2
    assert states.v_BD.std() > 0.1
    assert (states.part_B != start.part_B).sum() > 20


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
def test_recorded_steps_and_sweeps_are_those_that_are_not(widened, monkeypatch):
    machine = machine_of(40, 30)
    path = Path("free", Frozen.of(machine), base_of_three(machine))
    even = torch.linspace(0, 1, 60, dtype=torch.float64, device=DEVICE)

    def annealed_and_swept():
        noise = uniform_noise(SEED, 0, device=DEVICE)
        assert isinstance(noise, KeyedStream)  # others are not recorded
        run = ais.forward(path, even, 200, noise)
        return run.log_weights, path.frozen.gibbs(run.states.v_BD, None, noise, 30)[0]

    def again_and_again(work, times, device):
        """As numbers of calls are in a recording: the same each time."""
        work()
        stream = next(c.cell_contents for c in work.__closure__ if isinstance(c.cell_contents, KeyedStream))
        calls = stream._calls
        for _ in range(times - 1):
            stream._calls = calls
            work()

    weights, v = annealed_and_swept()
    for module in (ais, frozen):
        monkeypatch.setattr(module, "repeat", again_and_again)
    others, w = annealed_and_swept()
    assert torch.equal(weights, others)
    assert torch.equal(v, w)


def test_large_float32_matrices_gain():
    large = torch.zeros(640, 784)
    assert parts.gain(large)
    assert not parts.gain(large[:600])
    assert not parts.gain(large.double())


def test_they_run_on_gpus_with_bfloat16_and_nowhere_else(not_tried_yet, monkeypatch):
    assert not parts.run_on(torch.device("cpu"))
    monkeypatch.setattr(parts, "_add_product_", lambda total, x, part: total.add_(8.0))
    monkeypatch.setattr(torch, "ones", lambda *shape, **how: torch.full(shape, 1.0))
    for capability, runs in {(7, 5): False, (8, 0): True, (9, 0): True}.items():
        parts.run_on.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert parts.run_on(torch.device("cuda", 0)) == runs


@pytest.mark.parametrize("error", [TypeError("no out_dtype"), NotImplementedError("no such kernel")])
def test_a_torch_without_such_products_is_asked_for_none(error, not_tried_yet, monkeypatch):
    """As before 2.8, where `torch.addmm` knows no `out_dtype`; but want of memory is no such thing."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch, "ones", lambda *shape, **how: torch.full(shape, 1.0))
    monkeypatch.setattr(parts, "_add_product_", refuse)
    assert not parts.run_on(torch.device("cuda", 0))
    parts.run_on.cache_clear()
    error = torch.OutOfMemoryError("full")
    with pytest.raises(torch.OutOfMemoryError):
        parts.run_on(torch.device("cuda", 0))
