"""A run directory: what was asked for, where training stands, what came of it.

config.toml              every setting
checkpoint.safetensors   where training stands
model.safetensors        the trained machine, once training has ended
metrics.csv              one row an epoch
events.out.tfevents.*    the same for TensorBoard
evaluation.json, .png    written by ``irbm evaluate``
report.html              written by ``irbm report``
"""

import csv
import io
import json
import logging
import signal
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from irbm import data
from irbm.estimators import RBM, InfiniteRBM, InfiniteRBMClassifier, OrderedRBM, RBMClassifier
from irbm.estimators.base import check_count, check_seed
from irbm.estimators.fitting import Trainable
from irbm.files import write_bytes
from irbm.training import Callback, Checkpointer, EarlyStopping, Report, Trainer, TrainingState, checkpoint

MODELS: dict[str, dict[str, type[Trainable]]] = {
    "density": {"infinite": InfiniteRBM, "ordered": OrderedRBM, "fixed": RBM},
    "classify": {"infinite": InfiniteRBMClassifier, "fixed": RBMClassifier},
}
# Settings of an estimator that a run decides in its own way.
TAKEN = ("random_state", "verbose", "binarize")


@dataclass(frozen=True)
class Config:
    """Everything that decides a run; ``settings`` are the estimator's own."""

    dataset: str
    task: str = "density"
    model: str = "infinite"
    seed: int = 0
    binarize: float | None = None  # for loading a user's own file; what an estimator sees is binary
    validate: bool | None = None  # None: for classifiers, where it is quick
    patience: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.task, str) or self.task not in MODELS:
            raise ValueError(f"task must be one of {', '.join(MODELS)}, got {self.task!r}")
        models = MODELS[self.task]
        if not isinstance(self.model, str) or self.model not in models:
            raise ValueError(f"model must be one of {', '.join(models)} to {self.task}, got {self.model!r}")
        known = {f.name for f in fields(models[self.model])} - set(TAKEN)
        unknown = sorted(set(self.settings) - known)
        if unknown:
            raise ValueError(f"{unknown[0]} is no setting of the {self.model} model; it has {', '.join(sorted(known))}")
        if self.validate is not None and not isinstance(self.validate, bool):
            raise ValueError(f"validate must be true or false, got {self.validate!r}")
        if self.patience is not None:
            check_count("patience", self.patience)
            if not self.validates:
                raise ValueError(f"patience={self.patience} needs validation: set validate too")
        self.estimator()._check_settings()

    @property
    def classifies(self) -> bool:
        return self.task == "classify"

    @property
    def validates(self) -> bool:
        """Whether the validation split chooses the epoch."""
        return self.classifies if self.validate is None else self.validate

    def estimator(self) -> Any:
        return MODELS[self.task][self.model](random_state=self.seed, **self.settings)

    def load_data(self) -> data.Dataset:
        examples = data.load(self.dataset, seed=self.seed, binarize=self.binarize)
        if self.classifies and any(s.y is None for s in (examples.train, examples.validation, examples.test)):
            raise ValueError(f"{examples.name} has no labels: task 'classify' needs y beside X; 'density' does not")
        if self.classifies:
            check_classification_targets(examples.train.y)
            held, learned = (set(np.asarray(split.y).tolist()) for split in (examples.validation, examples.train))
            if not held & learned:
                raise ValueError(f"{examples.name}: no label of its validation split is one of training")
        return examples

    def complete(self) -> dict[str, Any]:
        """Every setting, defaults included, as one flat table."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        settings = {n: v for n, v in self.estimator().get_params().items() if n not in TAKEN}
        return own | {"validate": self.validates} | settings

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> "Config":
        names = {f.name for f in fields(cls)} - {"settings"}
        own = {n: v for n, v in table.items() if n in names}
        if not isinstance(own.get("dataset"), str):
            raise ValueError("dataset must be given: the name of a data set or the path of a file")
        check_seed(own.get("seed", 0))
        return cls(**own, settings={n: v for n, v in table.items() if n not in names})


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
    def evaluation_file(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def _verdicts(self) -> list[Path]:
        """What other commands wrote of the model: another model makes them untrue."""
        return [self.evaluation_file, self.path / "evaluation.png", self.path / "report.html"]

    def files(self) -> list[Path]:
        """Everything in the directory that a run would write."""
        own = [self.config_file, self.checkpoint_file, self.model_file, self.metrics_file, *self._verdicts]
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
        return MODELS[config.task][config.model].load(self.model_file)

    def position(self) -> tuple[int, int]:
        """The step and the epoch that training has reached."""
        state = self._state()
        return (state.step, state.epoch) if state else (0, 0)

    def epochs_begun(self) -> int:
        """The passes over the data that training has begun, the one it was stopped in among them."""
        state = self._state()
        return state.epoch + (state.batch > 0) if state else 0

    def _state(self) -> TrainingState | None:
        """What training would go on from."""
        return checkpoint.load(self.checkpoint_file)[0] if self.checkpoint_file.is_file() else None

    def begin(self, config: Config) -> None:
        """A fresh run: whatever an old one left is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        for old in self.files():
            old.unlink()
        self.write_config(config)

    def write_config(self, config: Config) -> None:
        write_bytes(self.config_file, to_toml(config.complete()).encode())

    def write_metrics(self, history: list[Report]) -> None:
        text, table = io.StringIO(), [asdict(row) for row in history]
        used = [f.name for f in fields(Report) if any(row[f.name] is not None for row in table)]
        rows = csv.DictWriter(text, used, extrasaction="ignore", lineterminator="\n")
        rows.writeheader()
        rows.writerows(table)
        write_bytes(self.metrics_file, text.getvalue().encode())

    def ended(self) -> bool:
        """Whether training has come to its end: of the epochs asked for, or of patience."""
        if not self.checkpoint_file.is_file() or not self.model_file.is_file():
            return False
        config, (state, _) = self.config(), checkpoint.load(self.checkpoint_file)
        stopped = config.validates and EarlyStopping(lambda _: 0.0, config.patience).exhausted(state)
        return stopped or state.epoch >= config.complete()["n_iter"]

    def train(self, examples: data.Dataset, callbacks: Sequence[Callback] = ()) -> bool:
        """Train until the end, or until interrupted: whether the end was reached. Continues from a checkpoint."""
        for draft in self._drafts():
            draft.unlink()
        config = self.config()
        model = config.estimator()
        options: dict[str, Any] = {"resume_from": self.checkpoint_file if self.checkpoint_file.is_file() else None}
        if config.validates:
            held = examples.validation
            options |= {"patience": config.patience, "validation": (held.X, held.y) if config.classifies else held.X}
        labels = (examples.train.y,) if config.classifies else ()
        metrics = Metrics(self)
        writers = [Checkpointer(self.checkpoint_file), metrics]
        with interruptible() as stopper, closing(metrics):
            model.fit(examples.train.X, *labels, callbacks=[*callbacks, *writers, stopper], **options)
        self.write_metrics(model.training_state_.history)
        if stopper.asked and model.training_state_.epoch < model.n_iter:
            return False
        for old in self._verdicts:
            old.unlink(missing_ok=True)
        model.save(self.model_file)
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
        for name, value in asdict(trainer.state.history[-1]).items():
            if name not in ("epoch", "step") and value is not None:
                self._events.add_scalar(name, value, report.epoch)
        self._events.flush()

    def close(self) -> None:
        """Its writer has a thread of its own."""
        self._events.close()


class _Stopper(Callback):
    """Stops the trainer after the step in which a signal came; a second Ctrl-C does not wait for its end."""

    def __init__(self) -> None:
        self.asked = False
        self._trainer: Trainer | None = None

    def before_run(self, trainer: Trainer) -> None:
        self._trainer = trainer
        if self.asked:
            trainer.stop()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if self.asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
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
