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
trapped on the way, values of different c part: they are looked at for that.
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
HALVINGS = 100


class Bridge(NamedTuple):
    """ln Z by what both sides have in common; from ``low`` to ``high`` lies what any look at it says."""

    value: float
    stderr: float
    ess: float  # of the side that has fewer chains that count
    low: float
    high: float
    gap: float  # how far other values of c are from the best one's
    is_apart: bool  # by more than their errors


class Look(NamedTuple):
    """ln Z by one c."""

    value: float
    stderr: float
    ess: float


class Sides(NamedTuple):
    """Log-weights of chains that went forward and of those that came back, and which of these are of one family."""

    x_B: Tensor
    y_R: Tensor
    family_R: Tensor

    @classmethod
    def of(cls, forward: Estimate, backs: Sequence[Estimate]) -> "Sides":
        """All that came back, from whatever start; families of different kinds of start are different ones."""
        families, first = [], 0
        for back in backs:
            own_B = torch.arange(len(back.log_weights)).to(back.log_weights.device)
            families.append((own_B if back.family_B is None else back.family_B) + first)
            first = int(families[-1].max()) + 1
        return cls(forward.log_weights, torch.cat([-back.log_weights for back in backs]), torch.cat(families))

    def look(self, c: float) -> Look:
        log_f_B, log_r_R = F.logsigmoid(self.x_B - c), F.logsigmoid(c - self.y_R)
        (error_f, n_f), (error_r, n_r) = ais.stderr_of(log_f_B, None), ais.stderr_of(log_r_R, self.family_R)
        value = c + ais.log_mean(log_f_B) - ais.log_mean(log_r_R)
        ess = min(ais.effective(error_f, n_f), ais.effective(error_r, n_r))
        return Look(value, math.hypot(error_f, error_r), ess)

    def best_c(self) -> float:
        """The c that is ln Z + ln (n_forward / n_back) by its own estimate: where a falling function crosses 0.

        Those of one family count as one, which they may be as little as.
        """
        more, both = math.log(len(self.x_B) / len(torch.unique(self.family_R))), torch.cat([self.x_B, self.y_R])
        low, high = float(both.min()) - abs(more), float(both.max()) + abs(more)
        for _ in range(HALVINGS):
            c = (low + high) / 2
            low, high = (c, high) if self.look(c).value + more > c else (low, c)
        return (low + high) / 2


def bridge(forward: Estimate, backs: Sequence[Estimate], errors: float) -> Bridge:
    """From chains that went forward, and those that came back along the same path, from one kind of start or several.

    The value is of all starts together, and the range has so many standard errors of it on both sides; each kind of
    start by itself, and other values of c, widen it where they say something else by more than one of theirs.
    """
    sides = Sides.of(forward, backs)
    c = sides.best_c()
    found, shifted = sides.look(c), [sides.look(c - SHIFT), sides.look(c + SHIFT)]
    by_start = [Sides.of(forward, [back]) for back in backs]
    others = [*shifted, *(start.look(start.best_c()) for start in by_start)]
    low = min([found.value - errors * found.stderr, *(o.value - o.stderr for o in others)])
    high = max([found.value + errors * found.stderr, *(o.value + o.stderr for o in others)])
    gap, error = max((abs(o.value - found.value), o.stderr) for o in shifted)
    return Bridge(*found, low, high, gap, gap > 2 * error)
