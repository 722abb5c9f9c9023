"""What every experiment is given: data, trainings that happen once, likelihoods, and a place for results."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from irbm import data
from irbm.evaluation import partition
from irbm.evaluation.estimate import estimate
from irbm.evaluation.likelihood import mean_likelihood
from irbm.evaluation.partition import LogPartition, Trial
from irbm.evaluation.permutations import free_energies
from irbm.experiments import classification, frank_wolfe
from irbm.experiments.paper import DIGITS
from irbm.experiments.results import finite, stamp, write_json
from irbm.files import read_tensors, write_tensors
from irbm.models import Fixed, Infinite, Machine
from irbm.models.build import describe, restore
from irbm.training import Callback, Checkpointer, Report, Settings, Trainer, TrainingState, checkpoint
from irbm.training.initial import initial_machine

KEPT_EARLY, KEPT_EVERY = 10, 50  # epochs whose machines are kept, beside the last one asked for
ANNEALED_AT_ONCE = 3  # rows of estimates on one GPU: the chains of a few fill it, and more only wait for each other

T = TypeVar("T")
Advance = Callable[[int], None]
"""Told how many epochs more are done."""


@cache
def load(dataset: str) -> data.Dataset:
    return classification.load(dataset, progress=False)


# -- one training -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Training:
    """A machine to train. Everything here but the number of epochs decides what comes of it."""

    dataset: str
    settings: Settings
    seed: int
    # "infinite"; "fixed"; "biased": fixed, with visible biases that start at the data's log-odds; or "greedy": fixed,
    # started from the units of Frank and Wolfe's method.
    model: str = "infinite"
    n_components: int = 1  # of a fixed one
    beta: float = 1.01

    @property
    def n_iter(self) -> int:
        return self.settings.n_iter

    def folder(self, runs: Path, device: str) -> Path:
        """Where it is kept, by a hash of all that decides it: random numbers differ between kinds of devices."""
        decides = asdict(self)
        del decides["settings"]["n_iter"]
        if self.settings.averaging is None:  # a later setting: names from before it stay
            del decides["settings"]["averaging"]
        return runs / f"{self.dataset}-{self.model}-{digest(decides, device)}"


def digest(decides: dict[str, Any], device: str) -> str:
    """A name for all that decides something."""
    text = json.dumps(decides | {"device": torch.device(device).type}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Run:
    """A training that has happened."""

    training: Training
    folder: Path
    device: str

    def file(self, epoch: int) -> Path:
        return self.folder / f"epoch_{epoch:05d}.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def done(self) -> bool:
        return self.file(self.training.n_iter).is_file()

    def history(self) -> list[Report]:
        """One row for each epoch asked for."""
        _, about = read_tensors(self.file(self.training.n_iter), "snapshot")
        return [Report.restored(row) for row in about["history"]]

    def machine(self, epoch: int | None = None) -> Machine:
        """The machine after so many epochs, of those kept; by default after the last one asked for."""
        tensors, about = read_tensors(self.file(self.training.n_iter if epoch is None else epoch), "snapshot")
        return restore(tensors, about["machine"], self.device)

    def made(self, epoch: int | None = None) -> dict[str, str | None]:
        """By which build the machine of an epoch was trained, and where; None where the file does not say."""
        _, about = read_tensors(self.file(self.training.n_iter if epoch is None else epoch), "snapshot")
        return {name: about.get(name) for name in ("trained_at", "trained_on")}

    def log_z_file(self, epoch: int, budget: int) -> Path:
        """Where ln Z of that epoch's machine is kept."""
        return self.folder / f"log_z_{epoch:05d}_{budget}.json"

    def keep(self, state: TrainingState) -> None:
        machine = state.kept.with_capacity(int(state.machine.size))
        now = stamp(self.device)
        about = {
            "machine": describe(machine),
            "history": [asdict(report) for report in state.history],
            "trained_at": now["commit"],
            "trained_on": now["device"],
        }
        write_tensors(self.file(state.epoch), machine.tensors(), "snapshot", about)


class _Keeper(Callback):
    """Keeps machines of some epochs, with a checkpoint beside each, and one every minute in between.

    Checkpoints begin ``beyond`` an epoch: that of one which is there already, and must not be lost.
    """

    def __init__(self, run: Run, advance: Advance, beyond: int) -> None:
        self._run, self._advance, self._beyond = run, advance, beyond
        self._checkpointer = Checkpointer(run.checkpoint)

    def after_segment(self, trainer: Trainer) -> None:
        if trainer.state.epoch >= self._beyond:
            self._checkpointer.after_segment(trainer)

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        epoch = report.epoch
        if epoch in (KEPT_EARLY, trainer.n_iter) or epoch % KEPT_EVERY == 0:
            self._run.keep(trainer.state)
            if epoch > self._beyond:
                self._checkpointer.write(trainer)
        self._advance(1)


def train(run: Run, advance: Advance = lambda _: None) -> Run:
    """Train until the last epoch asked for is kept, from where an earlier call was interrupted."""
    if run.done():
        return run
    training = run.training
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.folder / "training.json", {**asdict(training), **stamp(run.device)})
    X = torch.from_numpy(load(training.dataset).train.X)
    saved = checkpoint.load(run.checkpoint, run.device)[0] if run.checkpoint.is_file() else None
    before = saved is not None and saved.epoch < training.n_iter  # else it is past an epoch that was not kept
    state = saved if saved and before else _fresh(run, X)
    advance(state.epoch)
    callbacks = [_Keeper(run, advance, 0 if saved is None else saved.epoch)]
    Trainer(state, X, settings=training.settings, callbacks=callbacks).run()
    return run


def _fresh(run: Run, X: torch.Tensor) -> TrainingState:
    training = run.training
    if training.model == "greedy":
        model = frank_wolfe.greedy(training.dataset, training.n_components, training.seed, device=run.device)
        state = TrainingState.start(model.machine_, training.settings, training.seed)
        run.keep(state)  # of epoch 0: it is a model of its own
        return state
    depth = Infinite(training.beta) if training.model == "infinite" else Fixed()
    machine = initial_machine(
        depth, X.shape[1], n_components=training.n_components, seed=training.seed, device=run.device
    )
    if training.model == "biased":
        p_D = (X.double().sum(0) + 1) / (len(X) + 2)  # finite log-odds for a pixel that is never on
        machine.visible_bias.copy_(torch.logit(p_D))
    return TrainingState.start(machine, training.settings, training.seed)


# -- the lab ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where and how an experiment is done."""

    out: Path
    name: str = ""  # of the experiment
    began: float = field(default_factory=time.perf_counter)
    device: str = "cpu"
    quick: bool = False
    seeds: tuple[int, ...] | None = None  # None: those of the experiment
    datasets: tuple[str, ...] | None = None  # None: those of the experiment
    only: tuple[str, ...] | None = None  # rows of a table; None: all
    epochs: int | None = None  # at most so many; None: as many as the paper
    budget: int | None = None  # points of the longest path of the last estimates; None: those of the experiment
    jobs: int = 1
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def __getstate__(self) -> dict[str, Any]:
        """A console holds locks, and stays where it is."""
        return {name: value for name, value in self.__dict__.items() if name != "console"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process, which says nothing: the one that started it shows how far all are."""
        self.__dict__.update(state, console=Console(quiet=True))

    @property
    def folder(self) -> Path:
        """Of results: quick ones never lie where real ones do."""
        return self.out / "quick" if self.quick else self.out

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.json"

    def earlier(self) -> dict[str, Any]:
        """What an earlier call has written; nothing where there was none."""
        if not self.file.is_file():
            return {}
        try:
            return dict(json.loads(self.file.read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.file} is damaged, remove it to begin anew: {error}") from error

    def write(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write a result, with what is needed to find it again: returned as it was written.

        One that is there already stays, with its date: what was seen of it holds.
        """
        earlier = self.earlier()
        if all(earlier.get(name) == value for name, value in finite(result).items()):
            return earlier
        whole = {
            "name": self.name,
            "quick": self.quick,
            "notes": {name: load(name).note for name in result["datasets"]},
            **result,
            "wall_seconds": time.perf_counter() - self.began,
            "training_seconds": _training_seconds(result),
            **stamp(self.device),
        }
        write_json(self.file, whole)
        return dict(finite(whole))

    def left(self, places: Sequence[tuple[Any, ...]], identity: Callable[..., str]) -> list[tuple[Any, ...]]:
        """The places of a table for which an earlier file has no row of the same identity."""
        known = {tuple(r["place"]): r["identity"] for r in self.earlier().get("rows", [])}
        return [place for place in places if known.get(place) != identity(self, *place)]

    def rows(
        self,
        places: Sequence[tuple[Any, ...]],
        identity: Callable[..., str],
        found: Callable[..., dict[str, Any]],
        result_of: Callable[[list[dict[str, Any]]], dict[str, Any]],
    ) -> dict[str, Any]:
        """A row for each place of a table, but for those that an earlier file has: ``jobs`` at a time, or one by one.

        Everything that decides a row decides its identity. The result is written after each, so that an end before the
        last loses little; rows of other places stay.
        """
        rows = {tuple(r["place"]): r for r in self.earlier().get("rows", [])}
        calls = [{"found": found, "lab": self, "place": place} for place in self.left(places, identity)]
        for row in self.annealing().each(_row, calls, self.name, talks=True):
            place = tuple(row["place"])
            rows[place] = {"identity": identity(self, *place), **row}
            self.write(result_of(list(rows.values())))
        return result_of(list(rows.values()))

    def annealing(self) -> "Lab":
        """The same lab with as many jobs as estimates of ln Z gain by."""
        on_gpu = torch.device(self.device).type == "cuda"
        return replace(self, jobs=min(self.jobs, ANNEALED_AT_ONCE)) if on_gpu else self

    # -- choices --------------------------------------------------------------------------------------------

    def chosen_seeds(self, usual: Sequence[int], quick: Sequence[int] = (0,)) -> tuple[int, ...]:
        return self.seeds or tuple(quick if self.quick else usual)

    def chosen_datasets(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The experiment's data sets, of which the user may want some; quickly, the digits."""
        if self.quick:
            return (DIGITS,)
        return tuple(name for name in wanted if self.datasets is None or name in self.datasets)

    def chosen_rows(self, known: Sequence[str]) -> tuple[str, ...]:
        """The rows of a table that the user wants."""
        unknown = [name for name in self.only or () if name not in known]
        if unknown:
            raise ValueError(f"only must name rows of {self.name}, {', '.join(known)}, got {unknown[0]!r}")
        return tuple(name for name in known if self.only is None or name in self.only)

    def n_iter(self, epochs: int) -> int:
        return min(epochs, self.epochs or epochs)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    # -- trainings ------------------------------------------------------------------------------------------

    def run_of(self, training: Training) -> Run:
        return Run(training, training.folder(self.folder / "runs", self.device), self.device)

    def train(self, trainings: Iterable[Training], what: str = "training") -> list[Run]:
        """All of them, those already done excepted, one after another or ``jobs`` at a time."""
        runs = [self.run_of(training) for training in trainings]
        left = [run for run in runs if not run.done()]
        if self.jobs == 1 and left:
            with self.bar() as bar:
                total = sum(run.training.n_iter for run in left)
                task = bar.add_task(f"{what}: epochs of {len(left)} trainings", total=total)
                for run in left:
                    train(run, lambda n: bar.advance(task, n))
        else:
            list(self.each(train, [{"run": run} for run in left], what))
        return runs

    def each(
        self, function: Callable[..., T], calls: Sequence[dict[str, Any]], what: str, *, talks: bool = False
    ) -> Iterator[T]:
        """What a function returns to each call, in the order in which they end: ``jobs`` at a time, each by itself.

        A function that ``talks`` shows its own progress where it runs in this process.
        """
        if not calls:
            return
        if talks and self.jobs == 1:
            yield from (function(**call) for call in calls)
            return
        found = (function(**call) for call in calls) if self.jobs == 1 else self._side_by_side(function, calls, what)
        with self.bar() as bar:
            task = bar.add_task(f"{what}: {len(calls)} runs", total=len(calls))
            for one in found:
                yield one
                bar.advance(task)

    def _side_by_side(self, function: Callable[..., T], calls: Sequence[dict[str, Any]], what: str) -> Iterator[T]:
        """The same in processes. After a failure, which is said at once, none is handed over any more; those that
        are go on to their end, and are not lost.
        """
        with ProcessPoolExecutor(self.jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            left, failed = {pool.submit(function, **call) for call in calls}, None
            try:
                while left:
                    done, left = wait(left, return_when=FIRST_COMPLETED)
                    for job in done:
                        if (error := job.exception()) is None:
                            yield job.result()
                            continue
                        left = {other for other in left if not other.cancel()}
                        if failed is None:
                            under_way = sum(not other.done() for other in left)
                            self.say(f"{what}: failed, {error}; runs that go on to their end: {under_way}")
                        failed = failed or error
            finally:
                pool.shutdown(cancel_futures=True)
            if failed:
                raise failed

    def classify(
        self,
        wanted: dict[tuple[str, str, int], dict[str, Any]],
        result_of: Callable[[list[dict[str, Any]]], dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Runs of the classification experiment for (data set, setting, seed), with changes to the setting.

        Those that earlier files have are not repeated: the experiment's own, and those of
        ``irbm.experiments.classification``, which has the same code. ``result_of`` all runs is written after each, so
        that an end before the last loses little.
        """
        runs = {(r["dataset"], r["setting"], r["seed"]): r for r in self.earlier().get("runs", [])}
        for place, changes in wanted.items():
            known = [runs.get(place, {}), *self._classifiers(place[0])]
            found = next((r for r in known if self._classified(r, place, changes)), None)
            if found:
                runs[place] = found
        calls = [
            self._classification(place, changes)
            for place, changes in wanted.items()
            if not self._classified(runs.get(place, {}), place, changes)
        ]
        for new in self.each(classify_one, calls, "classifiers"):
            runs[new["dataset"], new["setting"], new["seed"]] = new
            self.write(result_of(list(runs.values())))
        if wanted:
            self.write(result_of(list(runs.values())))
        return [runs[place] for place in wanted]

    def _classifiers(self, dataset: str) -> list[dict[str, Any]]:
        """What the classification experiment has written of a data set."""
        files = sorted(self.folder.glob("classification_*.json"))
        found = [json.loads(file.read_text()) for file in files]
        return [{"dataset": dataset, **run} for part in found if part["dataset"] == dataset for run in part["runs"]]

    def _classification(self, place: tuple[str, str, int], changes: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a run; its checkpoints lie where no run of other settings finds them."""
        dataset, setting, seed = place
        name = digest(classification.settings_of(dataset, setting, **changes), self.device)
        folder = self.folder / "runs" / f"{dataset}-{setting}-{name}"
        about = {"dataset": dataset, "setting": setting, "seed": seed}
        return about | {"device": self.device, "changes": changes, "checkpoints": folder}

    def _classified(self, run: dict[str, Any], place: tuple[str, str, int], changes: dict[str, Any]) -> bool:
        """Whether it is the wanted one, or trained for longer: validation has chosen its epoch all the same."""
        dataset, setting, seed = place
        settings = classification.settings_of(dataset, setting, **changes)
        settings["n_iter"] = max(settings["n_iter"], run.get("settings", settings)["n_iter"])
        return classification.is_done(run, setting, seed, settings, len(load(dataset).train.X))

    def bar(self) -> Progress:
        columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f} %")]
        return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console)

    # -- likelihoods ----------------------------------------------------------------------------------------

    def log_partition(self, machine: Machine, training: Training, budget: int, file: Path) -> LogPartition:
        """ln Z of a machine of that training, found once and kept in the file.

        Exact where the machine is small, else annealed with the data's help.
        """
        if file.is_file():
            return _log_partition_from(json.loads(file.read_text()))
        X = torch.from_numpy(load(training.dataset).train.X)
        if partition.is_small(machine):
            found = partition.exact(machine)
        else:
            found = estimate(machine, means_D=X.double().mean(0), examples=X, seed=training.seed, budget=budget)
        write_json(file, asdict(found))
        return found


def _row(found: Callable[..., dict[str, Any]], lab: Lab, place: tuple[Any, ...]) -> dict[str, Any]:
    """A row of a table with its place and how long it took, perhaps in a process of its own."""
    began = time.perf_counter()
    row = found(replace(lab, jobs=1), *place)
    return {"place": list(place), "wall_seconds": time.perf_counter() - began, **row, **stamp(lab.device)}


def _training_seconds(result: dict[str, Any]) -> float:
    """Of all rows and runs of a result together, those of earlier calls included."""
    return sum(float(part.get("training_seconds", 0.0)) for kind in ("rows", "runs") for part in result.get(kind, []))


def classify_one(dataset: str, **options: Any) -> dict[str, Any]:
    """One run of the classification experiment, with the name of its data."""
    return {"dataset": dataset, **classification.train(dataset, **options, quiet=True)}


def _log_partition_from(table: dict[str, Any]) -> LogPartition:
    """What ``write_json`` wrote; null stands for an infinite effective sample size."""
    trials = tuple(Trial(**trial) for trial in table["trials"])
    return LogPartition(**{**table, "ess": float("inf") if table["ess"] is None else table["ess"], "trials": trials})


def likelihood(machine: Machine, X: Any, log_z: LogPartition) -> dict[str, Any]:
    """The mean log-likelihood of examples, in float64, as it is judged everywhere."""
    return mean_likelihood(-free_energies(machine.to(dtype=torch.float64), torch.from_numpy(X)).numpy(), log_z)


def settings_table(settings: Settings) -> dict[str, Any]:
    """Settings that are not the default, and those every paper names."""
    always = ("learning_rate", "l1", "gibbs_steps", "persistent", "regroup", "batch_size", "n_iter")
    return {
        f.name: getattr(settings, f.name)
        for f in fields(Settings)
        if f.name in always or getattr(settings, f.name) != f.default
    }
