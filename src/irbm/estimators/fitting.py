"""Estimators that learn: settings of training, ``fit`` and ``partial_fit`` around the trainer."""

import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irbm.estimators.base import Boltzmann, check_count, choose_device
from irbm.models import Depth, Fixed, Infinite, Machine
from irbm.training import Callback, EarlyStopping, Report, Settings, Trainer, TrainingState, checkpoint
from irbm.training.callbacks import Score
from irbm.training.growth import prune
from irbm.training.initial import initial_machine
from irbm.training.progress import ProgressBar

BATCH_ROWS = 500  # validation examples scored at once


@dataclass(kw_only=True, eq=False, repr=False)
class Trainable(Boltzmann):
    """A machine that can be fitted. Defaults are those of `Settings`."""

    learning_rate: float = Settings.learning_rate
    batch_size: int = Settings.batch_size
    n_iter: int = Settings.n_iter
    gibbs_steps: int = Settings.gibbs_steps
    persistent: bool = Settings.persistent
    n_chains: int | None = Settings.n_chains
    gradient: str = Settings.gradient
    optimizer: str = Settings.optimizer
    momentum: bool = Settings.momentum
    averaging: int | None = Settings.averaging
    l1: float = Settings.l1
    l2: float = Settings.l2
    max_norm: float | None = Settings.max_norm
    verbose: int = 0

    def _settings(self) -> Settings:
        """The settings of training, checked. A machine of fixed size regroups nothing."""
        own = {f.name: getattr(self, f.name) for f in fields(Settings) if hasattr(self, f.name)}
        return Settings(**({"regroup": None} | own))

    def _check_settings(self) -> None:
        """Every setting, before any work starts."""
        self._settings()
        self._first_size()
        self._depth()
        choose_device(self.device)

    def _first_size(self) -> int:
        """How many units training starts with."""
        size = getattr(self, "n_components", 1)
        check_count("n_components", size)
        return int(size)

    @classmethod
    def _size_of(cls, hidden_bias: Any) -> dict[str, int]:
        """The setting that goes with arrays of so many units, if any; their shapes are checked elsewhere."""
        if not hasattr(cls, "n_components"):
            return {}
        array = hidden_bias.detach().cpu() if isinstance(hidden_bias, Tensor) else hidden_bias
        return {"n_components": max(1, np.asarray(array).size)}

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One row for each pass over the data; saved with the model."""
        return [asdict(report) for report in self._reports()]

    @property
    def effective_size_(self) -> float:
        """N_h: the mean over batches of the largest likeliest z, in the pass of the machine. Eq. 33 of sec. 3.3."""
        if isinstance(self._depth(), Fixed):
            return float(self.n_components_)
        return self._report().effective_size

    @property
    def best_epoch_(self) -> int:
        """The epoch, from 1, whose machine the validation data chose."""
        if getattr(self, "_best_epoch", None) is None:
            raise AttributeError(f"this {type(self).__name__} was fitted without validation data")
        return int(self._best_epoch or 0)

    @property
    def training_state_(self) -> TrainingState:
        """Where training stands: counters, optimiser, chains, history."""
        if not hasattr(self, "_state"):
            raise AttributeError(f"this {type(self).__name__} has not been trained here: call fit or partial_fit")
        return self._state

    def _reports(self) -> list[Report]:
        if not getattr(self, "_history", None):
            raise AttributeError(f"this {type(self).__name__} has not been trained: call fit or partial_fit")
        return self._history

    def _report(self) -> Report:
        """The pass that the fitted machine comes from."""
        return self._reports()[(self._best_epoch or 0) - 1]

    def _regrouped(self) -> int:
        """How many units that pass has left without an order; all, where pruning has left fewer."""
        return min(self._report().regrouped, self.n_components_)

    # -- learning -------------------------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: NDArray[np.int64] | None,
        n_classes: int,
        callbacks: Sequence[Callback],
        resume_from: str | Path | None,
        validation: Callable[[Machine], Score] | None,
        patience: int | None,
    ) -> Self:
        """Train from the start, or from a checkpoint, on checked examples; keep the epoch that validates best."""
        settings = self._settings()
        if resume_from is None:
            state = self._fresh_state(X.shape[1], n_classes, settings)
        else:
            state = self._saved_state(resume_from, X.shape, n_classes, settings)
        if validation is None:
            if patience is not None:
                raise ValueError(f"patience={patience!r} needs validation data to lose it over")
            return self._train(state, X, y, settings, settings.n_iter, callbacks)
        if patience is not None:
            check_count("patience", patience)
        stopping = EarlyStopping(validation, patience)
        until = state.epoch if stopping.exhausted(state) else settings.n_iter
        self._train(state, X, y, settings, until, [stopping, *callbacks])
        best, means_D = state.best, self._visible_means
        if best is None:  # no epoch was finished, or every score was NaN
            return self
        self._adopt(best.machine)._with_means(means_D)
        self._best_epoch = best.epoch
        return self

    def _saved_state(
        self, path: str | Path, shape: tuple[int, int], n_classes: int, settings: Settings
    ) -> TrainingState:
        state = checkpoint.resume(path, settings, choose_device(self.device))
        machine = state.machine
        found = {
            "depth": machine.depth,
            "examples": (state.n_examples, machine.n_visible),
            "classes": machine.n_classes,
            "n_components": int(machine.size) if hasattr(self, "n_components") else self._first_size(),
            "seed": state.seed,
        }
        wanted = {
            "depth": self._depth(),
            "examples": shape,
            "classes": n_classes,
            "n_components": self._first_size(),
            "seed": self._seed() if isinstance(self.random_state, numbers.Integral) else state.seed,
        }
        if found != wanted:
            raise ValueError(f"{path} is of another run: it has {found}, not {wanted}")
        return state

    def _continue(self, X: Any, y: NDArray[np.int64] | None, n_classes: int) -> Self:
        """One more pass, from wherever the machine stands."""
        settings = self._settings()
        if not self.__sklearn_is_fitted__():
            state = self._fresh_state(X.shape[1], n_classes, settings)
        else:
            # Where validation chose an epoch, the state stands elsewhere than the machine.
            chosen = self._best_epoch is not None
            state = (None if chosen else getattr(self, "_state", None)) or self._restarted(settings)
        # A new pass, under the settings as they are now; what a stopped one left undone stays undone.
        state.machine = replace(state.machine, depth=self._depth())
        state.batch = 0
        state.sums.zero_()
        state.suit_(settings)
        return self._train(state, X, y, settings, state.epoch + 1, ())

    def _restarted(self, settings: Settings) -> TrainingState:
        """Training from the machine as it is, with the passes it has had and nothing else of its past."""
        state = TrainingState.start(self.machine_.with_capacity(self.n_components_), settings, self._seed())
        state.history = list(getattr(self, "_history", []))
        state.epoch = len(state.history)
        return state

    def _fresh_state(self, n_visible: int, n_classes: int, settings: Settings) -> TrainingState:
        seed = self._seed()
        machine = initial_machine(
            self._depth(),
            n_visible,
            n_components=self._first_size(),
            n_classes=n_classes,
            seed=seed,
            device=choose_device(self.device),
        )
        return TrainingState.start(machine, settings, seed)

    def _train(
        self,
        state: TrainingState,
        X: Any,
        y: NDArray[np.int64] | None,
        settings: Settings,
        until: int,
        callbacks: Sequence[Callback],
    ) -> Self:
        # Forgotten first: where training fails the machine that was there before stays, and can be trained afresh.
        self.__dict__.pop("_state", None)
        examples = torch.from_numpy(self._dense(X))
        labels = None if y is None else torch.from_numpy(y)
        trainer = Trainer(state, examples, labels, settings=settings, callbacks=callbacks, n_iter=until)
        if self.verbose:
            with ProgressBar() as bar:
                trainer.callbacks += (bar,)
                trainer.run()
        else:
            trainer.run()
        self._state, self._history = state, list(state.history)
        return self._adopt(state.kept)._with_means(examples.double().mean(0))

    def prune(self) -> Self:
        """Drop the units whose weights have less than a tenth of the mean norm; training would go on afresh."""
        means_D, epoch = self._visible_means, self._best_epoch
        self._adopt(prune(self.machine_))._with_means(means_D)
        self._best_epoch = epoch
        if hasattr(self, "_state"):
            self._state = self._restarted(self._settings())
        return self

    # -- files ----------------------------------------------------------------------------------------------

    def _extra_metadata(self) -> dict[str, Any]:
        history = [asdict(report) for report in getattr(self, "_history", [])]
        return {"history": history, "best_epoch": self._best_epoch}

    def _restore_metadata(self, about: dict[str, Any]) -> Self:
        self._history = [Report.restored(row) for row in about.get("history", [])]
        self._best_epoch = about.get("best_epoch")
        if self._best_epoch is not None and self._best_epoch not in range(1, len(self._history) + 1):
            raise ValueError(f"best_epoch must be None or one of its epochs, got {self._best_epoch!r:.80}")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class FixedSize(Trainable):
    """z = l always, with an l of the user's choice: what `RBM` and `RBMClassifier` share."""

    n_components: int = field(default=256, kw_only=False)

    def _depth(self) -> Depth:
        return Fixed()

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ[:, -2:-1]


@dataclass(kw_only=True, eq=False, repr=False)
class Penalised(Trainable):
    """Where taking part costs a unit: what ordered and infinite machines share."""

    beta: float = 1.01
    penalty: str = "constant"


@dataclass(kw_only=True, eq=False, repr=False)
class Growing(Penalised):
    """z without end, and an l that grows: what `InfiniteRBM` and `InfiniteRBMClassifier` share."""

    regroup: str | float | None = "adaptive"
    max_components: int | None = None

    def _depth(self) -> Depth:
        return Infinite(self.beta, self.penalty)  # type: ignore[arg-type]


def batches(examples: Tensor, machine: Machine) -> Iterator[Tensor]:
    """Rows of the examples where the machine is, in its dtype."""
    for start in range(0, len(examples), BATCH_ROWS):
        yield examples[start : start + BATCH_ROWS].to(machine.weights.device, machine.weights.dtype)
