"""The estimate of record of ln Z: the largest forward value of several paths against reverse ones, and a verdict."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from irbm.evaluation import ais
from irbm.evaluation.ais import Estimate
from irbm.evaluation.partition import LogPartition
from irbm.evaluation.paths import Path, States
from irbm.evaluation.tempering import temper
from irbm.models import Fixed, Machine
from irbm.ops.noise import Noise, uniform_noise

CHAINS = 400
FIRST_POINTS = 500
DEFAULT_BUDGET = 8000  # points of the longest schedule
KEPT_PATHS = 2  # that go on to longer schedules
PULLS = (0.5, 1.0)  # of the mean penalty; at 1 no unit can be worth leaving out
ERRORS = 4.0  # standard errors on either side of an estimate; the value is the best of several
LEAST_ESS = 20.0
RELIABLE_WIDTH = 0.5
LADDER = 16
TEMPERED = 25  # chains of each point of the ladder
SWEEPS = 200
SMOOTHING = 0.05  # of a fair coin in the means of the base


@dataclass(frozen=True, eq=False)
class Round:
    """What one length of schedule found."""

    n_points: int
    forward: list[Estimate]
    reverse: list[tuple[str, Estimate]]
    swap_rate: float

    @property
    def best(self) -> Estimate:
        return max(self.forward, key=_floor)

    @property
    def lower(self) -> float:
        return _floor(self.best)

    @property
    def upper(self) -> float:
        return max(e.value + ERRORS * e.stderr for e in [self.best, *(e for _, e in self.reverse)])


def _floor(estimate: Estimate) -> float:
    """What a forward estimate is good for as a lower bound."""
    return estimate.value - ERRORS * estimate.stderr


def estimate(
    machine: Machine,
    *,
    means_D: Tensor | None = None,
    examples: Tensor | None = None,
    seed: int = 0,
    tol: float = 0.1,
    budget: int | None = None,
) -> tuple[LogPartition, list[Round]]:
    """ln Z by annealing, never by enumeration: lengths double until the bracket closes or the budget is spent.

    ``means_D`` are the visibles' means, for the base of the paths (the machine's own where it is None);
    ``examples`` (n, D) start one more set of chains for the reverse side.
    """
    with _full_precision():
        return _estimate(machine.with_capacity(int(machine.size)), means_D, examples, seed, tol, budget)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Never estimate in TF32, whatever the user has set for training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _estimate(
    machine: Machine, means_D: Tensor | None, examples: Tensor | None, seed: int, tol: float, budget: int | None
) -> tuple[LogPartition, list[Round]]:
    noise = uniform_noise(seed, device=machine.weights.device, dtype=machine.weights.dtype)
    paths = ensemble(machine, _model_means(machine, noise) if means_D is None else means_D)
    densities = {path.name: ais.pilot_density(path, noise) for path in paths}
    rounds: list[Round] = []
    n_points = FIRST_POINTS
    most = max(budget or DEFAULT_BUDGET, FIRST_POINTS)
    with Progress(transient=True, console=Console(stderr=True), disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task("ln Z", total=math.log2(most / FIRST_POINTS) + 1)
        while n_points <= most:
            rounds.append(_round(paths, densities, n_points, examples, noise))
            bar.update(task, advance=1, description=f"ln Z in [{rounds[-1].lower:.2f}, {rounds[-1].upper:.2f}]")
            if rounds[-1].upper - rounds[-1].lower <= tol:
                break
            names = [e.path for e in sorted(rounds[-1].forward, key=_floor, reverse=True)[:KEPT_PATHS]]
            paths = [path for path in paths if path.name in names]
            n_points *= 2
    return verdict(rounds, tol), rounds


def ensemble(machine: Machine, means_D: Tensor) -> list[Path]:
    """Different ways to the same machine: z free and z held deep by two strengths; other bases where z is fixed."""
    base_D = smoothed_log_odds(means_D.to(machine.weights))
    if isinstance(machine.depth, Fixed):
        halfway_D = (base_D + machine.visible_bias) / 2
        return [Path("base of means", machine, base_D), Path("base between means and biases", machine, halfway_D)]
    scale = float(machine.depth.penalties(machine.hidden_bias).mean())
    deep = [Path(f"deep z, pull {p:g}", machine, base_D, pull=p * scale) for p in PULLS]
    return [Path("z free", machine, base_D), *deep]


def smoothed_log_odds(means_D: Tensor) -> Tensor:
    p_D = (1 - SMOOTHING) * means_D + SMOOTHING / 2
    return torch.log(p_D) - torch.log1p(-p_D)


def _model_means(machine: Machine, noise: Noise) -> Tensor:
    """Visible means of chains from noise: a base needs no more than a rough idea of them."""
    v_BD = (noise(CHAINS, machine.n_visible) < 0.5).to(machine.weights.dtype)
    y_B = (noise(CHAINS) * machine.n_classes).long() if machine.n_classes else None
    return machine.gibbs(v_BD, y_B, noise, SWEEPS)[0].mean(0)


def _round(
    paths: list[Path], densities: dict[str, Tensor], n_points: int, examples: Tensor | None, noise: Noise
) -> Round:
    schedules = {p.name: ais.schedule_from(densities[p.name], n_points) for p in paths}
    forward = [ais.forward(p, schedules[p.name], CHAINS, noise) for p in paths]
    best = max(forward, key=_floor)
    path = next(p for p in paths if p.name == best.path)
    schedule = schedules[path.name]
    ladder = ais.schedule_from(densities[path.name], LADDER)
    tempered = temper(path, ladder, _resampled(path, best, TEMPERED, noise), SWEEPS, noise)
    starts = {
        "chains": _mixed(path, _resampled(path, best, CHAINS, noise), noise),
        "tempering": _repeated(path, tempered.states, CHAINS),
    }
    if examples is not None:
        starts["examples"] = _mixed(path, _from_examples(path, examples, noise), noise)
    reverse = [(name, ais.reverse(path, schedule, states, noise)) for name, states in starts.items()]
    return Round(n_points, forward, reverse, float(tempered.swap_rates.min()))


def _resampled(path: Path, estimate: Estimate, n: int, noise: Noise) -> States:
    """Chains drawn by their weights: about the machine's own distribution."""
    cdf = torch.softmax(estimate.log_weights, dim=0).cumsum(0)
    rows = torch.searchsorted(cdf, noise(n).double()).clamp(max=len(cdf) - 1)
    return path.states(estimate.states.v_BD[rows], _at(estimate.states.y_B, rows))


def _repeated(path: Path, states: States, n: int) -> States:
    rows = torch.arange(n, device=states.v_BD.device) % len(states.v_BD)
    return path.states(states.v_BD[rows], _at(states.y_B, rows))


def _from_examples(path: Path, examples: Tensor, noise: Noise) -> States:
    rows = (noise(CHAINS) * len(examples)).long().clamp(max=len(examples) - 1)
    v_BD = examples[rows.to(examples.device)].to(path.machine.weights)
    if not path.machine.n_classes:
        return path.states(v_BD, None)
    return path.states(v_BD, path.machine.log_prob_y(v_BD).argmax(1))


def _mixed(path: Path, states: States, noise: Noise) -> States:
    """The same chains after some sweeps of the machine itself."""
    v_BD, y_B = path.machine.gibbs(states.v_BD, states.y_B, noise, SWEEPS)
    return path.states(v_BD, y_B)


def _at(y_B: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if y_B is None else y_B[rows]


def verdict(rounds: list[Round], tol: float) -> LogPartition:
    """The bracket of the last round, widened by any earlier forward value above it, and whether to believe it."""
    last = rounds[-1]
    # Every forward value is a stochastic lower bound: the largest, of whatever length, is the one to believe.
    # It is taken less its errors: the mean of a few huge weights is large by chance.
    best = max((r.best for r in rounds), key=_floor)
    lower = _floor(best)
    upper = max(last.upper, best.value + ERRORS * best.stderr)
    width = upper - lower
    doubts = []
    if best.ess < LEAST_ESS:
        doubts.append(f"the effective sample size is {best.ess:.1f} of {CHAINS}")
    if lower > last.upper:
        doubts.append(f"{best.n_points} points gave more than {last.n_points} points allow")
    if width > max(tol, RELIABLE_WIDTH):
        doubts.append(f"forward and reverse estimates stay {width:.2f} nats apart after {last.n_points} points")
    closed = f"bracket of {width:.2f} nats at {last.n_points} points"
    tried = (
        f"tried {', '.join(e.path for e in rounds[0].forward)}; reverse from {', '.join(n for n, _ in last.reverse)}"
    )
    tried += f"; least swap rate {last.swap_rate:.2f}"
    reason = "; ".join([*(doubts or [closed]), tried])
    return LogPartition(best.value, best.stderr, lower, upper, best.ess, not doubts, reason, "ais")
