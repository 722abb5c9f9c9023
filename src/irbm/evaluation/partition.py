"""ln Z, exact: by summing over every state of the smaller side.

Shapes: B states of one chunk, K = l hidden units, D visible units, C classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from irbm.models import Machine

MAX_STATES = 2**25
MAX_WORK = 2**31  # states times units that "auto" is ready to sum over: a minute or three
MAX_ENERGY = 1e300  # up to here no sum or difference of energies overflows
CHUNK_BYTES = 2**26
SHOW_PROGRESS_FROM = 2**18  # states; below, the sum is over before a bar is drawn


@dataclass(frozen=True)
class Trial:
    """One annealing run on the way to an estimate: forward along a path, back from a kind of start, or both at once."""

    side: str  # "forward", "reverse" or "both"
    name: str  # of the path, or of the start
    n_points: int
    n_chains: int
    value: float
    stderr: float
    ess: float


@dataclass(frozen=True)
class LogPartition:
    """An estimate of ln Z, and how far it may be believed.

    Attributes
    ----------
    value : float
        The estimate, in nats.
    stderr : float
        Its standard error; 0 where it is exact.
    lower, upper : float
        The bracket: forward estimates are lower bounds in expectation, known states are one for certain; reverse
        estimates, and both sides together, which narrow it, are evidence.
    ess : float
        The effective sample size: how many chains share the weight of the best forward estimate, or, where it is by
        both sides together, that of the side that has fewer.
    reliable : bool
        The verdict. Do not quote a likelihood from an estimate where it is False.
    reason : str
        Why, and what was tried.
    method : str
        "exact" or "ais".
    trials : tuple of Trial
        Every annealing run on the way; none where ln Z is exact.
    """

    value: float
    stderr: float
    lower: float
    upper: float
    ess: float
    reliable: bool
    reason: str
    method: str
    trials: tuple[Trial, ...] = ()


def is_small(machine: Machine) -> bool:
    """Whether enumeration is within the limit and takes seconds rather than hours."""
    n_visible, n_hidden = machine.n_visible, int(machine.size)
    states: int = 2 ** min(n_visible, n_hidden)
    return states <= MAX_STATES and states * max(n_visible, n_hidden) * max(machine.n_classes, 1) <= MAX_WORK


def check_finite(machine: Machine) -> None:
    """A machine that diverged has no ln Z: no verdict on one may come out of comparisons that are false for NaN."""
    for name, tensor in machine.tensors().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must hold finite numbers for ln Z; this machine has diverged")
    if not largest_energy(machine) < MAX_ENERGY:
        raise ValueError(f"energies must stay below {MAX_ENERGY:g} for ln Z; parameters of this machine overflow")


def largest_energy(machine: Machine) -> float:
    """What no energy exceeds: all parameters and penalties, whatever their signs, added up."""
    terms = [t for t in machine.tensors().values() if t.is_floating_point()]
    terms.append(machine.depth.penalties(machine.hidden_bias))
    return sum(float(t.double().abs().sum()) for t in terms)


def exact(machine: Machine) -> LogPartition:
    """ln Z by enumeration of the visible or the hidden units, whichever are fewer."""
    check_finite(machine)
    n_visible, n_hidden = machine.n_visible, int(machine.size)
    if 2 ** min(n_visible, n_hidden) > MAX_STATES:
        raise ValueError(
            f"exact ln Z of {n_visible} visible and {n_hidden} hidden units needs 2^{min(n_visible, n_hidden)} "
            f"states, the limit is 2^{int(math.log2(MAX_STATES))}; use method='ais'"
        )
    if n_visible <= n_hidden:
        value, side = sum_over_visible(machine), f"2^{n_visible} visible"
    else:
        value, side = sum_over_hidden(machine), f"2^{n_hidden} hidden"
    return LogPartition(value, 0.0, value, value, math.inf, True, f"summed over all {side} states", "exact")


def sum_over_visible(machine: Machine) -> float:
    """ln Z = ln sum_v e^{-F(v)}. Eq. 3."""
    machine = machine.to(dtype=torch.float64)

    def log_terms(v_BD: Tensor) -> Tensor:
        return -machine.free_energy(v_BD)

    width = machine.capacity * max(machine.n_classes, 1)
    return _log_sum(log_terms, machine.n_visible, width, machine.weights.device)


def sum_over_hidden(machine: Machine) -> float:
    """ln Z = ln sum_h e^{c.h} w(h) sum_v e^{(b + hW).v} sum_y e^{d_y + (hU)_y}, with h over positions.

    w(h) = sum of e^{-sum_{i<=z} beta_i} over the z that h allows: those from its last active position on, the
    tail included, whose units are summed out already.
    """
    machine = machine.to(dtype=torch.float64).with_capacity(int(machine.size))
    log_w_K = _log_weight_from(machine)
    bias_K = machine.hidden_bias[machine.order]
    position_K = torch.arange(1, machine.capacity + 1, device=bias_K.device)

    def log_terms(h_BK: Tensor) -> Tensor:
        by_unit_BK = h_BK[:, machine.rank]
        last_B = (h_BK * position_K).amax(-1).long().clamp(min=1)
        log_p_B = h_BK @ bias_K + log_w_K[last_B - 1]
        log_p_B = log_p_B + machine.visible.log_normaliser(machine.visible_field(by_unit_BK))
        if machine.n_classes:
            log_p_B = log_p_B + torch.logsumexp(machine.label_field(by_unit_BK), dim=-1)
        return log_p_B

    return _log_sum(log_terms, machine.capacity, machine.n_visible, bias_K.device)


def _log_weight_from(machine: Machine) -> Tensor:
    """ln sum_{z>=k} e^{-sum_{i<=z} beta_i} for k = 1..K."""
    beta_K = machine.depth.penalties(machine.hidden_bias)[machine.order]
    log_w_Z = machine.depth.table(-beta_K, machine.size)
    return torch.logcumsumexp(log_w_Z.flip(0), dim=0).flip(0)[:-1]


def _log_sum(log_terms: Callable[[Tensor], Tensor], n_bits: int, width: int, device: torch.device) -> float:
    """ln of the sum of e^{log_terms(state)} over all binary states of n_bits, in chunks of bounded memory."""
    n_states = 2**n_bits
    rows = max(1, CHUNK_BYTES // (8 * max(width, n_bits)))
    console = Console(stderr=True)
    quiet = n_states < SHOW_PROGRESS_FROM or not console.is_terminal
    starts = track(range(0, n_states, rows), "summing every state", console=console, disable=quiet, transient=True)
    total = torch.tensor(-math.inf, dtype=torch.float64, device=device)
    bit_of = torch.arange(n_bits, device=device)
    for start in starts:
        index = torch.arange(start, min(start + rows, n_states), device=device)
        states = ((index[:, None] >> bit_of) & 1).double()
        total = torch.logaddexp(total, torch.logsumexp(log_terms(states), dim=0))
    return float(total)
