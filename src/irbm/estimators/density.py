"""Density models without labels: of fixed size, ordered, infinite."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from torch import Tensor

from irbm.estimators.base import check_count
from irbm.estimators.fitting import FixedSize, Growing, Penalised, Trainable, batches
from irbm.evaluation.likelihood import pseudo_log_likelihood
from irbm.evaluation.partition import LogPartition
from irbm.evaluation.permutations import AveragedLikelihood, averaged_likelihood
from irbm.models import Depth, Machine, Ordered
from irbm.training import Callback


@dataclass(kw_only=True, eq=False, repr=False)
class _Density(Trainable):
    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        validation: ArrayLike | None = None,
        patience: int | None = None,
        callbacks: Sequence[Callback] = (),
        resume_from: str | Path | None = None,
    ) -> Self:
        """Train on X, (n, D), from the start, or from a checkpoint that a `Checkpointer` wrote on the same X.

        With ``validation`` examples (m, D) the fitted machine is the one of the epoch with their highest mean
        pseudo-log-likelihood, ``best_epoch_``; training ends once ``patience`` epochs in a row were no better (None:
        never). ``callbacks`` are called between steps and epochs.
        """
        self._check_settings()
        X = self._checked(X, reset=True)
        score = None if validation is None else self._pseudo_score(validation)
        return self._fit(X, None, 0, callbacks, resume_from, score, patience)

    def _pseudo_score(self, X: ArrayLike) -> Callable[[Machine], float]:
        """The mean pseudo-log-likelihood of these examples, as a function of the machine."""
        examples = torch.from_numpy(self._binary(self._checked(X)))

        def score(machine: Machine) -> float:
            parts = [pseudo_log_likelihood(machine, v_BD) for v_BD in batches(examples, machine)]
            return float(torch.cat(parts).mean())

        return score

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """One pass over X in minibatches, from wherever the machine stands; it goes on growing."""
        self._check_settings()
        return self._continue(self._checked(X, reset=not self.__sklearn_is_fitted__()), None, 0)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of ``score_samples``."""
        return float(self.score_samples(X).mean())


@dataclass(kw_only=True, eq=False, repr=False)
class _PenalisedDensity(Penalised, _Density):
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
        settings = {"beta": beta, "penalty": penalty} | cls._size_of(hidden_bias)
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order)


@dataclass(eq=False, repr=False)
class RBM(FixedSize, _Density):
    """The classic restricted Boltzmann machine, of a fixed size.

    Parameters
    ----------
    n_components : int
        The number of hidden units.
    learning_rate, batch_size, n_iter : float, int, int
        The global rate, examples a step, passes over the data.
    gibbs_steps, persistent, n_chains : int, bool, int or None
        Sweeps of the negative phase a step; from chains that persist (PCD), as many as ``batch_size`` where
        ``n_chains`` is None, or from the examples (CD).
    gradient : "expected" or "sampled"
        Whether z (and for classifiers, y) is summed out of the gradient, or sampled as in the paper's Algorithm 1 and
        eq. 29: right on average, and noisier.
    optimizer, momentum : "adagrad", "constant" or "decay", bool
        The rule for the rate; momentum that each unit raises from 0.5 to 0.9 with its own age.
    l1, l2, max_norm : float, float, float or None
        Weight of the L1 penalty (weights reach exactly zero) and the L2 penalty; bound on the norm of a row.
    verbose : int
        Not zero: show a progress bar.
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
        return cls._from_arrays(cls._size_of(hidden_bias), weights, hidden_bias, visible_bias, order)


@dataclass(eq=False, repr=False)
class OrderedRBM(_PenalisedDensity):
    """The ordered RBM: each example uses the first z of the hidden units, z in 1..n_components.

    Parameters
    ----------
    n_components : int
        The number of hidden units.
    beta, penalty : float, "constant" or "softplus"
        What a unit that takes part costs: beta ln 2, or beta softplus(c_i).
    learning_rate, ..., random_state
        As for `RBM`.
    """

    n_components: int = 256

    def _depth(self) -> Depth:
        return Ordered(self.beta, self.penalty)  # type: ignore[arg-type]

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, :-1]


@dataclass(kw_only=True, eq=False, repr=False)
class InfiniteRBM(Growing, _PenalisedDensity):
    """The infinite RBM: it chooses its own size.

    Parameters
    ----------
    beta, penalty : float, "constant" or "softplus"
        What a unit that takes part costs: beta ln 2, or beta softplus(c_i). beta must be > 1.
    regroup : "adaptive", float or None
        How many hidden units are put in random order before each step: the paper's schedule, a fraction of them,
        or none (the ordinary infinite RBM).
    max_components : int or None
        Growth stops there.
    learning_rate, ..., random_state
        As for `RBM`.

    Examples
    --------
    >>> from irbm import InfiniteRBM, data
    >>> digits = data.load("digits")
    >>> model = InfiniteRBM(n_iter=2, random_state=0).fit(digits.train.X)
    >>> model.transform(digits.test.X).shape[1] == model.n_components_
    True
    """

    def averaged_likelihood(
        self,
        X: ArrayLike,
        n_permutations: int = 5,
        *,
        regrouped: int | None = None,
        data: ArrayLike | None = None,
        random_state: Any = None,
        tol: float = 0.1,
        budget: int | None = None,
    ) -> AveragedLikelihood:
        """The mean of ln p(v) with p(v) averaged over random orders of the units, each with an ln Z of its own. Eq. 34.

        ``regrouped`` units change places; None: as many as in the pass of training that the machine comes from.
        """
        check_count("n_permutations", n_permutations)
        m = self._report().regrouped if regrouped is None else regrouped
        checked = torch.cat(list(self._dense_chunks(self._checked(X), torch.uint8)))
        effort: dict[str, Any] = {"data": data, "random_state": random_state, "tol": tol, "budget": budget}

        def log_partition(machine: Machine) -> LogPartition:
            other: InfiniteRBM = clone(self)._adopt(machine)._with_means(self._visible_means)
            return other.log_partition(**effort)

        noise = self._noise(random_state)
        return averaged_likelihood(self.machine_, checked, m, n_permutations, log_partition, noise)

    def to_rbm(self, units: str = "effective") -> RBM:
        """The classic RBM of the first round(N_h) units ("effective") or of all l ("all"): z clamped. Sec. 4.2."""
        if units not in ("effective", "all"):
            raise ValueError(f"units must be 'effective' or 'all', got {units!r}")
        kept = self.n_components_ if units == "all" else max(1, round(self.effective_size_))
        rbm = RBM.from_parameters(self.components_[:kept], self.intercept_hidden_[:kept], self.intercept_visible_)
        rbm.set_params(binarize=self.binarize, device=self.device, random_state=self.random_state)
        return rbm._with_means(self._visible_means)
