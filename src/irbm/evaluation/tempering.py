"""Parallel tempering over the points of a path: samples of the machine that can leave a mode by heating up."""

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.evaluation.paths import Path, States
from irbm.ops.noise import Noise


class Tempered(NamedTuple):
    """Samples of the machine, and how often neighbouring points changed places: (R - 1,)."""

    states: States
    swap_rates: Tensor


def temper(path: Path, points_R: Tensor, start: States, n_sweeps: int, noise: Noise) -> Tempered:
    """``n_sweeps`` rounds of a Gibbs sweep and a swap between neighbours; the last point must be s = 1.

    Every point starts from the states given; samples are the chains of the last point, at the end of each of the
    last rounds, as many of each as there are chains.
    """
    n, n_points = len(start.v_BD), len(points_R)
    s_B = points_R.repeat_interleave(n)
    states = path.states(start.v_BD.repeat(n_points, 1), None if start.y_B is None else start.y_B.repeat(n_points))
    accepted = torch.zeros(n_points - 1, dtype=torch.float64, device=points_R.device)
    for sweep in range(n_sweeps):
        states = path.move(states, s_B, path.table(states, s_B), noise)
        states, swapped = _swap(path, states, points_R, sweep % 2, noise)
        accepted += swapped
    cold = slice((n_points - 1) * n, None)
    sample = path.states(states.v_BD[cold], None if states.y_B is None else states.y_B[cold])
    return Tempered(sample, accepted * 2 / max(n_sweeps, 1))


def _swap(path: Path, states: States, points_R: Tensor, parity: int, noise: Noise) -> tuple[States, Tensor]:
    """Exchange chains between the points (parity, parity + 1), (parity + 2, ...) by Metropolis' rule."""
    n_points = len(points_R)
    n = len(states.v_BD) // n_points
    index_RN = torch.arange(n_points * n, device=points_R.device).view(n_points, n)
    low = torch.arange(parity, n_points - 1, 2, device=points_R.device)
    if not len(low):
        return states, torch.zeros(n_points - 1, dtype=torch.float64, device=points_R.device)
    up_N, down_N = index_RN[low].flatten(), index_RN[low + 1].flatten()
    s_low, s_high = points_R[low].repeat_interleave(n), points_R[low + 1].repeat_interleave(n)

    def gain(rows: Tensor, there: Tensor, here: Tensor) -> Tensor:
        part = States(*(None if t is None else t[rows] for t in states))  # type: ignore[arg-type]
        return path.log_f(part, there, path.table(part, there)) - path.log_f(part, here, path.table(part, here))

    log_ratio = gain(up_N, s_high, s_low) + gain(down_N, s_low, s_high)
    yes = torch.log(noise(len(up_N))) < log_ratio
    source = index_RN.flatten().clone()
    source[up_N[yes]], source[down_N[yes]] = down_N[yes], up_N[yes]
    rates = torch.zeros(n_points - 1, dtype=torch.float64, device=points_R.device)
    rates[low] = yes.view(len(low), n).double().mean(1)
    y_B = None if states.y_B is None else states.y_B[source]
    return path.states(states.v_BD[source], y_B), rates
