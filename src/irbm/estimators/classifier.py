"""Machines with labels: p(v, y), p(y | v), and everything a density model has with y summed out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from irbm.estimators.fitting import Trainable, count_units
from irbm.models import Depth, Fixed, Infinite
from irbm.ops import reference as ops
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
        callbacks: Sequence[Callback] = (),
        resume_from: str | Path | None = None,
    ) -> Self:
        """Train on X, (n, D), and labels y, (n,), from the start or from a checkpoint; see `InfiniteRBM.fit`."""
        self._check_settings()
        X, y = self._checked_pair(X, y, reset=True)
        names, codes = np.unique(y, return_inverse=True)
        self._fit(X, codes, len(names), callbacks, resume_from)
        self.classes_ = names
        return self

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
        return self._by_row(X, lambda machine, v: machine.log_prob_y(v))

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """p(y | v), (n, C), columns as in ``classes_``."""
        return self._by_row(X, lambda machine, v: machine.log_prob_y(v).exp())

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each example."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def sample(
        self, n_samples: int = 1, *, n_steps: int = 1000, random_state: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Visibles and their labels after ``n_steps`` Gibbs sweeps from uniform noise."""
        v_BD, y_B = self._sample(n_samples, n_steps, random_state)
        assert y_B is not None
        return v_BD.cpu().numpy(), self.classes_[y_B.cpu().numpy()]

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
class RBMClassifier(_Classifier):
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
        label_weights: ArrayLike,
        label_bias: ArrayLike,
        classes: ArrayLike | None = None,
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted classifier from arrays: as for `RBM`, with label_weights (l, C) and label_bias (C,)."""
        labels = {"label_weights": label_weights, "label_bias": label_bias}
        settings = {"n_components": count_units(hidden_bias)}
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order, **labels)._with_classes(classes)


@dataclass(kw_only=True, eq=False, repr=False)
class InfiniteRBMClassifier(_Classifier):
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
    learning_rate, ..., random_state
        As for `RBM`.
    """

    regroup: str | float | None = "adaptive"
    max_components: int | None = None
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
