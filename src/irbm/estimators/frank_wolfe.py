"""The Frank-Wolfe RBM: a classic RBM built one hidden unit at a time."""

from dataclasses import KW_ONLY, asdict, dataclass, fields
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import track
from torch import Tensor

from irbm.estimators.base import Boltzmann, choose_device
from irbm.estimators.density import RBM
from irbm.models import Depth, Fixed
from irbm.training import frank_wolfe
from irbm.training.frank_wolfe import Added, GreedySettings, GreedyState


@dataclass(eq=False, repr=False)
class FrankWolfeRBM(Boltzmann):
    """The infinite RBM of Ping, Liu and Ihler: Frank-Wolfe steps, each of which adds the best hidden unit.

    A unit is never changed once it is there; the visible biases are refitted after each. What comes out is a classic
    RBM, and a good start for training one: see `to_rbm`.

    Parameters
    ----------
    n_components : int, default 256
        How many hidden units ``fit`` adds.
    n_iter : int or None, default None
        Steps of ``fit``, one unit each, where they are to be fewer than ``n_components``.
    inner : "unit" or "linear", default "unit"
        What the new unit maximises: the likelihood of the machine with it, or its linear approximation as in the
        Frank-Wolfe method proper, which needs a larger ``l2``.
    inner_steps : int, default 100
        Steps of ascent for each unit, each over all examples. Fewer are quicker and find poorer units.
    n_starts : int, default 8
        From how many starts a unit is sought, of which the best is taken.
    learning_rate : float, default 0.05
        The rate of the ascent.
    l2 : float, default 0.03
        Weight of the L2 penalty on a new unit's weights. Digits want less: 0.01.
    gibbs_steps : int, default 20
        Sweeps of the persistent chains after each unit, which the visible biases follow.
    n_chains : int, default 1000
        How many persistent chains.
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
        l: every unit takes part always.
    n_features_in_ : int
        D, the number of visible units.
    history_ : list of dict
        One row for each unit: its estimated gain, its norm, and how far the estimate can be believed.
    machine_ : Machine
        The machine itself, in torch, for your own loops.

    Examples
    --------
    Features for a classifier:

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from irbm import FrankWolfeRBM, data
    >>> digits = data.load("digits")
    >>> features = FrankWolfeRBM(n_components=30, random_state=0)
    >>> pipeline = make_pipeline(features, LogisticRegression(max_iter=1000))
    >>> pipeline.fit(digits.train.X, digits.train.y).score(digits.test.X, digits.test.y) > 0.85
    True

    A start for contrastive divergence, one pass over the data a call:

    >>> rbm = features.to_rbm().set_params(persistent=False, learning_rate=0.01)
    >>> for _ in range(5):
    ...     rbm = rbm.partial_fit(digits.train.X)
    >>> rbm.n_components_
    30
    """

    n_components: int = GreedySettings.n_components
    _: KW_ONLY
    n_iter: int | None = GreedySettings.n_iter
    inner: str = GreedySettings.inner
    inner_steps: int = GreedySettings.inner_steps
    n_starts: int = GreedySettings.n_starts
    learning_rate: float = GreedySettings.learning_rate
    l2: float = GreedySettings.l2
    gibbs_steps: int = GreedySettings.gibbs_steps
    n_chains: int = GreedySettings.n_chains
    verbose: int = 0

    def _depth(self) -> Depth:
        return Fixed()

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, -2:-1]

    def _settings(self) -> GreedySettings:
        return GreedySettings(**{f.name: getattr(self, f.name) for f in fields(GreedySettings)})

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One row for each unit; saved with the model."""
        if not getattr(self, "_history", None):
            raise AttributeError(f"this {type(self).__name__} has not been trained: call fit or partial_fit")
        return [asdict(added) for added in self._history]

    @property
    def effective_size_(self) -> float:
        """l: every unit takes part always."""
        return float(self.n_components_)

    # -- learning -------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Add units, from none, that model X, (n, D)."""
        with self._refitting():
            settings, X_ND = self._examples(X, reset=True)
            self._grow(frank_wolfe.start(X_ND, settings, self._seed()), X_ND, settings, settings.n_units)
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Add one unit that models X, whatever ``n_components`` says; as many calls do what ``fit`` does."""
        fitted = self.__sklearn_is_fitted__()
        settings, X_ND = self._examples(X, reset=not fitted)
        if not fitted:
            return self._grow(frank_wolfe.start(X_ND, settings, self._seed()), X_ND, settings, 1)
        state = getattr(self, "_state", None)
        if state is None or len(state.chains_MD) != settings.n_chains:
            state = self._resumed(X_ND, settings)
        return self._grow(state, X_ND, settings, 1)

    def _examples(self, X: ArrayLike, *, reset: bool) -> tuple[GreedySettings, Tensor]:
        """Settings and examples, checked; the examples on the device, in the machine's precision."""
        settings, device = self._settings(), choose_device(self.device)
        binary = torch.from_numpy(self._dense(self._checked(X, reset=reset)))
        if reset:
            return settings, binary.to(device, torch.float32)
        return settings, binary.to(self.machine_.weights)

    def _resumed(self, X_ND: Tensor, settings: GreedySettings) -> GreedyState:
        """From the machine as it is: its chains are not saved with it."""
        state = frank_wolfe.resume(self.machine_, X_ND, settings, self._seed())
        state.history = list(getattr(self, "_history", []))
        return state

    def _grow(self, state: GreedyState, X_ND: Tensor, settings: GreedySettings, n_units: int) -> Self:
        # Forgotten first: where training fails the machine that was there before stays, and can be trained afresh.
        self.__dict__.pop("_state", None)
        console = Console(stderr=True)
        for _ in track(range(n_units), "adding hidden units", console=console, disable=not self.verbose):
            frank_wolfe.add_unit_(state, X_ND, settings)
        self._state, self._history = state, list(state.history)
        return self._adopt(state.machine)._with_means(X_ND.double().mean(0))

    def to_rbm(self) -> RBM:
        """The same machine as an `RBM`, whose ``partial_fit`` trains all its parameters together from there on.

        It has no ``max_norm``: the bound an RBM has by default would cut the first, largest units.
        """
        return RBM._like(self, self.components_, self.intercept_hidden_, max_norm=None)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of ``score_samples``."""
        return float(self.score_samples(X).mean())

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        *,
        order: ArrayLike | None = None,
    ) -> Self:
        """A fitted estimator from arrays: weights (l, D), hidden_bias (l,), visible_bias (D,); see `RBM`."""
        model = cls._from_arrays({}, weights, hidden_bias, visible_bias, order)
        model.n_components = model.n_components_
        return model

    # -- files ----------------------------------------------------------------------------------------------

    def _extra_metadata(self) -> dict[str, Any]:
        return {"history": [asdict(added) for added in getattr(self, "_history", [])]}

    def _restore_metadata(self, about: dict[str, Any]) -> Self:
        self._history = [Added.restored(row) for row in about.get("history", [])]
        return self
