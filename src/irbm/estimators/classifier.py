"""Machines with labels: p(v, y), p(y | v), and everything a density model has with y summed out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from irbm.estimators.base import check_count
from irbm.estimators.fitting import FixedSize, Growing, Trainable, batches
from irbm.evaluation.missing import prob_y_given_observed
from irbm.evaluation.permutations import mean_log_prob_y, permuted
from irbm.models import Machine
from irbm.ops import reference as ops
from irbm.ops.noise import uniform_noise
from irbm.training import Callback, Settings


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(ClassifierMixin, Trainable):
    _has_labels: ClassVar[bool] = True

    objective: str = "hybrid"
    alpha: float = Settings.alpha
    label_max_norm: float | None = Settings.label_max_norm

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        patience: int | None = None,
        callbacks: Sequence[Callback] = (),
        resume_from: str | Path | None = None,
    ) -> Self:
        """Train on X, (n, D), and labels y, (n,), from the start or from a checkpoint; see `InfiniteRBM.fit`.

        With ``validation``, a pair (X, y), the fitted machine is the one of the epoch that classifies most of them,
        ``best_epoch_``; of several such epochs the one with the highest mean ln p(y | v).
        """
        self._check_settings()
        X, y = self._checked_pair(X, y, reset=True)
        names, codes = np.unique(y, return_inverse=True)
        score = None if validation is None else self._label_score(validation, names)
        self._fit(X, codes, len(names), callbacks, resume_from, score, patience)
        self.classes_ = names
        return self

    def _label_score(self, pair: Any, names: NDArray[Any]) -> Callable[[Machine], tuple[float, float]]:
        """Accuracy and mean ln p(y | v), as a function of the machine. A label unseen in training is never met."""
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"validation must be a pair (X, y), got {type(pair).__name__}")
        X, y = self._checked_pair(*pair, reset=False)
        examples, known = torch.from_numpy(self._binary(X)), torch.from_numpy(np.isin(y, names))
        codes = torch.from_numpy(np.searchsorted(names, y).clip(max=len(names) - 1))

        def score(machine: Machine) -> tuple[float, float]:
            log_p_BC = torch.cat([machine.log_prob_y(v_BD).cpu() for v_BD in batches(examples, machine)])
            own_B = log_p_BC.gather(1, codes[:, None])[:, 0][known]
            met = (log_p_BC.argmax(1) == codes) & known
            return float(met.double().mean()), float(own_B.mean()) if len(own_B) else 0.0

        return score

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One pass over X, y in minibatches. The first call needs ``classes``, all labels that will ever come."""
        self._check_settings()
        first = not self.__sklearn_is_fitted__()
        X, y = self._checked_pair(X, y, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be given at the first call of partial_fit: all labels that may come")
            names = np.unique(np.asarray(classes))
            if not len(names) or (names.dtype.kind == "f" and not np.isfinite(names).all()):
                raise ValueError(f"classes must be one label or more, and no number that is not finite, got {classes}")
            self.classes_ = names
        return self._continue(X, self._codes(y), len(self.classes_))

    def _checked_pair(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        X = self._checked(X, reset=reset)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(y.detach().cpu().numpy() if isinstance(y, Tensor) else y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        return X, y

    def _codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Labels as indices into ``classes_``."""
        order = np.argsort(self.classes_)
        at = np.searchsorted(self.classes_, y, sorter=order).clip(max=len(order) - 1)
        codes = order[at]
        unseen = self.classes_[codes] != y
        if unseen.any():
            raise ValueError(f"y holds labels unseen before, such as {y[unseen][0]!r}; known are {self.classes_}")
        return np.asarray(codes, dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Two epochs on a handful of binarized columns cannot reach what scikit-learn's checks ask of classifiers.
        tags.classifier_tags.poor_score = True
        return tags

    @property
    def label_components_(self) -> NDArray[Any]:
        """U, (l, C)."""
        return self._rows("label_weights")

    @property
    def intercept_label_(self) -> NDArray[Any]:
        """d, (C,)."""
        bias = self.machine_.label_bias
        assert bias is not None
        return bias.cpu().numpy().copy()

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """ln p(y | v), (n, C), columns as in ``classes_``. Eq. 32."""
        orders = self._orders()
        if orders is None:
            return self._by_row(X, lambda machine, v: machine.log_prob_y(v))

        def averaged(machine: Machine, v_BD: Tensor) -> Tensor:
            return mean_log_prob_y([replace(machine, order=order) for order in orders], v_BD)

        return self._by_row(X, averaged)

    def _orders(self) -> list[Tensor] | None:
        """The orders of hidden units to average over; None for the machine's own alone."""
        return None

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """p(y | v), (n, C), columns as in ``classes_``."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each example."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba_missing(
        self,
        X: ArrayLike,
        observed: ArrayLike,
        *,
        n_samples: int = 100,
        burn_in: int = 50,
        random_state: Any = None,
    ) -> NDArray[np.float64]:
        """p(y | the observed visibles), (n, C), by Gibbs sampling of the others.

        Parameters
        ----------
        X : array (n, D)
            Dense. Where nothing was observed it may hold anything, NaN included.
        observed : boolean array (D,) or (n, D)
            Which visibles were seen.
        n_samples, burn_in : int
            Sweeps over which p(y | v) is averaged, and sweeps before them. A machine that was trained on p(y | v)
            alone knows nothing of the visibles: use "hybrid" or "generative" training.
        """
        check_count("n_samples", n_samples)
        check_count("burn_in", burn_in)
        dense = np.array(X.detach().cpu() if isinstance(X, Tensor) else X)
        if dense.ndim != 2:
            raise ValueError(f"X must be a dense array (n, D), got shape {dense.shape}")
        seen = self._mask("observed", observed, dense.shape)
        binary = self._binary(self._checked(np.where(seen, dense, 0)))
        machine, noise = self.machine_, self._noise(random_state)
        v_BD = torch.from_numpy(binary).to(machine.weights.device, machine.weights.dtype)
        seen_BD = torch.tensor(np.broadcast_to(seen, dense.shape), device=v_BD.device)
        return prob_y_given_observed(machine, v_BD, seen_BD, noise, n_samples, burn_in).cpu().numpy()

    def sample(
        self, n_samples: int = 1, *, y: Any = None, n_steps: int = 1000, random_state: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Visibles and their labels after ``n_steps`` Gibbs sweeps from uniform noise.

        ``y``, one label or ``n_samples`` of them, is kept: samples of p(v | y).
        """
        check_count("n_samples", n_samples)
        kept = None if y is None else self._kept_labels(y, n_samples)
        v_BD, y_B = self._sample(n_samples, n_steps, random_state, kept)
        assert y_B is not None
        return v_BD.cpu().numpy(), self.classes_[y_B.cpu().numpy()]

    def _kept_labels(self, y: Any, n_samples: int) -> Tensor:
        labels = np.asarray(y)
        if labels.shape not in ((), (n_samples,)):
            raise ValueError(f"y must be one label or n_samples={n_samples} of them, got shape {labels.shape}")
        codes = self._codes(np.broadcast_to(labels, n_samples))
        return torch.from_numpy(codes).to(self.machine_.weights.device)

    def _sample_labels(self, v_BD: Tensor, noise: Callable[..., Tensor]) -> Tensor | None:
        return ops.sample_categorical(self.machine_.label_scores(v_BD), noise(len(v_BD)))

    def _with_classes(self, classes: ArrayLike | None) -> Self:
        n_classes = self.machine_.n_classes
        names = np.arange(n_classes) if classes is None else np.asarray(classes)
        if names.shape != (n_classes,) or len(np.unique(names)) != n_classes:
            raise ValueError(f"classes must be {n_classes} different labels, got {classes!r:.200}")
        self.classes_ = names
        return self

    def _extra_metadata(self) -> dict[str, Any]:
        if self.classes_.dtype.kind not in "biufU":
            raise ValueError(f"only numbers and strings can be saved as classes, got dtype {self.classes_.dtype}")
        own = {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}
        return super()._extra_metadata() | own

    def _restore_metadata(self, about: dict[str, Any]) -> Self:
        classes, dtype = about.get("classes"), about.get("classes_dtype")
        if (
            not isinstance(classes, list)
            or not isinstance(dtype, str)
            or not re.fullmatch(r"[<>|][biufU]\d{1,3}", dtype)
        ):
            raise ValueError(f"the class labels {classes!r:.80} of dtype {dtype!r:.20} are no labels")
        try:
            return super()._restore_metadata(about)._with_classes(np.array(classes, dtype=dtype))
        except TypeError as error:
            raise ValueError(f"the class labels {classes!r:.80} do not fit dtype {dtype!r:.20}: {error}") from None


@dataclass(eq=False, repr=False)
class RBMClassifier(FixedSize, _Classifier):
    """The classification RBM (ClassRBM), of a fixed size.

    Parameters
    ----------
    n_components : int
        The number of hidden units.
    objective, alpha : "hybrid", "discriminative" or "generative", float
        What is maximised: ln p(y | v) + alpha ln p(v, y), or its first part, or ln p(v, y).
    label_max_norm : float or None
        Bound on the norm of a row of label weights.
    learning_rate, ..., random_state
        As for `RBM`.
    """

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        label_weights: ArrayLike,
        label_bias: ArrayLike,
        classes: ArrayLike | None = None,
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted classifier from arrays: as for `RBM`, with label_weights (l, C) and label_bias (C,)."""
        labels = {"label_weights": label_weights, "label_bias": label_bias}
        settings = cls._size_of(hidden_bias)
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order, **labels)._with_classes(classes)


@dataclass(kw_only=True, eq=False, repr=False)
class InfiniteRBMClassifier(Growing, _Classifier):
    """The discriminative infinite RBM (Dis-iRBM): a classifier that chooses its own size.

    Parameters
    ----------
    beta, penalty : float, "constant" or "softplus"
        What a unit that takes part costs: beta ln 2, or beta softplus(c_i). beta must be > 1.
    objective, alpha : "hybrid", "discriminative" or "generative", float
        What is maximised: ln p(y | v) + alpha ln p(v, y), or its first part, or ln p(v, y).
    label_max_norm : float or None
        Bound on the norm of a row of label weights.
    regroup, max_components
        As for `InfiniteRBM`.
    n_permutations : int or None
        Predictions are averaged over so many random orders of the hidden units that training put in random order (the
        same ones at each call); None: those of the order that training ended with.
    learning_rate, ..., random_state
        As for `RBM`.
    """

    n_permutations: int | None = None

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.n_permutations is not None:
            check_count("n_permutations", self.n_permutations)

    def _orders(self) -> list[Tensor] | None:
        if self.n_permutations is None:
            return None
        check_count("n_permutations", self.n_permutations)
        machine = self.machine_
        if not getattr(self, "_history", None):
            raise ValueError("n_permutations needs a model trained by fit: how many units to permute is not known here")
        m = min(self._report().regrouped, self.n_components_)
        return [permuted(machine, m, uniform_noise(n)).order for n in range(self.n_permutations)]

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        label_weights: ArrayLike,
        label_bias: ArrayLike,
        beta: float = 1.01,
        penalty: str = "constant",
        classes: ArrayLike | None = None,
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted classifier from arrays: as for `InfiniteRBM`, with label_weights (l, C) and label_bias (C,)."""
        labels = {"label_weights": label_weights, "label_bias": label_bias}
        settings = {"beta": beta, "penalty": penalty}
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order, **labels)._with_classes(classes)
