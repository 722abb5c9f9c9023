"""What is timed: the trainer's step, the bare products within it, the annealing step, and growth.

Shapes: B examples, N chains, D visible units, l hidden units, k Gibbs steps.
"""

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from irbm.bench.timing import Call
from irbm.evaluation import ais
from irbm.evaluation.paths import Base, Path
from irbm.models import Infinite, Machine
from irbm.ops.noise import uniform_noise
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.callbacks import Callback
from irbm.training.initial import initial_machine
from irbm.training.trainer import SEGMENT

SHARE_ON = 0.2  # of the visible units in the examples
WEIGHT_SCALE = 0.05
REGROUPED = 0.8  # of the units, before each step
HELD_SIZES, HELD_STEPS = 9, 4 * SEGMENT  # to compare growth with


@dataclass(frozen=True)
class Case:
    """One training step: its sizes."""

    D: int
    l: int
    B: int
    k: int
    N: int | None = None  # as many chains as examples

    @property
    def n_chains(self) -> int:
        return self.N or self.B

    @property
    def name(self) -> str:
        chains = f", {self.N} chains" if self.N else ""
        return f"{self.D} x {self.l}, minibatch {self.B}, PCD-{self.k}{chains}"


def examples(n: int, D: int, seed: int, device: torch.device | str) -> Tensor:
    """Independent coins: a step takes as long on them as on anything."""
    u_ND = uniform_noise(seed, 0)(n, D)
    return (u_ND < SHARE_ON).to(device=device, dtype=torch.uint8)


def random_machine(D: int, l: int, seed: int, device: torch.device | str) -> Machine:
    machine = initial_machine(Infinite(), D, n_components=l, device=device)
    machine.weights.copy_(WEIGHT_SCALE * (uniform_noise(seed, 1)(l, D) - 0.5))
    return machine


def trainer(case: Case, n_batches: int, seed: int, device: torch.device | str, *, grows: bool = False) -> Trainer:
    """An infinite RBM with random permutation, growth, AdaGrad, L1 and max-norm, by PCD; its size may be held."""
    settings = Settings(
        batch_size=case.B,
        gibbs_steps=case.k,
        n_chains=case.N,
        regroup=REGROUPED,
        max_components=None if grows else case.l,
    )
    state = TrainingState.start(random_machine(case.D, case.l, seed, device), settings, seed)
    return Trainer(state, examples(n_batches * case.B, case.D, seed, device), settings=settings)


def training(case: Case, n_batches: int, seed: int, device: torch.device | str) -> Call:
    """So many steps of a trainer that has an epoch behind it."""
    ours = trainer(case, n_batches, seed, device)
    ours.run_epoch()
    batches = torch.arange(n_batches * case.B, device=device).view(n_batches, case.B)

    def segment() -> None:
        for rows in batches:
            ours.step(rows)

    return segment


def products(case: Case, dtype: torch.dtype, device: torch.device | str) -> Call:
    """The matrix products of one step and nothing else, both phases in one batch of R = B + N: its floor."""
    R, N = case.B + case.n_chains, case.n_chains
    v_RD = torch.rand(R, case.D, device=device).to(dtype)
    h_RK = torch.rand(R, case.l, device=device).to(dtype)
    W_KD = torch.rand(case.l, case.D, device=device).to(dtype)
    out_RD, out_RK, out_KD = torch.empty_like(v_RD), torch.empty_like(h_RK), torch.empty_like(W_KD)

    def step() -> None:
        for _ in range(case.k):
            torch.mm(v_RD[:N], W_KD.T, out=out_RK[:N])
            torch.mm(h_RK[:N], W_KD, out=out_RD[:N])
        torch.mm(v_RD, W_KD.T, out=out_RK)
        torch.mm(h_RK.T, v_RD, out=out_KD)

    return step


def sweep(case: Case, device: torch.device | str) -> Call:
    """The two products of one Gibbs sweep of N chains."""
    v_ND = torch.rand(case.n_chains, case.D, device=device)
    h_NK = torch.rand(case.n_chains, case.l, device=device)
    W_KD = torch.rand(case.l, case.D, device=device)
    out_NK, out_ND = torch.empty_like(h_NK), torch.empty_like(v_ND)

    def step() -> None:
        torch.mm(v_ND, W_KD.T, out=out_NK)
        torch.mm(h_NK, W_KD, out=out_ND)

    return step


def annealing(D: int, l: int, n_chains: int, n_points: int, seed: int, device: torch.device | str) -> Call:
    """Annealed importance sampling along a short even schedule of ``n_points - 1`` steps."""
    machine = random_machine(D, l, seed, device)
    path = Path("free", machine, Base.usual(machine.visible_bias, machine.capacity))
    schedule = torch.linspace(0, 1, n_points, dtype=torch.float64, device=device)
    noise = uniform_noise(seed, 2, device=device)

    def estimate() -> None:
        ais.forward(path, schedule, n_chains, noise)

    return estimate


# -- growth -----------------------------------------------------------------------------------------------------


class _Clock(Callback):
    """The step, the size and the time at the start of each segment."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.sizes: list[int] = []
        self.seconds: list[float] = []

    def after_segment(self, trainer: Trainer) -> None:
        self.steps.append(trainer.state.step)
        self.sizes.append(int(trainer.machine.size))  # the host waits for the device here
        self.seconds.append(time.perf_counter())

    def mean(self) -> float:
        """Seconds a step."""
        return (self.seconds[-1] - self.seconds[0]) / (self.steps[-1] - self.steps[0])


def growth(case: Case, n_batches: int, n_passes: int, seed: int, device: torch.device | str) -> dict[str, float]:
    """Mean seconds a step of a run from one unit on, and of machines held at sizes taken evenly from it.

    The run is taken twice, so that no kernel is compiled in the second, which counts.
    """
    for _ in range(2):
        growing = _timed(replace(case, l=1), n_batches, n_passes, seed, device, grows=True)
    places = [round(i * (len(growing.sizes) - 1) / (HELD_SIZES - 1)) for i in range(HELD_SIZES)]
    # The first of two passes warms up.
    held = [_timed(replace(case, l=growing.sizes[i]), HELD_STEPS, 2, seed, device, last=True).mean() for i in places]
    return {
        "first_size": growing.sizes[0],
        "last_size": growing.sizes[-1],
        "steps": growing.steps[-1],
        "growing": growing.mean(),
        "held": sum(held) / len(held),
    }


def _timed(
    case: Case, n_batches: int, n_passes: int, seed: int, device: torch.device | str, *,
    grows: bool = False, last: bool = False,
) -> _Clock:  # fmt: skip
    """The clock of a run, or of its last pass alone."""
    ours, clock = trainer(case, n_batches, seed, device, grows=grows), _Clock()
    for i in range(n_passes):
        ours.callbacks = () if last and i < n_passes - 1 else (clock,)
        ours.run_epoch()
    return clock
