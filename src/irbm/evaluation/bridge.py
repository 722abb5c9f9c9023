"""ln Z from both sides of a path at once, by Bennett's acceptance ratio.

Chains that go forward and chains that come back by the same moves, time turned round, tell the same story: with x the
log-weight of a path of states that was gone forward, and y that of one that was gone back (less the log-weight that it
was given on its way),

    p_back(x) = p_forward(x) e^x / Z            so that, for every c,
    E_forward[ s(x - c) ] = Z e^-c E_back[ s(c - y) ]

One side alone must wait for its rare chains: c far above ln Z makes this the forward estimate, c far below the one that
goes back. With c at ln Z both are asked about the chains that they have in common, of which there are many. The error
is the least of all c where that is ln Z + ln (n_forward / n_back).

It holds as far as those that come back started from samples of the machine. Where they did not, or where chains were
trapped on the way, different c, or different kinds of start, say different things, and they are looked at for that.
Other c see what is wrong with all starts alike, and see a part of it only: they must agree. Kinds of start that differ
by more than errors explain widen what is said.

Shapes: B chains that went forward, R that came back, N families: chains that descend from one another.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from irbm.evaluation import ais
from irbm.evaluation.ais import Estimate

SHIFT = 2.0  # nats on either side of the best c, at which the same must come out
HALVINGS = 60
AGREED = 2.0  # errors of a difference by which another look may be off
BEYOND = 2.0  # such errors past what another look says, to which the range reaches
UNEXPLAINED = 3.0  # times as far it reaches where a kind of start is further off


class Bridge(NamedTuple):
    """ln Z by what both sides have in common; from ``low`` to ``high`` lies what every look at it says."""

    value: float
    stderr: float
    ess: float  # of the side that has fewer chains that count
    low: float
    high: float
    gap: float  # how far the values of other c are from the best one's
    shifts_agree: bool  # whether other c say the same, by the errors of differences
    starts_agree: bool  # whether all kinds of start do


class Look(NamedTuple):
    """ln Z by one c, and what each family adds to it."""

    value: float
    influence_N: Tensor
    ess: float

    @property
    def stderr(self) -> float:
        return _error(self.influence_N)

    def differs(self, other: "Look") -> tuple[float, float]:
        """By how much, and the error of that: looks at the same chains err together."""
        return self.value - other.value, _error(self.influence_N - other.influence_N)


def _error(influence_N: Tensor) -> float:
    """The standard error of a sum over families; 1 where there is a single one, as nothing is known of others."""
    n = len(influence_N)
    return float(influence_N.norm()) * math.sqrt(n / (n - 1)) if n > 1 else 1.0


class Sides(NamedTuple):
    """Log-weights of chains that went forward and of those that came back, and the families that these descend from."""

    x_B: Tensor
    y_R: Tensor
    family_R: Tensor  # below B: of a forward chain's
    n_families: int

    def look(self, c: float) -> Look:
        f_B, r_R = torch.softmax(F.logsigmoid(self.x_B - c), 0), torch.softmax(F.logsigmoid(c - self.y_R), 0)
        influence_N = f_B.new_zeros(self.n_families)
        influence_N[: len(f_B)] = f_B - 1 / len(f_B)
        influence_N.index_add_(0, self.family_R, 1 / len(r_R) - r_R)
        by_family_N = r_R.new_zeros(self.n_families).index_add_(0, self.family_R, r_R)
        ess = min(1 / float((f_B**2).sum()), 1 / float((by_family_N**2).sum()))
        return Look(self.value(c), influence_N, ess)

    def value(self, c: float) -> float:
        return c + ais.log_mean(F.logsigmoid(self.x_B - c)) - ais.log_mean(F.logsigmoid(c - self.y_R))

    def best(self) -> float:
        """The c that is ln Z + ln (n_forward / n_back) by its own estimate: where a falling function crosses 0.

        Those of one family count as one, which they may be as little as.
        """
        more, both = math.log(len(self.x_B) / len(torch.unique(self.family_R))), torch.cat([self.x_B, self.y_R])
        low, high = float(both.min()) - abs(more), float(both.max()) + abs(more)
        for _ in range(HALVINGS):
            c = (low + high) / 2
            low, high = (c, high) if self.value(c) + more > c else (low, c)
        return (low + high) / 2


def bridge(forward: Estimate, descended: Sequence[Estimate], errors: float, apart: Sequence[Estimate] = ()) -> Bridge:
    """From chains that went forward, and those that came back along the same path from one kind of start or several.

    Families of those ``descended`` are rows of the forward chains: the starts were drawn from where these ended. The
    value is of both. Kinds of start that are ``apart`` may be no samples of the machine: they are asked if they agree.
    The range has so many standard errors of the value on both sides, or more where another look says something else.
    """
    kinds = _kinds(forward, descended, apart)
    sides = _pooled(kinds[: len(descended)])
    best = sides.best()
    found = sides.look(best)
    shifted = [sides.look(best + shift).differs(found) for shift in (-SHIFT, SHIFT)]
    by_start = [kind.look(kind.best()).differs(found) for kind in kinds]
    off = [*shifted, *((by if _agree(by, error) else UNEXPLAINED * by, error) for by, error in by_start)]
    low = found.value + min([-errors * found.stderr, *(by - BEYOND * error for by, error in off)])
    high = found.value + max([errors * found.stderr, *(by + BEYOND * error for by, error in off)])
    gap = max(abs(by) for by, _ in shifted)
    shifts_agree, starts_agree = (all(_agree(*look) for look in looks) for looks in (shifted, by_start))
    return Bridge(found.value, found.stderr, found.ess, low, high, gap, shifts_agree, starts_agree)


def _agree(by: float, error: float) -> bool:
    return abs(by) <= AGREED * error


def _kinds(forward: Estimate, descended: Sequence[Estimate], apart: Sequence[Estimate]) -> list[Sides]:
    """Each kind of start by itself, families numbered alike. Those without, or ``apart``, are of no forward chain."""
    families, n = [], len(forward.log_weights)
    for back, alone in [*((e, e.family_B is None) for e in descended), *((e, True) for e in apart)]:
        own_R = torch.arange(len(back.log_weights)) if back.family_B is None else back.family_B
        if alone:
            own_R = torch.unique(own_R, return_inverse=True)[1] + n
            n = int(own_R.max()) + 1
        families.append(own_R.to(back.log_weights.device))
    backs = zip([*descended, *apart], families, strict=True)
    return [Sides(forward.log_weights, -back.log_weights, family_R, n) for back, family_R in backs]


def _pooled(kinds: Sequence[Sides]) -> Sides:
    """All that came back, from whatever start."""
    first = kinds[0]
    return first._replace(y_R=torch.cat([k.y_R for k in kinds]), family_R=torch.cat([k.family_R for k in kinds]))
