"""A run directory: what was asked for, where training stands, what came of it.

config.toml              every setting
checkpoint.safetensors   where training stands
model.safetensors        the trained machine, once training has ended
metrics.csv              one row an epoch
events.out.tfevents.*    the same for TensorBoard
report.html              written by ``irbm report``
"""

import csv
import io
import json
import logging
import signal
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irbm import data
from irbm.estimators import RBM, InfiniteRBM, OrderedRBM
from irbm.estimators.fitting import Trainable
from irbm.files import write_bytes
from irbm.training import Callback, Checkpointer, Report, Trainer, checkpoint

MODELS: dict[str, type[Trainable]] = {"infinite": InfiniteRBM, "ordered": OrderedRBM, "fixed": RBM}


@dataclass(frozen=True)
class Config:
    """Everything that decides a run; ``settings`` are the estimator's own."""

    dataset: str
    model: str = "infinite"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        known = {f.name for f in fields(MODELS[self.model])} - {"random_state", "verbose"}
        unknown = sorted(set(self.settings) - known)
        if unknown:
            raise ValueError(f"{unknown[0]} is no setting of the {self.model} model; it has {', '.join(sorted(known))}")
        self.estimator()._check_settings()

    def estimator(self) -> Any:
        return MODELS[self.model](random_state=self.seed, **self.settings)

    def load_data(self) -> data.Dataset:
        return data.load(self.dataset, seed=self.seed, binarize=self.settings.get("binarize"))

    def complete(self) -> dict[str, Any]:
        """Every setting, defaults included, as one flat table."""
        settings = self.estimator().get_params()
        own = {"dataset": self.dataset, "model": self.model, "seed": self.seed}
        return own | {n: v for n, v in settings.items() if n not in ("random_state", "verbose")}

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> "Config":
        own = {n: table[n] for n in ("dataset", "model", "seed") if n in table}
        if not isinstance(own.get("dataset"), str):
            raise ValueError("dataset must be given: the name of a data set or the path of a file")
        if type(own.get("seed", 0)) is not int or own.get("seed", 0) < 0:
            raise ValueError(f"seed must be a whole number >= 0, got {own['seed']!r}")
        return cls(**own, settings={n: v for n, v in table.items() if n not in own})


def read_toml(path: str | Path) -> dict[str, Any]:
    """A flat table of settings. "none" stands for None, which TOML lacks."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"no configuration file {path}: check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    return {name: None if value == "none" else value for name, value in table.items()}


def to_toml(table: dict[str, Any]) -> str:
    lines = (
        f"{name} = {json.dumps('none' if value is None else value, ensure_ascii=False)}"
        for name, value in table.items()
    )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Run:
    """A directory with a run in it."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def checkpoint_file(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def model_file(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.csv"

    def files(self) -> list[Path]:
        """Everything in the directory that a run would write."""
        own = [self.config_file, self.checkpoint_file, self.model_file, self.metrics_file]
        own += [self.path / name for name in ("report.html", "evaluation.json")]
        return [file for file in [*own, *self.path.glob("events.out.tfevents.*"), *self._drafts()] if file.exists()]

    def _drafts(self) -> list[Path]:
        """What a killed process left half written."""
        return list(self.path.glob(".*.part"))

    def exists(self) -> bool:
        return self.config_file.is_file()

    def config(self) -> Config:
        if not self.exists():
            raise FileNotFoundError(f"{self.path} is not a run directory: it has no config.toml")
        return Config.from_table(read_toml(self.config_file))

    def model(self) -> Any:
        """The trained estimator."""
        config = self.config()
        if not self.model_file.is_file():
            raise FileNotFoundError(f"{self.path} has not ended training: irbm train --resume ends it")
        return MODELS[config.model].load(self.model_file)

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv."""
        with open(self.metrics_file, newline="") as file:
            return [{n: float(v) for n, v in row.items()} for row in csv.DictReader(file)]

    def position(self) -> tuple[int, int]:
        """The step and the epoch that training has reached."""
        if not self.checkpoint_file.is_file():
            return 0, 0
        state, _ = checkpoint.load(self.checkpoint_file)
        return state.step, state.epoch

    def begin(self, config: Config) -> None:
        """A fresh run: whatever an old one left is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        for old in self.files():
            old.unlink()
        self.write_config(config)

    def write_config(self, config: Config) -> None:
        write_bytes(self.config_file, to_toml(config.complete()).encode())

    def write_metrics(self, history: list[Report]) -> None:
        text = io.StringIO()
        rows = csv.DictWriter(text, [f.name for f in fields(Report)], lineterminator="\n")
        rows.writeheader()
        rows.writerows(asdict(row) for row in history)
        write_bytes(self.metrics_file, text.getvalue().encode())

    def train(self, X: NDArray[np.uint8], callbacks: Sequence[Callback] = ()) -> bool:
        """Train until the end, or until interrupted: whether the end was reached. Continues from a checkpoint."""
        for draft in self._drafts():
            draft.unlink()
        model = self.config().estimator()
        threshold = model.binarize
        model.set_params(binarize=None)  # X has been through it already
        resume_from = self.checkpoint_file if self.checkpoint_file.is_file() else None
        writers = [Checkpointer(self.checkpoint_file), Metrics(self)]
        with interruptible() as stopper:
            model.fit(X, callbacks=[*callbacks, *writers, stopper], resume_from=resume_from)
        self.write_metrics(model.training_state_.history)
        if model.training_state_.epoch < model.n_iter:
            return False
        model.set_params(binarize=threshold).save(self.model_file)
        return True


class Metrics(Callback):
    """metrics.csv, always whole, and TensorBoard events."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and needed here alone

        logging.getLogger("tensorboard").setLevel(logging.ERROR)
        self._run = run
        self._events = SummaryWriter(str(run.path))

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        self._run.write_metrics(trainer.state.history)
        for name, value in asdict(report).items():
            if name not in ("epoch", "step"):
                self._events.add_scalar(name, value, report.epoch)
        self._events.flush()


class _Stopper(Callback):
    """Stops the trainer after the step in which a signal came."""

    def __init__(self) -> None:
        self.asked = False
        self._trainer: Trainer | None = None

    def after_segment(self, trainer: Trainer) -> None:
        self._trainer = trainer
        if self.asked:
            trainer.stop()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._trainer is not None:
            self._trainer.stop()


@contextmanager
def interruptible() -> Iterator[_Stopper]:
    """Turns Ctrl-C and a termination signal into an orderly stop."""
    stopper = _Stopper()
    old = {s: signal.signal(s, stopper.handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopper
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
