"""A run on disk, whole: parameters, order, optimiser, chains, counters, history. Written atomically.

Random streams are keyed by (seed, purpose, step), so the seed and the counters are every stream's state; what kind of
stream they are, which device and installation decide, is recorded beside.
"""

import time
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from irbm.files import read_tensors, write_tensors
from irbm.models import Machine
from irbm.models.build import describe, restore
from irbm.ops.noise import stream
from irbm.training.callbacks import Best, Callback
from irbm.training.chains import Chains
from irbm.training.optim import ROWS, OptimizerState
from irbm.training.settings import Settings
from irbm.training.trainer import Report, Trainer, TrainingState

COUNTERS = ("seed", "step", "epoch", "batch", "n_examples")


def save(path: str | Path, state: TrainingState, settings: Settings) -> None:
    parts: dict[str, Any] = {"machine": state.machine, "optimizer": state.optimizer, "chains": state.chains}
    about: dict[str, Any] = {"best": None}
    if state.best is not None:
        parts["best"] = state.best.machine
        about["best"] = {
            "epoch": state.best.epoch,
            "score": state.best.score,
            "machine": describe(state.best.machine),
        }
    tensors = {f"{part}.{name}": t for part, value in parts.items() for name, t in value.tensors().items()}
    about |= {
        "machine": describe(state.machine),
        "settings": asdict(settings),
        "draws": _draws(state.machine),
        "counters": {name: getattr(state, name) for name in COUNTERS},
        "history": [asdict(report) for report in state.history],
    }
    write_tensors(path, tensors | {"sums": state.sums}, "checkpoint", about)


def load(path: str | Path, device: torch.device | str = "cpu") -> tuple[TrainingState, Settings]:
    """The state that ``save`` wrote, and the settings it was trained with; ValueError for an unsound file."""
    return _load(path, device)[:2]


def resume(path: str | Path, wanted: Settings, device: torch.device | str = "cpu") -> TrainingState:
    """The state to go on from under the settings it was trained with. Warns where other random numbers will come."""
    state, saved, draws = _load(path, device)
    check_same(saved, wanted)
    here = _draws(state.machine)
    if draws != here:
        warnings.warn(
            f"{path} was written where random numbers were drawn by {draws!s:.80}, here by {here}: training goes on, "
            "but not to the same parameters; for these use the same device, with numba installed as it was there",
            UserWarning,
            stacklevel=2,
        )
    return state


def _draws(machine: Machine) -> str:
    """What draws the random numbers of its training here."""
    device = machine.weights.device
    return f"{type(stream(device, machine.weights.dtype)).__name__} on {device.type}"


def _load(path: str | Path, device: torch.device | str) -> tuple[TrainingState, Settings, Any]:
    tensors, about = read_tensors(path, "checkpoint")
    try:
        settings = Settings(**about["settings"])
        machine = restore(_part(tensors, "machine"), about["machine"], device)
        state = TrainingState(
            machine=machine,
            optimizer=_optimizer(_part(tensors, "optimizer"), device),
            chains=_chains(_part(tensors, "chains"), device),
            sums=tensors["sums"].to(device),
            history=[Report.restored(row) for row in about["history"]],
            best=_best(_part(tensors, "best"), about["best"], device),
            **_counters(about["counters"]),
        )
        _check_fit(state, settings)
        _check_values(state)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a sound checkpoint: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a sound checkpoint: {error}") from None
    return state, settings, about.get("draws", _draws(machine))  # earlier files do not say


def _part(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}


def _optimizer(tensors: dict[str, Tensor], device: torch.device | str) -> OptimizerState:
    moved = {name: t.to(device) for name, t in tensors.items()}
    sums = {kind: _part(moved, kind) for kind in ("squares", "velocity", "means")}
    step = moved["step"]
    averaged = moved.get("averaged", torch.zeros_like(step))  # there where something is
    return OptimizerState(**sums, averaged=averaged, age_K=moved["age"], step=step)


def _chains(tensors: dict[str, Tensor], device: torch.device | str) -> Chains:
    moved = {name: t.to(device) for name, t in tensors.items()}
    return Chains(moved.get("v"), moved.get("y"))


def _best(tensors: dict[str, Tensor], about: Any, device: torch.device | str) -> Best | None:
    if about is None:
        return None
    score = tuple(about["score"]) if isinstance(about["score"], list) else about["score"]
    numbers = score if isinstance(score, tuple) else (score,)
    if type(about["epoch"]) is not int or not numbers or not all(type(number) is float for number in numbers):
        raise ValueError(f"the best epoch must be a whole number and its score a number or several, got {about!r:.200}")
    return Best(about["epoch"], score, restore(tensors, about["machine"], device))


def _counters(values: dict[str, Any]) -> dict[str, int]:
    counters = {name: values[name] for name in COUNTERS}
    if not all(type(value) is int and value >= 0 for value in counters.values()):
        raise ValueError(f"counters must be whole numbers >= 0, got {values!r:.200}")
    return counters


def _check_fit(state: TrainingState, settings: Settings) -> None:
    """Every tensor beside the machine has the shape and type that a fresh state of these settings has."""
    fresh = TrainingState.start(state.machine, settings, state.seed)
    for part in ("optimizer", "chains"):
        expected = {n: (t.shape, t.dtype) for n, t in getattr(fresh, part).tensors().items()}
        found = {n: (t.shape, t.dtype) for n, t in getattr(state, part).tensors().items()}
        if expected != found:
            raise ValueError(f"its {part} does not fit its machine: expected {expected}, got {found}")
    if state.sums.shape != fresh.sums.shape or state.sums.dtype != fresh.sums.dtype:
        raise ValueError(f"sums must be two float64, got {state.sums.dtype} of shape {tuple(state.sums.shape)}")


def _check_values(state: TrainingState) -> None:
    """What shapes and types do not tell: counts that are none, sums that cannot be, chains of something else."""
    optimizer, chains, machine = state.optimizer, state.chains, state.machine
    padding = ~machine.trained
    rows = {n: t for n, t in optimizer.tensors().items() if n.split(".")[-1] in (*ROWS, "age")}
    sound = {
        "optimiser": all(bool(torch.isfinite(t).all()) for t in optimizer.tensors().values()),
        "ages or squares": all(
            bool((t >= 0).all())
            for t in [optimizer.age_K, optimizer.step, optimizer.averaged, *optimizer.squares.values()]
        ),
        "padding": not any(bool(t[padding].any()) for t in rows.values()),
        "chains": chains.v_ND is None or bool(((chains.v_ND == 0) | (chains.v_ND == 1)).all()),
        "chains' labels": chains.y_N is None or bool(((chains.y_N >= 0) & (chains.y_N < machine.n_classes)).all()),
        "sums": bool(torch.isfinite(state.sums).all()),
        "history": len(state.history) == state.epoch,
        "best": state.best is None or 1 <= state.best.epoch <= state.epoch,
    }
    wrong = [name for name, holds in sound.items() if not holds]
    if wrong:
        raise ValueError(f"its {wrong[0]} cannot be")


def check_same(saved: Settings, wanted: Settings) -> None:
    """Only the number of epochs may change when a run is continued."""
    for field in fields(Settings):
        before, now = getattr(saved, field.name), getattr(wanted, field.name)
        if field.name != "n_iter" and before != now:
            raise ValueError(f"{field.name} was {before!r} in the run to resume and is {now!r} now: use the old value")


class Checkpointer(Callback):
    """Writes a checkpoint after every epoch, and within one whenever ``seconds`` have passed."""

    def __init__(self, path: str | Path, seconds: float = 60.0) -> None:
        self.path = Path(path)
        self.seconds = seconds
        self._written = time.monotonic()

    def after_segment(self, trainer: Trainer) -> None:
        if time.monotonic() - self._written >= self.seconds:
            trainer.check_finite()
            self.write(trainer)

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        self.write(trainer)

    def after_stop(self, trainer: Trainer) -> None:
        self.write(trainer)

    def write(self, trainer: Trainer) -> None:
        save(self.path, trainer.state, trainer.settings)
        self._written = time.monotonic()
