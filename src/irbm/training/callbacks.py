"""Hooks into a run: between segments of steps, and after each epoch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from irbm.models import Machine

if TYPE_CHECKING:
    from irbm.training.trainer import Report, Trainer


class Callback:
    """Does nothing; override what you need."""

    def after_segment(self, trainer: "Trainer") -> None:
        """Called every few steps, when the size is known to the host and the parameters are finite."""

    def after_epoch(self, trainer: "Trainer", report: "Report") -> None:
        """Called at the end of each pass over the data."""

    def after_stop(self, trainer: "Trainer") -> None:
        """Called where the trainer was told to stop within a pass, after the step in progress."""


@dataclass(frozen=True, eq=False)
class Best:
    """The machine of the epoch with the highest score."""

    epoch: int
    score: float
    machine: Machine


class EarlyStopping(Callback):
    """Keeps the machine with the highest score as ``trainer.state.best``; stops once no epoch of the last
    ``patience`` has beaten it (None: never). Checkpoints hold the best: put a `Checkpointer` behind this in the list.

    ``score`` takes a machine and returns a number, larger for better: a validation score.
    """

    def __init__(self, score: Callable[[Machine], float], patience: int | None = 10) -> None:
        if patience is not None and patience < 1:
            raise ValueError(f"patience must be None or >= 1, got {patience}")
        self.score = score
        self.patience = patience

    def after_epoch(self, trainer: "Trainer", report: "Report") -> None:
        score, best = float(self.score(trainer.machine)), trainer.state.best
        if not math.isnan(score) and (best is None or score > best.score):
            best = Best(report.epoch, score, trainer.machine.with_capacity(report.n_components))
            trainer.state.best = best
        beaten_last = 0 if best is None else best.epoch
        if self.patience is not None and report.epoch - beaten_last >= self.patience:
            trainer.stop()
