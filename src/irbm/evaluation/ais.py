"""Annealed importance sampling along a path, forward and reverse, with the schedule set by a pilot run.

A forward estimate is a stochastic lower bound on ln Z: above it by c nats with probability below e^-c. A reverse
one is an upper bound in the same sense only from exact samples of the machine; from chains it is evidence.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from irbm.evaluation.paths import Path, States
from irbm.ops.noise import Noise

PILOT_CHAINS = 64
PILOT_POINTS = 256
EVEN_SHARE = 0.2  # of a schedule's points that are spread evenly, wherever the pilot saw no variance


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


def forward(path: Path, schedule: Tensor, n_chains: int, noise: Noise) -> Estimate:
    """From exact samples of the path's start to the machine."""
    states = path.start(n_chains, noise)
    log_w_B, states, _ = _anneal(path, schedule, states, noise)
    return _estimate(path, len(schedule), path.log_start() + _log_mean(log_w_B), log_w_B, states)


def reverse(path: Path, schedule: Tensor, states: States, noise: Noise) -> Estimate:
    """From samples of the machine back to the path's start."""
    log_w_B, states, _ = _anneal(path, schedule.flip(0), states, noise)
    return _estimate(path, len(schedule), path.log_start() - _log_mean(log_w_B), log_w_B, states)


def _anneal(path: Path, schedule: Tensor, states: States, noise: Noise) -> tuple[Tensor, States, Tensor]:
    """Carry chains along the schedule: log-weights (B,), the states at its end, and the spread of each increment."""
    log_w_B = torch.zeros(len(states.v_BD), dtype=torch.float64, device=schedule.device)
    spread = torch.zeros(len(schedule) - 1, dtype=torch.float64, device=schedule.device)
    for k in range(1, len(schedule)):
        here, there = schedule[k - 1], schedule[k]
        t_here, t_there = path.table(states, here), path.table(states, there)
        step_B = path.log_f(states, there, t_there) - path.log_f(states, here, t_here)
        log_w_B += step_B
        spread[k - 1] = step_B.std()
        states = path.move(states, there, t_there, noise)
    return log_w_B, states, spread


def pilot_density(path: Path, noise: Noise) -> Tensor:
    """Where along the path weights vary: the spread of the increments of a short separate run, (PILOT_POINTS - 1,)."""
    even = torch.linspace(0, 1, PILOT_POINTS, dtype=torch.float64, device=path.base_D.device)
    return _anneal(path, even, path.start(PILOT_CHAINS, noise), noise)[2]


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
    return ((at - 1) + within) / len(density)


def _estimate(path: Path, n_points: int, value: float, log_w_B: Tensor, states: States) -> Estimate:
    w_B = torch.softmax(log_w_B, dim=0)
    n = len(w_B)
    stderr = float(w_B.std() * n / math.sqrt(n)) if n > 1 else math.inf
    return Estimate(path.name, n_points, value, stderr, float(1 / (w_B**2).sum()), states, log_w_B)


def _log_mean(log_w_B: Tensor) -> float:
    return float(torch.logsumexp(log_w_B, dim=0)) - math.log(len(log_w_B))
