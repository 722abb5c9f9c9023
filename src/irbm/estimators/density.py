"""Density models without labels: of fixed size, ordered, infinite."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from irbm.estimators.base import Boltzmann
from irbm.models import Depth, Fixed, Infinite, Ordered


@dataclass(kw_only=True, eq=False, repr=False)
class _Density(Boltzmann):
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of ``score_samples``."""
        return float(self.score_samples(X).mean())


@dataclass(eq=False, repr=False)
class RBM(_Density):
    """The classic restricted Boltzmann machine, of a fixed size.

    Parameters
    ----------
    n_components : int
        The number of hidden units.
    binarize : float or None
        None: X must hold only 0 and 1. A number t maps X > t to 1.
    device : str or None
        Where to compute, "cpu" or "cuda"; None takes the GPU where there is one.
    random_state : int, RandomState or None
        The seed of everything random.

    Examples
    --------
    >>> from irbm import RBM
    >>> model = RBM.from_parameters([[1.0, -1.0]], [0.5], [0.0, 0.0])
    >>> model.log_partition().method
    'exact'
    """

    n_components: int = 256
    _: KW_ONLY

    def _depth(self) -> Depth:
        return Fixed()

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, -2:-1]

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted estimator from arrays: weights (l, D), hidden_bias (l,), visible_bias (D,)."""
        settings = {"n_components": np.size(hidden_bias)}
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order)


@dataclass(eq=False, repr=False)
class OrderedRBM(_Density):
    """The ordered RBM: each example uses the first z of the hidden units, z in 1..n_components.

    Parameters
    ----------
    n_components : int
        The number of hidden units.
    beta, penalty : float, "constant" or "softplus"
        What a unit that takes part costs: beta ln 2, or beta softplus(c_i).
    binarize, device, random_state
        As for `RBM`.
    """

    n_components: int = 256
    _: KW_ONLY
    beta: float = 1.01
    penalty: str = "constant"

    def _depth(self) -> Depth:
        return Ordered(self.beta, self.penalty)  # type: ignore[arg-type]

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, :-1]

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        beta: float = 1.01,
        penalty: str = "constant",
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted estimator from arrays: weights (l, D), hidden_bias (l,), visible_bias (D,).

        ``order[k]`` is the row at position k; columns of results are positions.
        """
        settings = {"n_components": np.size(hidden_bias), "beta": beta, "penalty": penalty}
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order)


@dataclass(kw_only=True, eq=False, repr=False)
class InfiniteRBM(_Density):
    """The infinite RBM: it chooses its own size.

    Parameters
    ----------
    beta, penalty : float, "constant" or "softplus"
        What a unit that takes part costs: beta ln 2, or beta softplus(c_i). beta must be > 1.
    binarize, device, random_state
        As for `RBM`.
    """

    beta: float = 1.01
    penalty: str = "constant"

    def _depth(self) -> Depth:
        return Infinite(self.beta, self.penalty)  # type: ignore[arg-type]

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        beta: float = 1.01,
        penalty: str = "constant",
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted estimator from arrays: weights (l, D), hidden_bias (l,), visible_bias (D,).

        ``order[k]`` is the row at position k; columns of results are positions.
        """
        settings = {"beta": beta, "penalty": penalty}
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order)
