"""How z chooses the prefix of hidden units that takes part: not at all, up to l, or without end."""

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from irbm.ops import reference as ops

LARGEST_BETA = 1e6  # with larger ones sums over z lose digits that count

Penalty = Literal["constant", "softplus"]


class Depth(ABC):
    """A rule for z: its kind, and the log-weight of everything beyond the table relative to its last entry."""

    kind: ClassVar[ops.Kind]

    @property
    def tail(self) -> float:
        return -math.inf

    @property
    def sloped(self) -> bool:
        """Whether penalties change with the hidden biases."""
        return False

    @abstractmethod
    def penalties(self, hidden_bias_K: Tensor) -> Tensor:
        """beta_i, what taking part costs unit i: (K,)."""

    @abstractmethod
    def penalty_slopes(self, hidden_bias_K: Tensor) -> Tensor:
        """d beta_i / d c_i: (K,)."""

    def table(self, gain_BK: Tensor, size: Tensor) -> Tensor:
        """The z-table (B, K+1) over positions; an impossible z has -inf."""
        return ops.depth_table(gain_BK, size, self.kind, self.tail)


@dataclass(frozen=True)
class Fixed(Depth):
    """z = l always, no penalty: the classic RBM."""

    kind = "fixed"

    def penalties(self, hidden_bias_K: Tensor) -> Tensor:
        return torch.zeros_like(hidden_bias_K)

    def penalty_slopes(self, hidden_bias_K: Tensor) -> Tensor:
        return torch.zeros_like(hidden_bias_K)


@dataclass(frozen=True)
class _Penalised(Depth):
    beta: float = 1.01
    penalty: Penalty = "constant"

    def __post_init__(self) -> None:
        if self.penalty not in get_args(Penalty):
            raise ValueError(f"penalty must be one of {get_args(Penalty)}, got {self.penalty!r}")
        self._check_beta()
        object.__setattr__(self, "beta", float(self.beta))  # files hold no number of NumPy's

    @property
    def sloped(self) -> bool:
        return self.penalty == "softplus"

    def _check_beta(self) -> None:
        if not (_is_number(self.beta) and 0 < self.beta <= LARGEST_BETA):
            raise ValueError(f"beta must be > 0 and at most {LARGEST_BETA:g}, got {self.beta!r}")

    def penalties(self, hidden_bias_K: Tensor) -> Tensor:
        if self.penalty == "softplus":
            return self.beta * ops.softplus(hidden_bias_K)
        return torch.full_like(hidden_bias_K, self.beta * math.log(2.0))

    def penalty_slopes(self, hidden_bias_K: Tensor) -> Tensor:
        if self.penalty == "softplus":
            return self.beta * torch.sigmoid(hidden_bias_K)
        return torch.zeros_like(hidden_bias_K)


@dataclass(frozen=True)
class Ordered(_Penalised):
    """z in 1..l: the ordered RBM."""

    kind = "ordered"


@dataclass(frozen=True)
class Infinite(_Penalised):
    """z in 1, 2, ... without end: the infinite RBM.

    A unit with zero parameters costs what a unit of the tail costs, so padding needs no mask: the last column of
    the table holds every z beyond the padding, and no probability changes with the capacity.
    """

    kind = "infinite"

    def _check_beta(self) -> None:
        if not (_is_number(self.beta) and 1 < self.beta <= LARGEST_BETA):
            raise ValueError(
                f"beta must be > 1, or the sum over z does not converge, and <= {LARGEST_BETA:g}; got {self.beta!r}"
            )

    @property
    def tail(self) -> float:
        return ops.log_tail(self.beta)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
