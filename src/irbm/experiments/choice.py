"""The epoch of a density model that validates best, in a file of its own: estimates, samples and depths need no more.

``OUT/chosen/`` is what is worth keeping of ``OUT/runs/``: with it nothing is trained again, and the estimate of ln Z
can be repeated with a larger budget.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from irbm.evaluation.partition import LogPartition
from irbm.experiments.lab import Lab, Training, digest, likelihood, load
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

    def name(self, lab: Lab) -> str:
        """Of its files: everything that decides it."""
        decides = digest({"epochs": self.epochs, "budget": self.budget}, lab.device)
        return f"{lab.run_of(self.training).folder.name}-{decides}"

    def file(self, lab: Lab) -> Path:
        """Where what is chosen is kept."""
        return lab.folder / "chosen" / f"{self.name(lab)}.safetensors"


@dataclass(frozen=True)
class Chosen:
    """The machine of the epoch that validates best."""

    choice: Choice
    file: Path
    machine: Machine
    report: Report  # of that epoch
    validation: list[dict[str, Any]]  # of every epoch looked at
    training_seconds: float
    commit: str | None  # by which it was trained, or, in files of before, chosen; None in a file of an earlier build
    device: str | None  # where it was trained; likewise

    @property
    def epoch(self) -> int:
        return self.report.epoch

    @property
    def lower(self) -> float:
        """The mean log-likelihood of the validation split at least: by it the best of several is chosen."""
        return float(max(looked["lower"] for looked in self.validation))

    def made(self) -> dict[str, str | None]:
        """By which build the machine was trained, and where: what looks at it may be another."""
        return {"trained_at": self.commit, "trained_on": self.device}

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
    return Chosen(
        choice, file, machine, report, about["validation"], about["training_seconds"],
        about.get("commit"), about.get("device"),
    )  # fmt: skip


def choose_all(lab: Lab, choices: Iterable[Choice]) -> None:
    """The same for many at once, ``jobs`` at a time. Those of one training are one job: an end before the last loses
    that of the jobs under way alone, and no training happens twice. On a GPU as many estimates as trainings run at
    once, which takes longer than a few at a time: what is done being kept weighs more.
    """
    jobs: dict[Training, dict[str, Choice]] = {}
    for choice in choices:
        if not choice.file(lab).is_file():
            jobs.setdefault(choice.training, {})[choice.name(lab)] = choice
    calls = [{"lab": replace(lab, jobs=1), "choices": tuple(named.values())} for named in jobs.values()]
    list(lab.each(_keep, calls, f"{lab.name}: trainings and their best epochs", talks=True))


def _keep(lab: Lab, choices: tuple[Choice, ...]) -> None:
    """``choose``, of which another process gets the files alone: a GPU's tensors end with the process they are of."""
    for choice in choices:
        choose(lab, choice)


def _find(lab: Lab, choice: Choice, file: Path) -> None:
    """The choice is by the lower end of the bracket: an estimate that fails flatters, and must not win by it."""
    (run,) = lab.train([choice.training], lab.name)
    held, found = load(choice.training.dataset).validation.X, []
    for epoch in choice.epochs:
        lab.say(f"{choice.training.dataset}, {choice.training.model}: validation split, epoch {epoch}")
        machine = run.machine(epoch)
        log_z = lab.log_partition(machine, choice.training, choice.budget, run.log_z_file(epoch, choice.budget))
        found.append({"epoch": epoch, **likelihood(machine, held, log_z)})
    best = max(found, key=lambda c: c["lower"])["epoch"]
    machine, history, made = run.machine(best), run.history(), run.made(best)
    about = {
        "machine": describe(machine),
        "report": asdict(history[best - 1]) if best else _before_training(machine),
        "validation": found,
        "training_seconds": sum(report.seconds for report in history),
        "commit": made["trained_at"],
        "device": made["trained_on"],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(file, machine.tensors(), "chosen", about)


def _before_training(machine: Machine) -> dict[str, Any]:
    """The report of epoch 0, that of units which were not trained after they were chosen greedily."""
    size = int(machine.size)
    return asdict(Report(0, 0, size, 0, float(size), float(size), 0.0, 0.0, 0.0))
