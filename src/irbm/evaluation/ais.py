"""Annealed importance sampling along a path, forward and reverse, with the schedule set by a pilot run.

A forward estimate is a stochastic lower bound on ln Z: above it by c nats with probability below e^-c. A reverse
one is an upper bound in the same sense only from exact samples of the machine; from chains it is evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.evaluation.paths import Path, States
from irbm.ops.noise import KeyedStream, Noise
from irbm.ops.recording import repeat
from irbm.ops.reference import Heat

PILOT_POINTS = 256
LEAST_RECORDED = 16  # steps for which recording pays
EVEN_SHARE = 0.2  # of a schedule's points that are spread evenly, wherever the pilot saw no variance
LAST = 0.1  # of a pilot's points, in which 1 - tau falls from the one to 0, by a factor of the one to the other:
NEAR_END, AT_END = 1e-2, 1e-5
FLOAT32_STEP = 2.0**-24  # between numbers below 1 that float32 holds
EVEN_PARTS = 0.2  # of a base that its parts share evenly, whatever an earlier run saw of them


@dataclass(frozen=True, eq=False)
class Estimate:
    """ln Z from one set of weighted chains."""

    path: str
    n_points: int
    value: float
    stderr: float
    ess: float
    states: States  # where the chains ended
    log_weights: Tensor
    better: Path  # for a next run: parts of the base that came to nothing start fewer chains
    family_B: Tensor | None = None  # chains of one family are not independent; None: all are


def forward(path: Path, schedule: Tensor, n_chains: int, noise: Noise) -> Estimate:
    """From exact samples of the path's start to the machine."""
    starts = path.start(n_chains, noise)
    log_w_B, ends, _ = _anneal(path, schedule, starts, noise)
    better = _reweighted(path, starts, log_w_B)
    return _estimate(path, len(schedule), log_mean(log_w_B), log_w_B, ends, better)


def together(runs: Sequence[Estimate]) -> Estimate:
    """Forward runs, along whatever paths, as a single estimate, to which each adds as much as its work.

    How much work they are must not depend on what they find: then the mean stays an unbiased one of Z.
    """
    work_R = torch.tensor([run.n_points * len(run.log_weights) for run in runs], dtype=torch.float64)
    log_z_R = torch.tensor([run.value for run in runs], dtype=torch.float64)
    stderr_R = torch.tensor([run.stderr for run in runs], dtype=torch.float64)
    log_part_R = log_z_R + torch.log(work_R / work_R.sum())
    value, stderr = torch.logsumexp(log_part_R, 0), (torch.softmax(log_part_R, 0) * stderr_R).norm()
    log_w_B = torch.cat([run.log_weights for run in runs])
    return replace(
        runs[-1],
        value=float(value),
        stderr=float(stderr),
        ess=_ess(float(stderr), len(log_w_B)),
        log_weights=log_w_B,
    )


def reverse(path: Path, schedule: Tensor, states: States, noise: Noise, family_B: Tensor | None = None) -> Estimate:
    """From samples of the machine back to the path's start, by the moves of ``forward`` with time turned round.

    Samples of one ``family_B`` come from the same chain: only families are independent of each other.
    """
    log_w_B, ends, _ = _anneal(path, schedule.flip(0), states, noise, back=True)
    return _estimate(path, len(schedule), -log_mean(log_w_B), log_w_B, ends, family_B=family_B)


def _anneal(
    path: Path, schedule: Tensor, states: States, noise: Noise, *, back: bool = False
) -> tuple[Tensor, States, Tensor]:
    """Carry chains along the schedule: log-weights (B,), the states at its end, and the spread of each increment."""
    run = _Annealing(path, schedule, states, noise, back)
    run.to_the_end()
    return run.log_w_B, run.states, run.spread_S


class _Annealing:
    """Chains on their way. What changes lies in fixed places on the device, so that a step can be recorded there."""

    def __init__(self, path: Path, schedule: Tensor, states: States, noise: Noise, back: bool) -> None:
        self._path, self._noise, self._back = path, noise, back
        self._heat_S = path.at(schedule)
        self._at = torch.zeros(1, dtype=torch.int64, device=schedule.device)
        self._n_steps = len(schedule) - 1
        self.states = states
        self.log_w_B = torch.zeros(len(states.v_BD), dtype=torch.float64, device=schedule.device)
        self.spread_S = torch.zeros(self._n_steps, dtype=torch.float64, device=schedule.device)

    def to_the_end(self) -> None:
        if isinstance(self._noise, KeyedStream) and self._n_steps > LEAST_RECORDED:
            self._replay(self._noise)
        else:
            for _ in range(self._n_steps):
                self.states = self._step()

    def _step(self) -> States:
        here, there = self._heat(self._at), self._heat(self._at + 1)
        gain_B, states = self._path.step(self.states, here, there, self._noise, back=self._back)
        self.log_w_B.add_(gain_B)
        self.spread_S.index_copy_(0, self._at, gain_B.std().view(1))
        self._at.add_(1)
        return states

    def _heat(self, at: Tensor) -> Heat:
        return Heat(*(values.index_select(0, at).view(()) for values in self._heat_S))

    def _replay(self, noise: KeyedStream) -> None:
        """A CUDA graph of one step, again and again: its launches cost less than its arithmetic."""
        self.states = States(*(None if t is None else t.clone() for t in self.states))  # type: ignore[arg-type]

        def step_in_place() -> None:
            noise.advance_()
            for old, new in zip(self.states, self._step(), strict=True):
                if old is not None and new is not None:
                    old.copy_(new)

        repeat(step_in_place, self._n_steps, self._at.device)


class Pilot(NamedTuple):
    """What a separate run says about a path: where weights vary, and what the parts of its base are worth."""

    path: Path
    density: Tensor  # the spread of each increment, (PILOT_POINTS - 1,)
    estimate: Estimate


def tau_at(s: Tensor) -> Tensor:
    """The points of a path, from 0 to 1: even at first, but 1 - tau falls by a factor over and over in the last tenth.

    There parts of the base begin to count for states far from them, at 1 - tau as small as these are far: a chain that
    stepped over that would lose their shares. The fall is towards a point a little beyond the end, which it meets.
    """
    even, last = (1 - NEAR_END) * s / (1 - LAST), ((s - (1 - LAST)) / LAST).clamp(min=0)
    ratio = AT_END / NEAR_END
    return torch.where(s < 1 - LAST, even, 1 - NEAR_END * (ratio**last - ratio) / (1 - ratio))


def _held_by_float32(tau: Tensor) -> Tensor:
    """The same points to within 2^-24 or as little more as keeps each above the one before.

    float32 holds these, and 1 less them, exactly: what is computed in it and what in float64 are of the same point.
    """
    at_S = torch.arange(len(tau), dtype=torch.float64, device=tau.device)
    step_S = torch.cummax((tau / FLOAT32_STEP).round() - at_S, dim=0).values + at_S
    return torch.minimum(step_S, 1 / FLOAT32_STEP - at_S.flip(0)) * FLOAT32_STEP


def pilot(path: Path, n_chains: int, noise: Noise) -> Pilot:
    """A short run along even points, for the schedule and the base of the runs that count."""
    even = torch.linspace(0, 1, PILOT_POINTS, dtype=torch.float64, device=path.base.bias_MD.device)
    states = path.start(n_chains, noise)
    log_w_B, ends, density = _anneal(path, _held_by_float32(tau_at(even)), states, noise)
    estimate = _estimate(path, PILOT_POINTS, log_mean(log_w_B), log_w_B, ends)
    if path.held:
        density[-1] = density[-2]  # the rest of its spread is of letting go, which no points before it make less
    return Pilot(_reweighted(path, states, log_w_B), density, estimate)


def _reweighted(path: Path, starts: States, log_w_B: Tensor) -> Path:
    """The path with the parts of its base weighted by what came of the chains that started there.

    What was thought of a part before counts as much as one effective chain for each.
    """
    before_M, weight_B = path.base.log_share_M.exp(), torch.softmax(log_w_B, dim=0)
    n_parts, ess = len(before_M), 1 / (weight_B**2).sum()
    seen_M = torch.zeros_like(before_M).index_add_(0, starts.part_B, weight_B)
    share_M = (n_parts * before_M + ess * seen_M) / (n_parts + ess)
    share_M = EVEN_PARTS / n_parts + (1 - EVEN_PARTS) * share_M
    return replace(path, base=path.base._replace(log_share_M=torch.log(share_M)))


def schedule_from(density: Tensor, n_points: int) -> Tensor:
    """Points of the path, denser where the pilot saw more variance: increments of about equal spread."""
    share = density / density.sum() if density.sum() > 0 else torch.full_like(density, 1 / len(density))
    share = (1 - EVEN_SHARE) * share + EVEN_SHARE / len(density)
    cumulative = torch.cat([share.new_zeros(1), share.cumsum(0)]).clamp(max=1.0)
    cumulative[-1] = 1.0
    wanted = torch.linspace(0, 1, n_points, dtype=torch.float64, device=density.device)
    at = torch.searchsorted(cumulative, wanted).clamp(1, len(density))
    low, high = cumulative[at - 1], cumulative[at]
    within = torch.where(high > low, (wanted - low) / (high - low), 0.0)
    return _held_by_float32(tau_at(((at - 1) + within) / len(density)))


def _estimate(
    path: Path,
    n_points: int,
    value: float,
    log_w_B: Tensor,
    ends: States,
    better: Path | None = None,
    family_B: Tensor | None = None,
) -> Estimate:
    stderr, n_families = _stderr(log_w_B, family_B)
    ess = _ess(stderr, n_families)
    return Estimate(path.name, n_points, value, stderr, ess, ends, log_w_B, better or path, family_B)


def _ess(stderr: float, n: int) -> float:
    """How many even weights have the standard error that n of these have."""
    return 1 / (stderr**2 * (1 - 1 / max(n, 2)) + 1 / n)


def _stderr(log_w_B: Tensor, family_B: Tensor | None) -> tuple[float, int]:
    """The standard error of the log of the mean weight, from the sums over each family, and how many there are."""
    n = len(log_w_B)
    off_B = n * torch.softmax(log_w_B, dim=0) - 1
    if family_B is not None:
        distinct_F, which_B = torch.unique(family_B, return_inverse=True)
        off_B = off_B.new_zeros(len(distinct_F)).index_add_(0, which_B, off_B)
    families = len(off_B)
    if families == 1:
        return 1.0, 1  # as of many weights of which one is all that counts
    return float((off_B**2).sum().sqrt()) / n * math.sqrt(families / (families - 1)), families


def log_mean(log_w_B: Tensor) -> float:
    return float(torch.logsumexp(log_w_B, dim=0)) - math.log(len(log_w_B))
