"""The estimate of record of ln Z: forward values of several paths, reverse ones, and both sides of a path at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from irbm.evaluation import ais, modes
from irbm.evaluation.ais import Estimate, Pilot
from irbm.evaluation.bridge import Bridge, bridge
from irbm.evaluation.partition import LogPartition, Trial, check_finite, largest_energy
from irbm.evaluation.paths import Path, States
from irbm.evaluation.precision import full_precision
from irbm.evaluation.tempering import temper
from irbm.models import Fixed, Frozen, Machine
from irbm.ops.noise import Noise, uniform_noise

CHAINS, CHAINS_ON_GPU = 400, 1600  # as many as a GPU carries in little more than the time of a few
PILOT_SHARE = 3  # one in so many of them runs ahead, to set schedules
FIRST_POINTS = 500
DEFAULT_BUDGET = 8000  # points of the longest schedule with the first number of chains, or as much work with more
REFITS = 2  # rounds after which samples of the machine make new parts of the base
ENOUGH_ESS = 1 / 3  # of the chains: from there on doubling them is worth more than doubling the points
WORTH = 1.5  # by how much doubling the points must have bettered things to be done again
KEPT_PATHS = 2  # that go on to longer schedules
PULL = 0.3  # of the mean penalty, which z pays for each unit that it leaves out
CLAMP = 40.0  # nats more than a unit can cost, which z pays for each where it is clamped
ERRORS = 4.0  # standard errors on either side of an estimate; the value is the best of several
LEAST_ESS = 20.0
LEAST_POINTS = 100  # of a path that may be believed: on a shorter one both sides see little but the base
FLOAT32_ROUNDING = 2.0**-24
ROUNDING = 0.01  # nats by which rounded parameters may give known states too much, or runs too little
FOR_STEPS = 0  # the last part of a key, which steps count on from
RELIABLE_WIDTH = 0.5
SUPERSEDED = 4  # times a round's work, from which on it is no contradiction that it found less
LADDER = 16  # points; as many chains at each as make the others' number in all
SWEEPS = 200  # of tempering, and at least of what the reverse side starts from


@dataclass(frozen=True, eq=False)
class Round:
    """What one length of schedule found."""

    n_points: int
    n_chains: int
    forward: list[Estimate]
    reverse: list[tuple[str, Estimate]]
    swap_rate: float
    samples_BD: Tensor  # of the machine, as far as they can be had
    both: Bridge | None = None  # sides of the best path at once

    @property
    def best(self) -> Estimate:
        return max(self.forward, key=_floor)

    @property
    def effective(self) -> float:
        """The share of the best path's chains that count, on the side that has fewer."""
        return (self.both or self.best).ess / self.n_chains

    @property
    def precise(self) -> Estimate:
        """The reverse value of the most independent chains."""
        return max((e for _, e in self.reverse), key=lambda e: e.ess)

    @property
    def gap(self) -> float:
        """How far apart the two sides are."""
        return self.both.gap if self.both else abs(self.precise.value - self.best.value)

    @property
    def is_apart(self) -> bool:
        """Whether they are further apart than their errors explain."""
        if self.both:
            return not (self.both.shifts_agree and self.both.starts_agree)
        return self.gap > 2 * math.hypot(self.precise.stderr, self.best.stderr)

    @property
    def work(self) -> int:
        return self.n_points * self.n_chains

    @property
    def definite(self) -> Bridge | None:
        """Both sides at once, where enough chains count and all c say the same."""
        return self.both if self.both and self.both.ess >= LEAST_ESS and self.both.shifts_agree else None

    @property
    def upper(self) -> float:
        """What the most precise reverse value allows, or more where another kind of start says more."""
        return max([_ceiling(self.precise), *(e.value + e.stderr for _, e in self.reverse)])


def _floor(estimate: Estimate) -> float:
    """What a forward estimate is good for as a lower bound."""
    return estimate.value - ERRORS * estimate.stderr


def _ceiling(estimate: Estimate) -> float:
    return estimate.value + ERRORS * estimate.stderr


def _apart(rounds: list[Round], both: Bridge) -> float:
    """How far earlier rounds that are definite are from the last one; below 0: all meet it.

    Such as lie lower and had less than a quarter of its work are no contradiction: too little work finds too little.
    """
    *before, last = rounds
    others = [
        other for r in before if (other := r.definite) and (other.low > both.high or SUPERSEDED * r.work >= last.work)
    ]
    return max((_between(both, other) for other in others), default=-math.inf)


def _between(one: Bridge, other: Bridge) -> float:
    """How far apart two ranges are; below 0 where they meet."""
    return max(one.low - other.high, other.low - one.high)


class Bracket(NamedTuple):
    """What all rounds say: from the largest forward value to what the last round's reverse ones allow.

    Never below what is ``known``: the weight of states that were found. Where both sides of the last round at once say
    something definite, that narrows it. Where runs are contradicted, by known states or by each
    other, nobody knows how much more they have missed: as much again is allowed for.
    """

    value: float
    stderr: float
    ess: float
    lower: float
    upper: float
    missed: float  # nats by which runs are contradicted, where that is above 0
    by_both: bool  # sides together, or by each alone

    @classmethod
    def of(cls, rounds: list[Round], known: float) -> "Bracket":
        # Every forward value is a stochastic lower bound: the largest, of whatever path and length, is the one to
        # believe, less what it may be large by chance. All runs in the first place, or the second, have less of that.
        single = [e for r in rounds for e in r.forward]
        by_place = zip(*(r.forward for r in rounds), strict=True)
        best = max([*single, *(ais.together(runs) for runs in by_place)], key=_floor)
        lower, upper, both = max(_floor(best), known), rounds[-1].upper, rounds[-1].definite
        missed = lower - min(upper, _ceiling(best))
        if both:
            missed = max(missed, lower - both.high, both.low - upper, _apart(rounds, both))
            if not missed > 0:
                high = max(both.high, best.value + best.stderr)
                lower, upper = max(lower, both.low), min(max(upper, _ceiling(best)), high)
                value = min(max(both.value, lower), upper)
                stderr = max(both.stderr, abs(value - both.value))
                return cls(value, stderr, both.ess, lower, upper, missed, True)
            upper = max(upper, both.high)
        value = max(best.value, known)
        stderr = max(best.stderr, value - best.value)
        return cls(value, stderr, best.ess, lower, max(upper, _ceiling(best), lower + missed), missed, False)

    @property
    def width(self) -> float:
        return self.upper - self.lower

    @property
    def contradicted(self) -> bool:
        return self.missed > 0


def estimate(
    machine: Machine,
    *,
    means_D: Tensor | None = None,
    examples: Tensor | None = None,
    seed: int = 0,
    tol: float = 0.1,
    budget: int | None = None,
) -> LogPartition:
    """ln Z by annealing, never by enumeration: the work doubles until the bracket closes or the budget is spent.

    ``means_D`` are the visibles' means, for the base of the paths (the machine's own where it is None);
    ``examples`` (n, D) are starts of the search for modes, and of one more set of chains for the reverse side.
    """
    check_finite(machine)
    if examples is not None and not len(examples):
        examples = None
    with full_precision():
        return _estimate(_working_copy(machine), means_D, examples, seed, tol, budget)


def _working_copy(machine: Machine) -> Machine:
    """The machine's l units in their order; in float32 unless its rounding could add up to a tenth of a nat."""
    machine = machine.selected(machine.order[: int(machine.size)])
    rounding = FLOAT32_ROUNDING * largest_energy(machine)
    return machine.to(dtype=torch.float32 if rounding < 0.1 else torch.float64)


def _estimate(
    machine: Machine, means_D: Tensor | None, examples: Tensor | None, seed: int, tol: float, budget: int | None
) -> LogPartition:
    noise = uniform_noise(seed, FOR_STEPS, device=machine.weights.device, dtype=machine.weights.dtype)
    most = max(2, budget or DEFAULT_BUDGET)
    few = CHAINS_ON_GPU if machine.weights.is_cuda else CHAINS
    n_points, n_chains = min(FIRST_POINTS, most), few
    frozen = Frozen.of(machine)
    rounds: list[Round] = []
    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("ln Z: looking for modes", total=math.log2(most / n_points) + 2)
        found_BD = modes.hunt(machine, means_D, examples, noise)
        known_BD = modes.heaviest(machine, *(states for states in (found_BD, examples) if states is not None))
        known = modes.log_weight(machine, known_BD) - ROUNDING
        means_D = found_BD.mean(0) if means_D is None else means_D.to(machine.weights)
        paths = ensemble(frozen, [found_BD], known_BD, means_D, seed)
        pilots = _best(paths, few // PILOT_SHARE, noise)
        bar.update(task, advance=1)
        while True:
            rounds.append(_round(pilots, n_points, n_chains, examples, noise))
            found = Bracket.of(rounds, known)
            bar.update(task, advance=1, description=f"ln Z in [{found.lower:.2f}, {found.upper:.2f}]")
            if _longer_pays(rounds):
                n_points *= 2
            else:
                n_chains *= 2
            if (found.width <= tol and not found.contradicted) or n_points * n_chains > most * few:
                break
            if len(rounds) <= REFITS:
                paths = ensemble(frozen, [found_BD, rounds[-1].samples_BD], known_BD, means_D, seed)
                pilots = _best(paths, few // PILOT_SHARE, noise)
            else:
                better = {e.path: e.better for e in rounds[-1].forward}
                pilots = [p._replace(path=better[p.path.name]) for p in pilots]
    return verdict(rounds, [path.name for path in paths], tol, known)


def _best(paths: list[Path], n_chains: int, noise: Noise) -> list[Pilot]:
    """Pilot runs along every path, and of those the ones that are worth most less their errors."""
    pilots = [ais.pilot(path, n_chains, noise) for path in paths]
    return sorted(pilots, key=lambda p: _floor(p.estimate), reverse=True)[:KEPT_PATHS]


def _longer_pays(rounds: list[Round]) -> bool:
    """Whether to double the points rather than the chains.

    Points where few chains count, or the two sides differ by more than their errors; but not twice in a row where
    that has brought little: what is left then are modes too far apart for a path of any length to join.
    """
    *before, last = rounds
    if last.effective >= ENOUGH_ESS and not last.is_apart:
        return False
    if not before or last.n_points == before[-1].n_points:
        return True
    return last.effective > WORTH * before[-1].effective or (last.is_apart and WORTH * last.gap < before[-1].gap)


def ensemble(frozen: Frozen, sets: Sequence[Tensor], known_BD: Tensor, means_D: Tensor, seed: int) -> list[Path]:
    """Different ways to the same machine: a base of clusters of states or of means, z free, drawn deep or clamped."""
    machine = frozen.machine
    ways = [
        ("clusters", modes.base_of(machine, sets, known_BD, seed)),
        ("means", modes.mixture(machine, means_D[None])),
    ]
    free = [Path(f"base of {name}", frozen, base) for name, base in ways]
    if isinstance(machine.depth, Fixed):
        return free
    penalties_K = machine.depth.penalties(machine.hidden_bias)
    pull, clamp = PULL * float(penalties_K.mean()), CLAMP + float(penalties_K.max())
    deep = [Path(f"base of {name}, deep z", frozen, base, pull) for name, base in ways]
    clamped = [Path(f"base of {name}, clamped z", frozen, base, clamp, held=True) for name, base in ways]
    return [*free, *deep, *clamped]


def _round(pilots: list[Pilot], n_points: int, n_chains: int, examples: Tensor | None, noise: Noise) -> Round:
    """Forward along every path that is left, and back along the best one from several kinds of start."""
    schedules = {p.path.name: ais.schedule_from(p.density, n_points) for p in pilots}
    forward = [ais.forward(p.path, schedules[p.path.name], n_chains, noise) for p in pilots]
    best = max(forward, key=_floor)
    path, density, _ = next(p for p in pilots if p.path.name == best.path)
    chains, ladders = _resampled(path, best, n_chains, noise), _resampled(path, best, n_chains // LADDER, noise)
    tempered = temper(path, ais.schedule_from(density, LADDER), ladders.states, SWEEPS, n_chains, noise)
    starts = {
        "chains": Starts(_mixed(path, chains.states, n_points, noise), chains.family_B),
        "tempering": Starts(tempered.states, ladders.family_B[tempered.column_B]),
    }
    if examples is not None:
        some = _from_examples(path, examples, n_chains, noise)
        starts["examples"] = Starts(_mixed(path, some.states, n_points, noise), some.family_B)
    schedule = schedules[path.name]
    reverse = [(name, ais.reverse(path, schedule, s.states, noise, s.family_B)) for name, s in starts.items()]
    samples_BD = torch.cat([starts[name].states.v_BD for name in ("chains", "tempering")])
    descended, apart = ([e for name, e in reverse if (name == "examples") == is_apart] for is_apart in (False, True))
    both = bridge(best, descended, ERRORS, apart)  # examples may not be forgotten yet
    return Round(n_points, n_chains, forward, reverse, float(tempered.swap_rates.min()), samples_BD, both)


class Starts(NamedTuple):
    """States to go back from, and which of them have a parent in common."""

    states: States
    family_B: Tensor


def _resampled(path: Path, estimate: Estimate, n: int, noise: Noise) -> Starts:
    """Chains drawn by their weights, at even steps of the sum: about the machine's own distribution."""
    cdf = torch.softmax(estimate.log_weights, dim=0).cumsum(0)
    steps_B = (torch.arange(n, dtype=torch.float64, device=cdf.device) + noise(1).double()) / n
    rows = torch.searchsorted(cdf, steps_B).clamp(max=len(cdf) - 1)
    return Starts(path.of_machine(estimate.states.v_BD[rows], _at(estimate.states.y_B, rows), noise), rows)


def _from_examples(path: Path, examples: Tensor, n: int, noise: Noise) -> Starts:
    rows = modes.any_rows(n, len(examples), noise)
    v_BD = examples[rows.to(examples.device)].to(path.machine.weights)
    y_B = path.machine.log_prob_y(v_BD).argmax(1) if path.machine.n_classes else None
    return Starts(path.of_machine(v_BD, y_B, noise), rows)


def _mixed(path: Path, states: States, n_points: int, noise: Noise) -> States:
    """The same chains after sweeps of the machine itself: as many as the path has points.

    Examples are no samples of the machine before it has forgotten them, and that can take thousands.
    """
    v_BD, y_B = path.frozen.gibbs(states.v_BD, states.y_B, noise, max(SWEEPS, n_points))
    return path.of_machine(v_BD, y_B, noise)


def _at(y_B: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if y_B is None else y_B[rows]


def verdict(rounds: list[Round], paths: list[str], tol: float, known: float = -math.inf) -> LogPartition:
    """The bracket, and whether to believe it; ``known`` is the weight of states that were found."""
    last, bracket = rounds[-1], Bracket.of(rounds, known)
    effort = f"at {last.n_points} points and {last.n_chains} chains"
    trials = tuple(trial for r in rounds for trial in _trials(r))
    are_numbers = math.isfinite(bracket.width) and not any(math.isnan(t.value) for t in trials)
    doubts = [] if are_numbers else ["an estimate is not a finite number"]
    if bracket.ess < LEAST_ESS:
        doubts.append(f"the effective sample size is {bracket.ess:.1f}, of {last.n_chains} chains")
    if last.n_points < LEAST_POINTS:
        doubts.append(f"{last.n_points} points are too few")
    if bracket.contradicted and known == bracket.lower:
        doubts.append(f"states that are known weigh {known:.2f} alone, more than the runs found")
    elif bracket.contradicted and last.definite:
        doubts.append("both sides together gave something else than single ones, or than in a round before")
    elif bracket.contradicted:
        doubts.append("forward runs gave more than the last ones back allow")
    if bracket.width > max(RELIABLE_WIDTH, tol):
        doubts.append(f"forward and reverse estimates stay {bracket.width:.2f} nats apart {effort}")
    elif bracket.width > RELIABLE_WIDTH:
        doubts.append(f"bracket of {bracket.width:.2f} nats {effort}, as wide as tol={tol:g} allows")
    closed = f"bracket of {bracket.width:.2f} nats {effort}{', by both sides together' if bracket.by_both else ''}"
    if bracket.width > tol:
        closed += f", above tol={tol:g}: the budget is spent"
    tried = f"tried {', '.join(paths)}; reverse from {', '.join(n for n, _ in last.reverse)}"
    tried += f"; least swap rate {last.swap_rate:.2f}"
    for e in last.forward:
        if e.value > bracket.upper:  # but not by more than its errors
            tried += f"; {e.value:.2f} along the {e.path}, of {e.ess:.1f} effective chains, is passed over"
    reason = "; ".join([*(doubts or [closed]), tried])
    value, stderr, ess, lower, upper, _, _ = bracket
    return LogPartition(value, stderr, lower, upper, ess, not doubts, reason, "ais", trials)


def _trials(of: Round) -> Iterator[Trial]:
    for side, runs in (("forward", [(e.path, e) for e in of.forward]), ("reverse", of.reverse)):
        for name, e in runs:
            yield Trial(side, name, of.n_points, of.n_chains, e.value, e.stderr, e.ess)
    if of.both:
        yield Trial("both", "sides together", of.n_points, of.n_chains, *of.both[:3])
