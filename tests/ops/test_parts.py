"""Products of rows of 0 and 1 from three bfloat16 parts, against float64; with a stand-in for tensor cores on CPUs."""

import pytest
import torch

from fresh import SEED
from irbm.evaluation.paths import Base, Path
from irbm.models import Frozen, Infinite
from irbm.ops import parts
from irbm.ops.noise import uniform_noise
from irbm.ops.parts import Parts
from irbm.training.initial import initial_machine

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"


@pytest.fixture
def widened(monkeypatch):
    """What tensor cores do, which no CPU does: exact products of bfloat16 numbers, added up in float32."""
    if not HAS_CUDA:
        monkeypatch.setattr(parts, "_widened", lambda x, part: x.float() @ part.float())
    monkeypatch.setattr(parts, "suit", lambda matrix: matrix.dtype == torch.float32)


def fresh(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED)).to(DEVICE)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_three_parts_hold_every_bit(scale):
    matrix = scale * fresh(40, 17) ** 3
    made = Parts(matrix)._parts
    assert all(part.dtype == torch.bfloat16 for part in made)
    assert torch.equal(sum(part.double() for part in made)[:40, :17], matrix.double())
    assert not torch.equal(sum(part.double() for part in made[:2])[:40, :17], matrix.double())


@pytest.mark.parametrize(("B", "N", "R"), [(1, 1, 1), (5, 13, 7), (64, 784, 333), (3, 4000, 24), (200, 1001, 500)])
def test_products_are_as_exact_as_those_of_float32(B, N, R, widened):
    matrix, x = fresh(N, R), (fresh(B, N) < 0.2).float()
    exact = x.double() @ matrix.double()
    found = Parts(matrix).product(x)
    assert found.shape == (B, R)
    assert (found.double() - exact).abs().max() <= 4 * (x @ matrix - exact).abs().max() + 1e-6
    assert found.dtype == torch.float32


def machine_of(K, D, labels=0):
    machine = initial_machine(Infinite(), D, n_components=K, n_classes=labels, device=DEVICE)
    for tensor in machine.tensors().values():
        if tensor.is_floating_point():
            tensor.copy_(0.4 * fresh(*tensor.shape))
    return machine


@pytest.mark.parametrize("labels", [0, 3])
def test_a_frozen_machine_has_the_same_fields_and_activations(labels, widened):
    machine = machine_of(21, 30, labels)
    frozen = Frozen.of(machine)
    assert type(frozen) is Frozen
    v, h, y = (fresh(9, 30) < 0).float(), (fresh(9, 21) < 0).float(), torch.arange(9, device=DEVICE) % 3
    activations = frozen.activations(v, y if labels else None)
    assert activations.is_contiguous()  # as kernels want them
    torch.testing.assert_close(activations, machine.activations(v, y if labels else None), rtol=0, atol=1e-5)
    assert frozen.visible_field(h).is_contiguous()
    torch.testing.assert_close(frozen.visible_field(h), machine.visible_field(h), rtol=0, atol=1e-5)


def test_steps_of_a_path_are_those_of_the_machine_itself(widened, monkeypatch):
    """The same uniforms, the same decisions, but for a handful at an edge."""
    machine, found = machine_of(40, 30), []
    for suit in (True, False):
        monkeypatch.setattr(parts, "suit", lambda matrix, suit=suit: suit)
        path = Path("free", machine, Base.usual(machine.visible_bias, machine.capacity))
        assert isinstance(path.frozen, Frozen) == suit
        noise = uniform_noise(SEED, 0, device=DEVICE)
        start = path.start(300, noise)
        here, there = (path.at(torch.tensor(tau, dtype=torch.float64, device=DEVICE)) for tau in (0.5, 0.6))
        found.append((start, *path.step(start, here, there, noise)))
    (start, gain, states), (_, wanted, others) = found
    assert torch.equal(start.v_BD, found[1][0].v_BD)
    torch.testing.assert_close(gain, wanted, rtol=0, atol=1e-4)
    # Thresholds differ by some 1e-6: of 300 x 71 uniforms one in fifty runs lies between, and changes its row.
    assert (states.v_BD != others.v_BD).any(1).sum() <= 2
    assert states.v_BD.std() > 0.1


def test_small_or_exact_matrices_and_older_cards_keep_torchs_products(monkeypatch):
    large = torch.zeros(512, 512, device=DEVICE)
    assert parts.suit(large) == (HAS_CUDA and torch.cuda.get_device_capability() >= (8, 0))
    assert not parts.suit(large[:8])
    assert not parts.suit(large.double())
    if HAS_CUDA:
        parts._run_on.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert not parts.suit(large)
        parts._run_on.cache_clear()


def test_a_torch_without_such_products_is_asked_for_none(monkeypatch):
    """As before 2.8, where `torch.mm` knows no `out_dtype`."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def refuse(*_, **__):
        raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")

    parts._run_on.cache_clear()
    monkeypatch.setattr(torch, "mm", refuse)
    assert not parts._run_on(torch.device(DEVICE))
    parts._run_on.cache_clear()
