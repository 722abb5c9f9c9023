"""The epoch of a density model that validates best, in a file of its own: estimates, samples and depths need no more.

``OUT/chosen/`` is what is worth keeping of ``OUT/runs/``: with it nothing is trained again, and the estimate of ln Z
can be repeated with a larger budget.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from irbm.evaluation.partition import LogPartition
from irbm.experiments.lab import KEPT_EVERY, Lab, Run, Training, digest, likelihood, load
from irbm.files import read_tensors, write_tensors
from irbm.models import Machine
from irbm.models.build import describe, restore
from irbm.training import Report


@dataclass(frozen=True)
class Choice:
    """What to train, and how to choose its epoch."""

    training: Training
    epochs: tuple[int, ...]  # to choose from
    budget: int  # points of the longest path of annealing for each of them
    averaged: int = 1  # kept machines, up to that of the epoch, whose parameters are averaged

    def name(self, lab: Lab) -> str:
        """Of its files: everything that decides it."""
        decides = {"epochs": self.epochs, "budget": self.budget, "averaged": self.averaged}
        return f"{lab.run_of(self.training).folder.name}-{digest(decides, lab.device)}"

    def file(self, lab: Lab) -> Path:
        """Where what is chosen is kept."""
        return lab.folder / "chosen" / f"{self.name(lab)}.safetensors"

    def machine(self, run: Run, epoch: int) -> Machine:
        """Of a candidate."""
        first = max(KEPT_EVERY, epoch - (self.averaged - 1) * KEPT_EVERY)
        return average([*(run.machine(e) for e in range(first, epoch, KEPT_EVERY)), run.machine(epoch)])


@dataclass(frozen=True)
class Chosen:
    """The machine of the epoch that validates best."""

    choice: Choice
    file: Path
    machine: Machine
    report: Report  # of that epoch
    validation: list[dict[str, Any]]  # of every epoch looked at
    training_seconds: float

    @property
    def epoch(self) -> int:
        return self.report.epoch

    def log_partition(self, lab: Lab, machine: Machine, budget: int, kind: str = "own") -> LogPartition:
        """ln Z of the machine, or of another ``kind`` that was made of it."""
        file = self.file.with_name(f"{self.file.stem}_{kind}_{budget}.json")
        return lab.log_partition(machine, self.choice.training, budget, file)


def choose(lab: Lab, choice: Choice) -> Chosen:
    """Train, and choose by the validation split; or read what an earlier call has kept."""
    file = choice.file(lab)
    if not file.is_file():
        _find(lab, choice, file)
    tensors, about = read_tensors(file, "chosen")
    machine = restore(tensors, about["machine"], lab.device)
    report = Report.restored(about["report"])
    return Chosen(choice, file, machine, report, about["validation"], about["training_seconds"])


def choose_all(lab: Lab, choices: Iterable[Choice]) -> None:
    """The same for many at once, ``jobs`` at a time; what several share is trained once, and before they choose."""
    left = {choice.name(lab): choice for choice in choices if not choice.file(lab).is_file()}.values()
    lab.train(dict.fromkeys(choice.training for choice in left), lab.name)
    calls = [{"lab": replace(lab, jobs=1), "choice": choice} for choice in left]
    list(lab.each(choose, calls, "choices of an epoch", talks=True))


def average(machines: list[Machine]) -> Machine:
    """The last machine with each parameter's mean over all that have it; units keep their rows while machines grow."""
    last = machines[-1].with_capacity(int(machines[-1].size))
    seen_K = torch.zeros_like(last.hidden_bias)
    sums = {name: torch.zeros_like(getattr(last, name)) for name in ("weights", "hidden_bias", "visible_bias")}
    for machine in machines:
        size = int(machine.size)
        seen_K[:size] += 1
        sums["weights"][:size] += machine.weights[:size]
        sums["hidden_bias"][:size] += machine.hidden_bias[:size]
        sums["visible_bias"] += machine.visible_bias / len(machines)
    sums["weights"] /= seen_K[:, None]
    sums["hidden_bias"] /= seen_K
    return replace(last, weights=sums["weights"], hidden_bias=sums["hidden_bias"], visible_bias=sums["visible_bias"])


def _find(lab: Lab, choice: Choice, file: Path) -> None:
    """The choice is by the lower end of the bracket: an estimate that fails flatters, and must not win by it."""
    (run,) = lab.train([choice.training], lab.name)
    held, found = load(choice.training.dataset).validation.X, []
    for epoch in choice.epochs:
        lab.say(f"{choice.training.dataset}, {choice.training.model}: validation split, epoch {epoch}")
        machine = choice.machine(run, epoch)
        kept = run.log_z_file(epoch, choice.budget, choice.averaged)
        log_z = lab.log_partition(machine, choice.training, choice.budget, kept)
        found.append({"epoch": epoch, **likelihood(machine, held, log_z)})
    best = max(found, key=lambda c: c["lower"])["epoch"]
    machine, history = choice.machine(run, best), run.history()
    about = {
        "machine": describe(machine),
        "report": asdict(history[best - 1]) if best else _before_training(machine),
        "validation": found,
        "training_seconds": sum(report.seconds for report in history),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(file, machine.tensors(), "chosen", about)


def _before_training(machine: Machine) -> dict[str, Any]:
    """The report of epoch 0, that of units which were not trained after they were chosen greedily."""
    size = int(machine.size)
    return asdict(Report(0, 0, size, 0, float(size), float(size), 0.0, 0.0, 0.0))
