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
        """Train from the start, or from a checkpoint.

        Parameters
        ----------
        X : array, CSR matrix or tensor (n, D)
            The examples, of 0 and 1 unless ``binarize`` is set.
        y : array (n,)
            Their labels, numbers or strings.
        validation : pair of arrays (X, y) or None
            Other examples: the fitted machine is then the one of the epoch that classifies most of them,
            ``best_epoch_``; of several such epochs the one with the highest mean ln p(y | v).
        patience : int or None
            Training ends once so many epochs in a row validated no better; None: never.
        callbacks : sequence of Callback
            Called between segments of steps and after epochs.
        resume_from : path or None
            A checkpoint that a `Checkpointer` wrote on the same data under the same settings.
        """
        self._check_settings()
        with self._refitting():
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
        examples, known = torch.from_numpy(self._dense(X)), torch.from_numpy(np.isin(y, names))
        if not known.any():
            raise ValueError(f"validation must hold labels of training, {names!s:.200}, got none of them but {y[0]!r}")
        codes = torch.from_numpy(np.searchsorted(names, y).clip(max=len(names) - 1))

        def score(machine: Machine) -> tuple[float, float]:
            log_p_BC = torch.cat([machine.log_prob_y(v_BD).cpu() for v_BD in batches(examples, machine)])
            own_B = log_p_BC.gather(1, codes[:, None])[:, 0][known]
            met = (log_p_BC.argmax(1) == codes) & known
            return float(met.double().mean()), float(own_B.mean())

        return score

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One pass over X, y in minibatches. The first call needs ``classes``, all labels that will ever come.

        After ``fit`` or ``partial_fit`` the optimiser goes on as well; after ``from_parameters``, ``load`` or ``prune``
        and where validation chose an epoch it starts anew, with large first updates.
        """
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
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), np.sort(self.classes_)):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, or left out, got {classes}")
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
        """The label weights U, (l, C)."""
        return self._rows("label_weights")

    @property
    def intercept_label_(self) -> NDArray[Any]:
        """The label biases d, (C,)."""
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
        binary = self._dense(self._checked(np.where(seen, dense, 0)))
        machine, noise = self.machine_, self._noise(random_state)
        v_BD = torch.from_numpy(binary).to(machine.weights.device, machine.weights.dtype)
        seen_BD = torch.tensor(np.broadcast_to(seen, dense.shape), device=v_BD.device)
        return prob_y_given_observed(machine, v_BD, seen_BD, noise, n_samples, burn_in).cpu().numpy()

    def sample(
        self, n_samples: int = 1, *, y: Any = None, n_steps: int = 1000, random_state: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Visibles (n_samples, D) and their labels (n_samples,), from chains that start at uniform noise.

        Parameters
        ----------
        n_samples : int
            How many, each from a chain of its own.
        y : label, array (n_samples,) or None
            Labels that are kept: samples of p(v | y). None: labels move too.
        n_steps : int
            Gibbs sweeps of each chain.
        random_state : int, RandomState or None
            None: the estimator's own.
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
        strings = all(isinstance(name, str) for name in self.classes_)  # as objects, where they come from pandas
        names = self.classes_.astype(str) if strings else self.classes_
        if names.dtype.kind not in "biufU":
            raise ValueError(f"only numbers and strings can be saved as classes, got dtype {names.dtype}")
        return super()._extra_metadata() | {"classes": names.tolist(), "classes_dtype": names.dtype.str}

    def _restore_metadata(self, about: dict[str, Any]) -> Self:
        classes, dtype = about.get("classes"), about.get("classes_dtype")
        if not isinstance(classes, list) or not isinstance(dtype, str) or not re.fullmatch(r"[<>|][biufU]\d+", dtype):
            raise ValueError(f"the class labels {classes!r:.80} of dtype {dtype!r:.20} are no labels")
        try:
            # Strings take the room that they need, whatever the file says.
            return super()._restore_metadata(about)._with_classes(np.array(classes, str if "U" in dtype else dtype))
        except TypeError as error:
            raise ValueError(f"the class labels {classes!r:.80} do not fit dtype {dtype!r:.20}: {error}") from None


@dataclass(eq=False, repr=False)
class RBMClassifier(FixedSize, _Classifier):
    """The classification RBM (ClassRBM), of a fixed size.

    p(y | v) is exact. Methods of density models are there too, with y summed out.

    Parameters
    ----------
    n_components : int, default 256
        The number of hidden units.
    objective : "hybrid", "discriminative" or "generative", default "hybrid"
        What is maximised: ln p(y | v) + alpha ln p(v, y), its first part, or ln p(v, y). Take "hybrid" or "generative"
        to sample, or to predict from a part of the visibles.
    alpha : float, default 0.005
        Weight of the generative part of "hybrid". Raise it where examples are few: it keeps the machine from learning
        them by heart.
    label_max_norm : float or None, default 5.0
        Bound on the norm of a unit's label weights; None: no bound.
    learning_rate : float, default 0.05
        The global rate of the updates. Lower it where training diverges or scores jump between epochs; raise it, to 0.1
        or 0.2, where a small data set learns slowly.
    batch_size : int, default 100
        Examples a step, or a few less: the steps of a pass share them evenly. With fewer there are more steps in a
        pass, which helps where examples are few.
    n_iter : int, default 50
        Passes over the data. A thousand examples want a hundred and more.
    gibbs_steps : int, default 10
        Sweeps of the negative phase in each step. More bring the gradient nearer to the true one and cost time in
        proportion.
    persistent : bool, default True
        Whether chains of the negative phase go on from step to step (PCD), or start at the examples (CD). The paper
        takes PCD with 10 sweeps for MNIST, CD with 25 for CalTech.
    n_chains : int or None, default None
        How many persistent chains; None: as many as ``batch_size``. More make a less noisy gradient.
    gradient : "expected" or "sampled", default "expected"
        Whether z and y are summed out of the gradient (eq. 30 of the paper), or sampled (Algorithm 1 and eq. 29):
        noisier, and there to be compared with.
    optimizer : "adagrad", "constant" or "decay", default "adagrad"
        The rule for the rate: by AdaGrad, the same for all parameters and steps, or falling as 1 / (1 + t / 1000) with
        the step t.
    momentum : bool, default False
        Momentum that each unit raises from 0.5 to 0.9 in its first thousand updates. Meant for "constant" and "decay".
    averaging : int or None, default None
        Updates over which the parameters of the machine that is kept are averaged, exponentially; None: it is that of
        the last update. 1000 where an epoch has hundreds of steps, some ten epochs' worth where it has few, and
        ``validation`` to choose the epoch. Weights that L1 has just brought to zero are not exactly zero in an average;
        ``history_`` is of the parameters themselves.
    l1 : float, default 0.0001
        Weight of the L1 penalty, which brings weights to exactly zero. More gives smaller machines with sparser
        filters; the paper takes 0.001 for the 4,100 examples of CalTech.
    l2 : float, default 0.0
        Weight of the L2 penalty. L1 served the paper better.
    max_norm : float or None, default 10.0
        Bound on the norm of a unit's weights; None: no bound.
    verbose : int, default 0
        Not zero: show a progress bar.
    binarize : float or None, default None
        None: X must hold only 0 and 1. A number t maps X > t to 1.
    device : str or None, default None
        Where to compute, "cpu" or "cuda"; None takes the GPU where there is one.
    random_state : int, RandomState or None, default None
        The seed of everything random. Give a number to get the same model again.

    Attributes
    ----------
    components_ : array (l, D)
        The weights W; row i is column i of ``transform``.
    intercept_hidden_ : array (l,)
        The hidden biases c.
    intercept_visible_ : array (D,)
        The visible biases b.
    label_components_ : array (l, C)
        The label weights U.
    intercept_label_ : array (C,)
        The label biases d.
    classes_ : array (C,)
        The labels, in the order of every column over classes.
    n_components_ : int
        l, the number of hidden units with trained parameters.
    effective_size_ : float
        N_h, how many of them the data use: the mean over batches of the largest likeliest z.
    n_features_in_ : int
        D, the number of visible units.
    history_ : list of dict
        One row for each pass over the data: size, mean z, reconstruction error, seconds and more.
    best_epoch_ : int
        The epoch that validation data chose; there only if ``fit`` was given some.
    machine_ : Machine
        The machine itself, in torch, for your own loops.
    training_state_ : TrainingState
        Where training stands: counters, optimiser, chains.

    Examples
    --------
    >>> from irbm import RBMClassifier, data
    >>> digits = data.load("digits")
    >>> model = RBMClassifier(n_components=50, learning_rate=0.2, n_iter=20, random_state=0)
    >>> model.fit(digits.train.X, digits.train.y).score(digits.test.X, digits.test.y) > 0.8
    True
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

    p(y | v) is exact. Methods of density models are there too, with y summed out.

    Parameters
    ----------
    beta : float, default 1.01
        How much a unit that takes part costs, by the rule of ``penalty``; must be > 1. Raise it, to 1.1, for a smaller
        machine that grows more slowly.
    penalty : "constant" or "softplus", default "constant"
        The cost of unit i: beta ln 2, as in the paper's experiments, or beta softplus(c_i) with its bias c_i.
    objective : "hybrid", "discriminative" or "generative", default "hybrid"
        What is maximised: ln p(y | v) + alpha ln p(v, y), its first part, or ln p(v, y). Take "hybrid" or "generative"
        to sample, or to predict from a part of the visibles.
    alpha : float, default 0.005
        Weight of the generative part of "hybrid". Raise it where examples are few: it keeps the machine from learning
        them by heart.
    label_max_norm : float or None, default 5.0
        Bound on the norm of a unit's label weights; None: no bound.
    regroup : "adaptive", float or None, default "adaptive"
        How many hidden units are put in random order before each step: by the paper's schedule, a fraction of them
        (below 0.8, or growth may run away), or none, which is the ordinary infinite RBM. With a bound
        ``max_components`` 0.95 is safe too: nearly all units then take part, which classified small images better.
    max_components : int or None, default None
        Growth stops there. Set it to bound time and memory.
    n_permutations : int or None, default None
        Predictions are averaged over so many random orders of the hidden units that training put in random order (the
        same ones at each call); None: those of the order that training ended with. The paper takes 5; the cost is in
        proportion.
    learning_rate : float, default 0.05
        The global rate of the updates. Lower it where training diverges or scores jump between epochs; raise it, to 0.1
        or 0.2, where a small data set learns slowly.
    batch_size : int, default 100
        Examples a step, or a few less: the steps of a pass share them evenly. With fewer there are more steps in a
        pass, which helps where examples are few.
    n_iter : int, default 50
        Passes over the data. A thousand examples want a hundred and more.
    gibbs_steps : int, default 10
        Sweeps of the negative phase in each step. More bring the gradient nearer to the true one and cost time in
        proportion.
    persistent : bool, default True
        Whether chains of the negative phase go on from step to step (PCD), or start at the examples (CD). The paper
        takes PCD with 10 sweeps for MNIST, CD with 25 for CalTech.
    n_chains : int or None, default None
        How many persistent chains; None: as many as ``batch_size``. More make a less noisy gradient.
    gradient : "expected" or "sampled", default "expected"
        Whether z and y are summed out of the gradient (eq. 30 of the paper), or sampled (Algorithm 1 and eq. 29):
        noisier, and there to be compared with.
    optimizer : "adagrad", "constant" or "decay", default "adagrad"
        The rule for the rate: by AdaGrad, the same for all parameters and steps, or falling as 1 / (1 + t / 1000) with
        the step t.
    momentum : bool, default False
        Momentum that each unit raises from 0.5 to 0.9 in its first thousand updates. Meant for "constant" and "decay".
    averaging : int or None, default None
        Updates over which the parameters of the machine that is kept are averaged, exponentially; None: it is that of
        the last update. 1000 where an epoch has hundreds of steps, some ten epochs' worth where it has few, and
        ``validation`` to choose the epoch. Weights that L1 has just brought to zero are not exactly zero in an average;
        ``history_`` is of the parameters themselves.
    l1 : float, default 0.0001
        Weight of the L1 penalty, which brings weights to exactly zero. More gives smaller machines with sparser
        filters; the paper takes 0.001 for the 4,100 examples of CalTech.
    l2 : float, default 0.0
        Weight of the L2 penalty. L1 served the paper better.
    max_norm : float or None, default 10.0
        Bound on the norm of a unit's weights; None: no bound.
    verbose : int, default 0
        Not zero: show a progress bar.
    binarize : float or None, default None
        None: X must hold only 0 and 1. A number t maps X > t to 1.
    device : str or None, default None
        Where to compute, "cpu" or "cuda"; None takes the GPU where there is one.
    random_state : int, RandomState or None, default None
        The seed of everything random. Give a number to get the same model again.

    Attributes
    ----------
    components_ : array (l, D)
        The weights W; row i is column i of ``transform``.
    intercept_hidden_ : array (l,)
        The hidden biases c.
    intercept_visible_ : array (D,)
        The visible biases b.
    label_components_ : array (l, C)
        The label weights U.
    intercept_label_ : array (C,)
        The label biases d.
    classes_ : array (C,)
        The labels, in the order of every column over classes.
    n_components_ : int
        l, the number of hidden units with trained parameters.
    effective_size_ : float
        N_h, how many of them the data use: the mean over batches of the largest likeliest z.
    n_features_in_ : int
        D, the number of visible units.
    history_ : list of dict
        One row for each pass over the data: size, mean z, reconstruction error, seconds and more.
    best_epoch_ : int
        The epoch that validation data chose; there only if ``fit`` was given some.
    machine_ : Machine
        The machine itself, in torch, for your own loops.
    training_state_ : TrainingState
        Where training stands: counters, optimiser, chains.

    Examples
    --------
    >>> from irbm import InfiniteRBMClassifier, data
    >>> digits = data.load("digits")
    >>> model = InfiniteRBMClassifier(learning_rate=0.2, n_iter=20, random_state=0)
    >>> model.fit(digits.train.X, digits.train.y).score(digits.test.X, digits.test.y) > 0.8
    True
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
        m = self._regrouped()
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
