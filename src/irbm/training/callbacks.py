"""Hooks into a run: between segments of steps, and after each epoch."""

from collections.abc import Callable
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


class EarlyStopping(Callback):
    """Stops once a score has not risen for ``patience`` epochs; keeps the best machine and its epoch.

    ``score`` takes a machine and returns a number, larger for better: a validation score.
    """

    def __init__(self, score: Callable[[Machine], float], patience: int = 10) -> None:
        if patience < 1:
            raise ValueError(f"patience must be >= 1, got {patience}")
        self.score = score
        self.patience = patience
        self.best_score = -float("inf")
        self.best_epoch = 0
        self.best_machine: Machine | None = None

    def after_epoch(self, trainer: "Trainer", report: "Report") -> None:
        score = self.score(trainer.machine)
        if score > self.best_score:
            self.best_score, self.best_epoch = score, report.epoch
            self.best_machine = trainer.machine.with_capacity(report.n_components)
        elif report.epoch - self.best_epoch >= self.patience:
            trainer.stop()
