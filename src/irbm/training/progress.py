"""A progress bar for training."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from irbm.training.callbacks import Callback
from irbm.training.trainer import Report, Trainer


class ProgressBar(Callback):
    """Epoch, size, regrouped units, rate, reconstruction error and speed, on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task: Any = None
        self._figures = ""
        self._last = (0, 0.0)  # step and second
        self._speed = 0.0

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def after_segment(self, trainer: Trainer) -> None:
        self._show(trainer, trainer.known_size)

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        self._figures = (
            f"M {report.regrouped}  rate {report.learning_rate:.3g}  error {report.reconstruction_error:.4f}  "
        )
        self._show(trainer, report.n_components)

    def _show(self, trainer: Trainer, size: int) -> None:
        now, state = time.perf_counter(), trainer.state
        if self._task is None:
            self._task = self._progress.add_task("", total=trainer.n_iter, completed=state.epoch, figures="")
            self._last = (state.step, now)  # steps before a resume took no time here
        step, then = self._last
        if state.step > step:
            self._speed = (state.step - step) / (now - then)
            self._last = (state.step, now)
        figures = f"l {size}  {self._figures}{self._speed:.0f} steps/s"
        self._progress.update(self._task, completed=state.epoch, figures=figures)
