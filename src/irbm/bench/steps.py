"""What is timed: the trainer's step, the bare products within it, annealing, sampling, scoring, and growth.

Shapes: B examples, N chains, D visible units, l hidden units, k Gibbs steps.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irbm.bench.timing import Call
from irbm.evaluation import ais
from irbm.evaluation.paths import Base, Path
from irbm.models import Frozen, Infinite, Machine
from irbm.ops import reference
from irbm.ops.noise import uniform_noise
from irbm.ops.recording import Recording
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.callbacks import Callback
from irbm.training.initial import initial_machine
from irbm.training.trainer import FIRST_RECORDED

SHARE_ON = 0.2  # of the visible units in the examples
WEIGHT_SCALE = 0.05
REGROUPED = 0.8  # of the units, before each step
HELD_SIZES = 9  # to compare growth with
GROWTH_TURNS = 5
UNTIMED = FIRST_RECORDED + 2  # steps of a run that grows: its first recording is of the last of them but one
ENLARGED = 4  # pixels of a digit's pixel, on each side


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


def trainer(case: Case, n_batches: int, seed: int, device: torch.device | str) -> Trainer:
    """An infinite RBM with random permutation, growth, AdaGrad, L1 and max-norm, by PCD; its size is held."""
    return _trainer(case, examples(n_batches * case.B, case.D, seed, device), seed, REGROUPED, most=case.l)


def _trainer(case: Case, X: Tensor, seed: int, regroup: float | str, *, most: int | None) -> Trainer:
    settings = Settings(batch_size=case.B, gibbs_steps=case.k, n_chains=case.N, regroup=regroup, max_components=most)
    state = TrainingState.start(random_machine(case.D, case.l, seed, X.device), settings, seed)
    return Trainer(state, X, settings=settings)


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


def recorded(step: Call, device: torch.device | str) -> Call:
    """The same from a CUDA graph, as the trainer takes its own steps; elsewhere as it is."""
    if torch.device(device).type != "cuda":
        return step
    step()  # so that what a library sets up once is there
    recording = Recording(step, torch.device(device))

    def replay(holds: Call = step) -> None:  # the graph writes to the step's tensors: they must outlive it
        recording.replay()

    return replay


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
    path = Path("free", Frozen.of(machine), Base.usual(machine.visible_bias, machine.capacity))
    schedule = torch.linspace(0, 1, n_points, dtype=torch.float64, device=device)
    noise = uniform_noise(seed, 2, device=device)

    def estimate() -> None:
        ais.forward(path, schedule, n_chains, noise)

    return estimate


def sampling(D: int, l: int, n_chains: int, n_sweeps: int, seed: int, device: torch.device | str) -> Call:
    """Gibbs sweeps of chains that go on from where they are, as ``sample`` takes them."""
    frozen, noise = Frozen.of(random_machine(D, l, seed, device)), uniform_noise(seed, 3, device=device)
    v_ND = examples(n_chains, D, seed, device).float()

    def sweeps() -> None:
        v_ND.copy_(frozen.gibbs(v_ND, None, noise, n_sweeps)[0])

    return sweeps


def scoring(D: int, l: int, n: int, seed: int, device: torch.device | str) -> tuple[Call, Call, Call]:
    """Free energies of n examples in float64: ours, the matrix product within, and by torch's own operations."""
    machine = random_machine(D, l, seed, device).to(dtype=torch.float64)
    v_BD = examples(n, D, seed, device).double()
    depth, beta_K = machine.depth, machine.depth.penalties(machine.hidden_bias)

    def ours() -> None:
        machine.free_energy(v_BD)

    def product() -> None:
        machine.activations(v_BD)

    def by_operations() -> None:
        how = (machine.order, beta_K, machine.size, depth.kind, depth.tail)
        log_sum_B = reference.log_sum_z(machine.activations(v_BD), *how)
        torch.sub(machine.visible.energy(v_BD, machine.visible_bias), log_sum_B)

    return ours, product, by_operations


# -- growth -----------------------------------------------------------------------------------------------------


def pictures(n: int, D: int, device: torch.device | str) -> Tensor:
    """The digits of scikit-learn, enlarged to 28 x 28, over and over: coins would not make a machine grow.

    Of their pixels D, spread evenly.
    """
    from sklearn.datasets import load_digits  # slow to import

    digits = load_digits().images > 7  # of 0..16
    enlarged = digits.repeat(ENLARGED, axis=1).repeat(ENLARGED, axis=2)[:, 2:-2, 2:-2].reshape(len(digits), -1)
    pixels = np.linspace(0, enlarged.shape[1] - 1, D).round().astype(int)
    chosen = enlarged[:, pixels][np.arange(n) % len(enlarged)]
    return torch.from_numpy(chosen).to(device=device, dtype=torch.uint8)


class _Watch(Callback):
    """The step, the size and the capacity at the start of each segment, and at the end."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.sizes: list[Tensor] = []  # which no step waits for
        self.capacities: list[int] = []

    def after_segment(self, trainer: Trainer) -> None:
        self.steps.append(trainer.state.step)
        self.sizes.append(trainer.machine.size.clone())
        self.capacities.append(trainer.machine.capacity)

    def even_sizes(self, n: int) -> list[int]:
        """The size in the middle of each of n equal parts of the steps."""
        middles = self.steps[-1] * (np.arange(n) + 0.5) / n
        return [round(size) for size in np.interp(middles, self.steps, [int(size) for size in self.sizes])]


def growth(case: Case, n_batches: int, n_passes: int, seed: int, device: torch.device | str) -> dict[str, Any]:
    """Mean seconds a step of a run from one unit on, and of machines held at sizes taken evenly from it.

    All that comes with growth is within the run's time: larger capacities, and on a GPU a recording for each, but for
    the first, which a machine of any size has: those held have it behind them, and so has the run when its time begins.
    The time with it is told too.
    Both take turns, for medians: a single run says as much about the machine's other work. Before them each has had a
    run in which kernels are compiled.
    """
    X = pictures(n_batches * case.B, case.D, device)
    growing, watch, *_ = _grown(case, X, n_passes, seed)
    sizes = watch.even_sizes(HELD_SIZES)
    held = [_trainer(replace(case, l=size), X, seed, "adaptive", most=size) for size in sizes]
    for trainer in held:
        _pass_seconds(trainer)
    turns, n = [], growing.state.step
    for _ in range(GROWTH_TURNS):
        *_, first, rest = _grown(case, X, n_passes, seed)
        at_rest = sum(_pass_seconds(trainer) for trainer in held) / len(held)
        turns.append((rest / (n - UNTIMED), (first + rest) / n, at_rest / n_batches))
    step_growing, step_with_first, step_held = np.median(turns, axis=0).tolist()
    return {
        "first_size": 1,
        "last_size": int(watch.sizes[-1]),
        "capacities": sorted(set(watch.capacities)),
        "steps": n - UNTIMED,
        "untimed": UNTIMED,
        "growing": step_growing,
        "growing_with_first": step_with_first,
        "held": step_held,
    }


def _grown(case: Case, X: Tensor, n_passes: int, seed: int) -> tuple[Trainer, _Watch, float, float]:
    """A run from one unit on, what was seen of it, and the seconds of its first steps and of all others."""
    growing, watch = _trainer(replace(case, l=1), X, seed, "adaptive", most=None), _Watch()
    growing.callbacks = (watch,)
    began = time.perf_counter()
    for _ in range(UNTIMED):
        growing.step(torch.arange(case.B, device=X.device))
    int(growing.machine.size)  # waits for the device
    first = time.perf_counter() - began
    rest = sum(_pass_seconds(growing) for _ in range(n_passes))
    watch.after_segment(growing)
    return growing, watch, first, rest


def _pass_seconds(trainer: Trainer) -> float:
    began = time.perf_counter()
    trainer.run_epoch()  # its report waits for the device
    return time.perf_counter() - began
