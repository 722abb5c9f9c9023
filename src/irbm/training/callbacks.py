"""Hooks into a run: between segments of steps, and after each epoch."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from irbm.models import Machine

if TYPE_CHECKING:
    from irbm.training.trainer import Report, Trainer, TrainingState


class Callback:
    """Does nothing; override what you need."""

    def before_run(self, trainer: "Trainer") -> None:
        """Called once, before the first step of a trainer."""

    def after_segment(self, trainer: "Trainer") -> None:
        """Called every few steps; parameters that have run away in the last of them may not have been noticed yet."""

    def after_epoch(self, trainer: "Trainer", report: "Report") -> None:
        """Called at the end of each pass over the data."""

    def after_stop(self, trainer: "Trainer") -> None:
        """Called where the trainer was told to stop within a pass, after the step in progress."""


Score = float | tuple[float, ...]
"""Larger is better; of several numbers the first counts, the next ones break ties."""


@dataclass(frozen=True, eq=False)
class Best:
    """The machine of the epoch with the highest score."""

    epoch: int
    score: Score
    machine: Machine


class EarlyStopping(Callback):
    """Keeps the machine with the highest score as ``trainer.state.best``; stops once no epoch of the last
    ``patience`` has beaten it (None: never). Checkpoints hold the best: put a `Checkpointer` behind this in the list.

    ``score`` takes a machine and returns a validation score, which the epoch's report shows too.
    """

    def __init__(self, score: Callable[[Machine], Score], patience: int | None = 10) -> None:
        if patience is not None and patience < 1:
            raise ValueError(f"patience must be None or >= 1, got {patience}")
        self.score = score
        self.patience = patience

    def after_epoch(self, trainer: "Trainer", report: "Report") -> None:
        machine, best = trainer.state.kept, trainer.state.best
        found = self.score(machine)
        score = tuple(map(float, found)) if isinstance(found, tuple) else float(found)
        first = score[0] if isinstance(score, tuple) else score
        trainer.state.history[-1] = replace(report, validation_score=first)
        if not math.isnan(first) and (best is None or score > best.score):  # type: ignore[operator]
            trainer.state.best = Best(report.epoch, score, machine.with_capacity(report.n_components))
        if self.exhausted(trainer.state):
            trainer.stop()

    def exhausted(self, state: "TrainingState") -> bool:
        """Whether patience has come to an end."""
        beaten_last = 0 if state.best is None else state.best.epoch
        return self.patience is not None and state.epoch - beaten_last >= self.patience
