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
        """Train from the start, or from a checkpoint.

        Parameters
        ----------
        X : array, CSR matrix or tensor (n, D)
            The examples, of 0 and 1 unless ``binarize`` is set.
        y : ignored
            There for pipelines.
        validation : array (m, D) or None
            Other examples: the fitted machine is then the one of the epoch with their highest mean
            pseudo-log-likelihood, ``best_epoch_``.
        patience : int or None
            Training ends once so many epochs in a row validated no better; None: never.
        callbacks : sequence of Callback
            Called between segments of steps and after epochs.
        resume_from : path or None
            A checkpoint that a `Checkpointer` wrote on the same X under the same settings.
        """
        self._check_settings()
        with self._refitting():
            X = self._checked(X, reset=True)
            score = None if validation is None else self._pseudo_score(validation)
            self._fit(X, None, 0, callbacks, resume_from, score, patience)
        return self

    def _pseudo_score(self, X: ArrayLike) -> Callable[[Machine], float]:
        """The mean pseudo-log-likelihood of these examples, as a function of the machine."""
        examples = torch.from_numpy(self._dense(self._checked(X)))

        def score(machine: Machine) -> float:
            parts = [pseudo_log_likelihood(machine, v_BD) for v_BD in batches(examples, machine)]
            return float(torch.cat(parts).mean())

        return score

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """One pass over X in minibatches, from wherever the machine stands; it goes on growing.

        After ``fit`` or ``partial_fit`` the optimiser goes on as well. It starts anew where it is not known, after
        ``from_parameters``, ``load`` or ``prune`` and where validation chose an epoch: first updates are large then,
        and a well-trained machine loses likelihood at first, less of it with a smaller ``learning_rate``.
        """
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
        """A fitted estimator from arrays; float64 anywhere makes it a float64 machine.

        Parameters
        ----------
        weights, hidden_bias, visible_bias : arrays (l, D), (l,), (D,)
            W, c and b.
        beta, penalty : float, str
            As for the constructor.
        order : array (l,) or None
            ``order[k]`` is the row at position k; columns of results are positions. None: as they stand.
        """
        settings = {"beta": beta, "penalty": penalty} | cls._size_of(hidden_bias)
        return cls._from_arrays(settings, weights, hidden_bias, visible_bias, order)


@dataclass(eq=False, repr=False)
class RBM(FixedSize, _Density):
    """The classic restricted Boltzmann machine, of a fixed size.

    Every hidden unit takes part always. `InfiniteRBM` finds the size by itself.

    Parameters
    ----------
    n_components : int, default 256
        The number of hidden units.
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
        Whether z is summed out of the gradient, or sampled as in the paper's Algorithm 1: right on average, and
        noisier. There to be compared with.
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
    >>> from irbm import RBM
    >>> model = RBM.from_parameters([[1.0, -1.0]], [0.5], [0.0, 0.0])
    >>> model.log_partition().method
    'exact'

    >>> from irbm import data
    >>> digits = data.load("digits")
    >>> model = RBM(n_components=30, n_iter=2, random_state=0).fit(digits.train.X)
    >>> model.transform(digits.test.X).shape
    (296, 30)
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
        """A fitted estimator from arrays; float64 anywhere makes it a float64 machine.

        Parameters
        ----------
        weights, hidden_bias, visible_bias : arrays (l, D), (l,), (D,)
            W, c and b.
        order : array (l,) or None
            ``order[k]`` is the row at position k; columns of results are positions. None: as they stand.
        """
        return cls._from_arrays(cls._size_of(hidden_bias), weights, hidden_bias, visible_bias, order)

    @classmethod
    def _like(cls, other: _Density, weights: ArrayLike, hidden_bias: ArrayLike, **settings: Any) -> Self:
        """The RBM of some of another's units, on its device, with what it knows of its data."""
        shared = {name: getattr(other, name) for name in ("binarize", "device", "random_state")}
        settings = cls._size_of(hidden_bias) | shared | settings
        rbm = cls._from_arrays(settings, weights, hidden_bias, other.intercept_visible_, None)
        return rbm._with_means(other._visible_means)


@dataclass(eq=False, repr=False)
class OrderedRBM(_PenalisedDensity):
    """The ordered RBM: each example uses the first z of the hidden units, z in 1..n_components.

    Between the classic RBM and the infinite one: z varies, and the size is chosen.

    Parameters
    ----------
    n_components : int, default 256
        The number of hidden units.
    beta : float, default 1.01
        How much a unit that takes part costs, by the rule of ``penalty``. Raise it for smaller z.
    penalty : "constant" or "softplus", default "constant"
        The cost of unit i: beta ln 2, as in the paper's experiments, or beta softplus(c_i) with its bias c_i.
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
        Whether z is summed out of the gradient, or sampled as in the paper's Algorithm 1: right on average, and
        noisier. There to be compared with.
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
    >>> from irbm import OrderedRBM, data
    >>> digits = data.load("digits")
    >>> model = OrderedRBM(n_components=30, n_iter=2, random_state=0).fit(digits.train.X)
    >>> model.log_prob_z(digits.test.X).shape
    (296, 30)
    """

    n_components: int = 256

    def _depth(self) -> Depth:
        return Ordered(self.beta, self.penalty)  # type: ignore[arg-type]

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, :-1]


@dataclass(kw_only=True, eq=False, repr=False)
class InfiniteRBM(Growing, _PenalisedDensity):
    """The infinite RBM: it chooses its own size.

    Training starts from one hidden unit and adds one whenever an example and a sample of the model both reach beyond
    the last. Before each step units are put in random order, so that each learns a feature of its own.

    Parameters
    ----------
    beta : float, default 1.01
        How much a unit that takes part costs, by the rule of ``penalty``; must be > 1. Raise it, to 1.1, for a smaller
        machine that grows more slowly.
    penalty : "constant" or "softplus", default "constant"
        The cost of unit i: beta ln 2, as in the paper's experiments, or beta softplus(c_i) with its bias c_i.
    regroup : "adaptive", float or None, default "adaptive"
        How many hidden units are put in random order before each step: by the paper's schedule, a fraction of them
        (below 0.8, or growth may run away), or none, which is the ordinary infinite RBM.
    max_components : int or None, default None
        Growth stops there. Set it to bound time and memory.
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
        Whether z is summed out of the gradient, or sampled as in the paper's Algorithm 1: right on average, and
        noisier. There to be compared with.
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

        Parameters
        ----------
        X : array (n, D)
            The examples to judge by.
        n_permutations : int
            How many orders; two or more for a standard error.
        regrouped : int or None
            So many units change places; None: as many as in the pass of training that the machine comes from.
        data, random_state, tol, budget
            As for ``log_partition``.
        """
        check_count("n_permutations", n_permutations)
        if regrouped is not None:
            check_count("regrouped", regrouped)
        m = self._regrouped() if regrouped is None else regrouped
        checked = torch.cat(list(self._dense_chunks(self._checked(X), torch.uint8)))
        rng = self._rng(random_state)  # which moves on, so that no two orders share the chances of an ln Z
        noise = self._noise(rng)
        effort: dict[str, Any] = {"data": data, "random_state": rng, "tol": tol, "budget": budget}

        def log_partition(machine: Machine) -> LogPartition:
            other: InfiniteRBM = clone(self)._adopt(machine)._with_means(self._visible_means)
            return other.log_partition(**effort)

        return averaged_likelihood(self.machine_, checked, m, n_permutations, log_partition, noise)

    def to_rbm(self, units: str = "effective") -> RBM:
        """The classic RBM of the first round(N_h) units ("effective") or of all l ("all"): z clamped. Sec. 4.2."""
        if units not in ("effective", "all"):
            raise ValueError(f"units must be 'effective' or 'all', got {units!r}")
        kept = self.n_components_ if units == "all" else max(1, round(self.effective_size_))
        return RBM._like(self, self.components_[:kept], self.intercept_hidden_[:kept])
