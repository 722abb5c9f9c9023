"""Machines whose ln Z is known exactly, easy and hard, to judge estimates of it by.

Small ones are summed over every state. Large ones repeat one or two filters, so that a state of the hidden units
matters only through how many of each kind are on; or all their units but a few see a single visible each, so that the
visibles are independent once it is known which of those few are on.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from irbm.evaluation import partition
from irbm.models import Depth, Fixed, Infinite, Machine, Ordered

Rng = np.random.Generator
Array = NDArray[np.float64]


class Known(NamedTuple):
    """A machine and its true ln Z."""

    name: str
    machine: Machine
    log_z: float


DEPTHS = (Fixed(), Ordered(), Infinite(), Infinite(1.1), Infinite(1.05, "softplus"))


def machines(kinds: Sequence[str], seed: int = 0, per_kind: int = 3) -> Iterator[Known]:
    """Machines of these kinds with every depth, ``per_kind`` of each."""
    for kind in kinds:
        for depth in DEPTHS:
            yield from (known(kind, depth, seed, n) for n in range(per_kind))


def known(kind: str, depth: Depth, seed: int, n: int) -> Known:
    """The n-th machine of a kind and a depth."""
    return KINDS[kind](np.random.default_rng([seed, *f"{kind} {depth}".encode(), n]), depth)


def _machine(depth: Depth, weights: Array, hidden_bias: Array, visible_bias: Array, **labels: Array) -> Machine:
    tensors = {"weights": weights, "hidden_bias": hidden_bias, "visible_bias": visible_bias} | labels
    return Machine(
        **{name: torch.from_numpy(np.ascontiguousarray(value, dtype=np.float64)) for name, value in tensors.items()},  # type: ignore[arg-type]
        order=torch.arange(len(hidden_bias)),
        size=torch.tensor(len(hidden_bias)),
        depth=depth,
    )


def _name(kind: str, machine: Machine) -> str:
    depth = machine.depth
    return f"{kind}, {type(depth).__name__}{tuple(vars(depth).values())}, {machine.n_visible} x {machine.capacity}"


def _summed(kind: str, machine: Machine) -> Known:
    return Known(_name(kind, machine), machine, partition.exact(machine).value)


# -- small enough to sum ------------------------------------------------------------------------------------


def plain(rng: Rng, depth: Depth) -> Known:
    """Normal parameters, from weak to sharp."""
    D, K = int(rng.integers(6, 15)), int(rng.choice([5, 20, 60, 300]))
    scale = rng.choice([0.3, 1.0, 2.0]) / math.sqrt(K / 5)
    return _summed("plain", _machine(depth, rng.normal(0, scale, (K, D)), rng.normal(0, 1, K), rng.normal(0, 1, D)))


def labelled(rng: Rng, depth: Depth) -> Known:
    """The same with three labels."""
    D, K = int(rng.integers(5, 12)), int(rng.choice([5, 30]))
    weights, label_weights = rng.normal(0, 1, (K, D)), rng.normal(0, 1, (K, 3))
    labels = {"label_weights": label_weights, "label_bias": rng.normal(0, 1, 3)}
    return _summed("labelled", _machine(depth, weights, rng.normal(0, 1, K), rng.normal(0, 1, D), **labels))


def deep_trap(rng: Rng, depth: Depth) -> Known:
    """300 units of one pattern, which is far from where the visibles' biases lead, and worth it only in the end.

    With a depth, units cost more than they are worth everywhere else, so that noise keeps z small. Without, the units
    hold the opposite pattern nearly as firmly, and the biases make it the heavier one until late on a path.
    """
    D, K = 16, 300
    on = rng.permutation(np.arange(D) < D // 2)
    strength, wanted = rng.uniform(0.6, 1.0), rng.uniform(3, 12)
    against = rng.uniform(1.5, 2.5, D)
    if isinstance(depth, Fixed):
        weights = np.where(on, strength, -strength) + rng.normal(0, 0.005, (K, D))
        match, opposite = (weights * on).sum(1), (weights * ~on).sum(1)
        c = rng.uniform(0.54, 0.58) * (match - opposite) - match
        ahead = (np.logaddexp(0, match + c) - np.logaddexp(0, opposite + c)).sum()
        against *= (ahead - wanted) / against.sum()
    else:
        c = rng.uniform(0.0, 0.3, K)
        if getattr(depth, "penalty", None) == "constant":  # units may be off by themselves: they cost the same
            c -= 1.2
        each = depth.penalties(torch.from_numpy(c)).numpy()

        def excess(rise: float) -> float:
            return float((np.logaddexp(0, c + rise) - each).sum() - np.logaddexp(0, against).sum()) - wanted

        weights = np.where(on, brentq(excess, 0.0, 10.0) / on.sum(), -strength) + rng.normal(0, 0.005, (K, D))
    return _summed("deep trap", _machine(depth, weights, c, np.where(on, -against, against)))


def multimodal(rng: Rng, depth: Depth) -> Known:
    """Patterns that groups of strong units hold against each other, with barriers of many nats."""
    D, groups, each = 16, int(rng.integers(2, 9)), int(rng.integers(2, 6))
    patterns = rng.integers(0, 2, (groups, D))
    mine = np.repeat(patterns, each, axis=0)[rng.permutation(groups * each)]
    strength = float(rng.uniform(1.0, 3.0))
    weights = np.asarray(strength * (2 * mine - 1), dtype=np.float64)
    hidden_bias = -(weights * mine).sum(1) + rng.uniform(1.0, 6.0) + rng.normal(0, 0.3, len(mine))
    return _summed("multimodal", _machine(depth, weights, hidden_bias, rng.normal(0, 0.5, D)))


def narrow(rng: Rng, depth: Depth) -> Known:
    """A broad cloud, and one state that one unit alone makes about as heavy as everything else."""
    D, K = int(rng.integers(10, 17)), 12
    weights, hidden_bias = rng.normal(0, 0.3, (K, D)), rng.normal(0, 0.5, K)
    state, worth = rng.integers(0, 2, D), D * math.log(2) + rng.uniform(-1, 4)
    weights[0] = 2 * worth * (2 * state - 1)
    hidden_bias[0] = worth - weights[0] @ state
    return _summed("narrow", _machine(depth, weights, hidden_bias, rng.normal(0, 0.3, D)))


# -- repeated filters ---------------------------------------------------------------------------------------


def one_filter(rng: Rng, depth: Depth) -> Known:
    """784 x 300, every unit alike: all on at the pattern, or all off in the noise, with a wide barrier between."""
    b = np.full(784, rng.uniform(-2.5, -1.0))
    return _counted("one filter", depth, [_filter(rng, depth, b, 300)], np.zeros(300, int), b)


def two_filters(rng: Rng, depth: Depth) -> Known:
    """784 x 300, units of two kinds, mixed or one kind after the other."""
    b = np.full(784, rng.uniform(-2.5, -1.0))
    kinds = np.arange(300) % 2 if rng.random() < 0.5 else np.arange(300) // 150
    return _counted("two filters", depth, [_filter(rng, depth, b, 150) for _ in range(2)], kinds, b)


def _filter(rng: Rng, depth: Depth, b: Array, units: int) -> tuple[Array, float]:
    """Weights and bias of so many units alike, which hold a pattern that outweighs the noise by -3 to 40 nats."""
    on = rng.random(len(b)) < rng.uniform(0.2, 0.5)
    w = np.where(on, rng.uniform(0.01, 0.03), -rng.uniform(0.0, 0.02)) * 300 / units
    wanted = rng.uniform(-3, 40)
    n_N = np.arange(units + 1)
    log_v_N = np.logaddexp(0, b + n_N[:, None] * w).sum(1) + _log_binomials(np.array([units]), n_N[:, None])

    def excess(c: float) -> float:
        each = float(depth.penalties(torch.tensor([c], dtype=torch.float64)))
        pattern = logsumexp((log_v_N + c * n_N)[units // 4 :]) - units * each
        noise = log_v_N[0] + max(0.0, units * (float(np.logaddexp(0, c)) - each))
        return float(pattern - noise) - wanted

    return w, float(brentq(excess, -30.0, 10.0))


def _counted(kind: str, depth: Depth, filters: list[tuple[Array, float]], kinds: NDArray[np.int64], b: Array) -> Known:
    """ln Z = ln sum_z e^{-sum beta} sum over counts n_f of the units that are on, with binomial weights."""
    weights = np.stack([filters[k][0] for k in kinds])
    hidden_bias = np.array([filters[k][1] for k in kinds])
    machine = _machine(depth, weights, hidden_bias, b)
    available_ZF = np.stack([np.cumsum(kinds == f) for f in range(len(filters))], axis=1)
    counts = [np.arange(n + 1) for n in available_ZF[-1]]
    grid = np.meshgrid(*counts, indexing="ij")
    n_NF = np.stack([g.ravel() for g in grid], axis=1)
    fields = b + sum(n_NF[:, [f]] * filters[f][0] for f in range(len(filters)))
    log_v_N = np.logaddexp(0, fields).sum(1) + sum(n_NF[:, f] * filters[f][1] for f in range(len(filters)))
    own_Z = np.array([logsumexp(log_v_N + _log_binomials(available, n_NF)) for available in available_ZF])
    return _over_depths(kind, machine, own_Z)


def _over_depths(kind: str, machine: Machine, own_Z: Array) -> Known:
    """ln Z from the sums over v and h of the first z units, for every z up to l: (l,)."""
    depth = machine.depth
    penalty_Z = np.cumsum(depth.penalties(machine.hidden_bias).numpy())
    table = np.append(own_Z - penalty_Z, own_Z[-1] - penalty_Z[-1] + depth.tail)
    if isinstance(depth, Fixed):
        table = table[-2:-1]
    return Known(_name(kind, machine), machine, float(logsumexp(table)))


def _log_binomials(available_F: NDArray[Any], n_NF: NDArray[Any]) -> Array:
    """ln prod_f C(available_f, n_f), -inf where there are not as many."""
    rest_NF = available_F - n_NF
    with np.errstate(invalid="ignore"):
        terms = gammaln(available_F + 1.0) - gammaln(n_NF + 1.0) - gammaln(np.maximum(rest_NF, 0) + 1.0)
    return np.asarray(np.where(rest_NF < 0, -np.inf, terms).sum(1))


# -- units of one visible each ------------------------------------------------------------------------------


def needle(rng: Rng, depth: Depth) -> Known:
    """100 x 801: fair coins, each held by eight units, and one state that one unit alone makes as heavy as all else."""
    weights, b, (needle,) = _coins(rng, 100, 8, 1)
    state = rng.integers(0, 2, 100)
    weights[needle] = 4.0 * (2 * state - 1)
    return _narrow_among_coins("needle", rng, depth, weights, b, [needle])


def company(rng: Rng, depth: Depth) -> Known:
    """64 x 264: fair coins, and one state that eight units make as heavy as all else, together.

    Each of them sees half of the visibles. One alone, or any few, would be better off without.
    """
    weights, b, company = _coins(rng, 64, 4, 8)
    state = rng.integers(0, 2, 64)
    for unit in company:
        weights[unit] = 1.5 * (2 * state - 1) * rng.permutation(np.arange(64) < 32)
    return _narrow_among_coins("company", rng, depth, weights, b, company)


def _coins(rng: Rng, n_visible: int, each: int, others: int) -> tuple[Array, Array, list[int]]:
    """Visibles that are fair coins though so many units hold each, with places left among the units for others."""
    K = n_visible * each + others
    places = rng.choice(K, others, replace=False)
    weights = np.zeros((K, n_visible))
    weights[np.delete(np.arange(K), places), np.arange(n_visible * each) // each] = rng.choice([-4.0, 4.0], K - others)
    return weights, -(np.logaddexp(0, weights) - math.log(2)).sum(0), places.tolist()


def _narrow_among_coins(kind: str, rng: Rng, depth: Depth, weights: Array, b: Array, units: list[int]) -> Known:
    """What these units make when all of them are on is worth as much as all else, give or take a few nats.

    To fair coins each of them, off or on, is as likely as any other.
    """
    hidden_bias = np.zeros(len(weights))
    worth = len(b) * math.log(2) + rng.uniform(-1, 4)
    usual = weights[units].sum(1) / 2
    hidden_bias[units] = (worth - np.logaddexp(0, weights[units].sum(0)).sum() + usual.sum()) / len(units) - usual
    return _independent(kind, _machine(depth, weights, hidden_bias, b), units)


def _independent(kind: str, machine: Machine, units: Sequence[int]) -> Known:
    """ln Z = ln sum_z e^{-sum beta} sum over these units' states of a product over visibles; others see one visible."""
    weights, hidden_bias, b = (t.numpy() for t in (machine.weights, machine.hidden_bias, machine.visible_bias))
    sees = (weights != 0) & ~np.isin(np.arange(len(weights)), units)[:, None]
    off_ZD = np.cumsum(np.where(sees, np.logaddexp(0, hidden_bias)[:, None], 0), axis=0)
    on_ZD = b + np.cumsum(np.where(sees, np.logaddexp(0, hidden_bias[:, None] + weights), 0), axis=0)
    own_Z = np.full(len(weights), -np.inf)
    for chosen in product([False, True], repeat=len(units)):
        on = np.asarray(units)[list(chosen)]
        first = on.max(initial=0)  # of the positions from which z allows all of them
        log_p_Z = hidden_bias[on].sum() + np.logaddexp(off_ZD, on_ZD + weights[on].sum(0)).sum(1)
        own_Z[first:] = np.logaddexp(own_Z, log_p_Z)[first:]
    return _over_depths(kind, machine, own_Z)


Kind = Callable[[Rng, Depth], Known]
SUITES: dict[str, dict[str, Kind]] = {
    "small": {f.__name__: f for f in (plain, labelled, deep_trap, multimodal, narrow)},
    "large": {f.__name__: f for f in (one_filter, two_filters)},
    "needle": {"needle": needle},
    "company": {"company": company},
}
KINDS = {name: kind for suite in SUITES.values() for name, kind in suite.items()}
