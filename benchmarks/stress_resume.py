"""Kill training at random moments, resume it, and compare what comes out with a run that nobody disturbed.

    python benchmarks/stress_resume.py [--runs 100] [--seed 0] [--jobs 2] [--json FILE]

Each run is ``irbm train digits ... --resume``, started again after every kill until it ends. Most kills are SIGKILL;
a few are SIGTERM, which leaves a checkpoint in the middle of an epoch for the next kill to find. The final tensors
must be those of the undisturbed run bit by bit, and every row of metrics.csv too, but for the seconds it took.
Training uses one thread: results are bit-identical only for equal thread counts.
"""

import argparse
import csv
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.numpy import load_file

SOURCE = Path(__file__).resolve().parent.parent / "src"

# Segments of 32 steps and epochs of 49 do not line up, so that sizes are read in the middle of epochs.
COMMON = ["--n-iter", "6", "--batch-size", "25", "--gibbs-steps", "2", "--device", "cpu", "--quiet"]
VARIANTS = {
    "pcd, adagrad": [],
    "cd, decay, momentum": ["--no-persistent", "--optimizer", "decay", "--momentum", "--learning-rate", "0.1"],
    "pcd, constant, sampled z": ["--optimizer", "constant", "--gradient", "sampled", "--regroup", "0.8"],
    "fixed": ["--model", "fixed", "--n-components", "50"],
}

KILLS = {1: 0.5, 2: 0.25, 3: 0.15, 4: 0.1}  # how many, and how often
TERMINATED = 0.2  # of the kills are SIGTERM
# When to kill: while Python starts, at any time of training, or while a file is being written.
MOMENTS = {"start": 0.1, "training": 0.55, "writing": 0.35}
POLL = 0.0005  # seconds
PATIENCE = 300.0  # seconds after which a run is taken to hang
STOPPED = (130, -signal.SIGKILL, -signal.SIGTERM)


@dataclass(frozen=True)
class Timing:
    """Of an undisturbed run, in seconds: until training starts, and from there to the end."""

    start: float
    training: float


@dataclass
class Outcome:
    """One disturbed run."""

    variant: str
    seed: int
    kills: list[str] = field(default_factory=list)  # signal and moment
    resumed: list[str] = field(default_factory=list)  # what the starts said about where they went on
    differences: list[str] = field(default_factory=list)  # empty: bit-identical
    drafts: int = 0  # unfinished files that kills left behind


# -- one process --------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """One thread, and the irbm that this process finds, or the one beside this file."""
    spec = importlib.util.find_spec("irbm")
    source = SOURCE if spec is None or spec.origin is None else Path(spec.origin).parents[1]
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": paths}


class Process:
    """``irbm train`` under way, and what it has left in the run directory so far."""

    def __init__(self, variant: str, seed: int, out: Path) -> None:
        command = [sys.executable, "-m", "irbm.cli", "train", "digits", "--out", str(out), "--resume"]
        self.out = out
        self.popen = subprocess.Popen(
            [*command, "--seed", str(seed), *COMMON, *VARIANTS[variant]],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, event: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Return at the event, after so many seconds, or when the process has ended."""
        until = time.monotonic() + seconds
        while not event() and time.monotonic() < until and self.popen.poll() is None:
            time.sleep(POLL)

    def is_training(self) -> bool:
        """Its TensorBoard file is opened just before the first step."""
        return any(self.out.glob(f"events.out.tfevents.*.{self.popen.pid}.*"))

    def is_writing(self) -> bool:
        return any(self.out.glob(f".*.{self.popen.pid}.part"))

    def end(self) -> tuple[int, str]:
        """Its status and what it said."""
        try:
            said, _ = self.popen.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise RuntimeError(f"irbm train did not end within {PATIENCE:.0f} s") from None
        return self.popen.returncode, said


# -- one run ------------------------------------------------------------------------------------------------


def undisturbed(variant: str, seed: int, out: Path) -> Timing:
    """A run from start to end, and how long it took."""
    began = time.monotonic()
    process = Process(variant, seed, out)
    process.wait_for(process.is_training)
    training = time.monotonic()
    status, said = process.end()
    if status != 0:
        raise RuntimeError(f"the undisturbed run ended with status {status}: {said}")
    return Timing(training - began, time.monotonic() - training)


def disturbed(variant: str, seed: int, out: Path, timing: Timing, rng: random.Random, n_kills: int) -> Outcome:
    """A run that is killed up to so many times, resumed each time, and then left to end."""
    outcome = Outcome(variant, seed)
    for attempt in range(n_kills + 1):
        process = Process(variant, seed, out)
        if attempt < n_kills:
            moment = rng.choices(list(MOMENTS), list(MOMENTS.values()))[0]
            number = signal.SIGTERM if rng.random() < TERMINATED else signal.SIGKILL
            await_moment(moment, process, timing, rng)
            if process.popen.poll() is None:
                process.popen.send_signal(number)
                outcome.kills.append(f"{number.name} {moment}")
        status, said = process.end()
        outcome.resumed += [line for line in said.splitlines() if line.startswith("resumed from")]
        if status == 0:
            break
        if status not in STOPPED:
            outcome.differences.append(f"status {status}: {said.strip()[-300:]}")
            break
    outcome.drafts = len(list(out.glob(".*.part")))
    return outcome


def await_moment(moment: str, process: Process, timing: Timing, rng: random.Random) -> None:
    """Return when it is time to kill, or when the process has ended."""
    if moment == "start":
        process.wait_for(lambda: False, rng.uniform(0, timing.start))
        return
    process.wait_for(process.is_training)
    process.wait_for(lambda: False, rng.uniform(0, timing.training))
    if moment == "writing":
        process.wait_for(process.is_writing)


def differences(expected: Path, found: Path) -> list[str]:
    """Where two finished runs differ: in the tensors of the model, bit by bit, or in a row of the metrics."""
    if not (found / "model.safetensors").is_file():
        return ["no model.safetensors"]
    tensors, others = (load_file(run / "model.safetensors") for run in (expected, found))
    wrong = [name for name in sorted({*tensors, *others}) if not _same_bits(tensors.get(name), others.get(name))]
    if _metrics(expected) != _metrics(found):
        wrong.append("metrics.csv")
    return wrong


def _same_bits(a: Any, b: Any) -> bool:
    return a is not None and b is not None and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def _metrics(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


# -- all of them --------------------------------------------------------------------------------------------


def stress(
    runs: int, seed: int, folder: Path, jobs: int = 2, n_kills: int | None = None, variants: Sequence[str] = ()
) -> Iterator[Outcome]:
    """So many disturbed runs below a folder, each compared with the undisturbed one of its variant, as they end.

    ``n_kills`` is drawn for each run where it is None. A run that ended before it could be killed is run again.
    """
    names = list(variants or VARIANTS)[:runs]
    with ThreadPoolExecutor(jobs) as pool:
        timings = dict(zip(names, pool.map(lambda n: undisturbed(n, seed, folder / n), names), strict=True))

        def one(number: int) -> Outcome:
            rng = random.Random(f"{seed} {number}")
            variant, out = names[number % len(names)], folder / f"run {number}"
            kills = n_kills or rng.choices(list(KILLS), list(KILLS.values()))[0]
            outcome = disturbed(variant, seed, out, timings[variant], rng, kills)
            while not outcome.kills and not outcome.differences:
                shutil.rmtree(out)
                outcome = disturbed(variant, seed, out, timings[variant], rng, kills)
            outcome.differences += differences(folder / variant, out)
            return outcome

        for done in as_completed([pool.submit(one, number) for number in range(runs)]):
            yield done.result()


def show(outcomes: Iterator[Outcome], runs: int, console: Console) -> list[Outcome]:
    """Go through the outcomes behind a progress bar; what differs is printed at once."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    done: list[Outcome] = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("undisturbed runs first", total=runs)
        for outcome in outcomes:
            done.append(outcome)
            if outcome.differences:
                console.print(f"{outcome.variant}: {outcome.differences} after {outcome.kills}")
            kills = sum(len(o.kills) for o in done)
            failed = sum(bool(o.differences) for o in done)
            progress.update(task, advance=1, description=f"{kills} kills, {failed} runs differ")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    if args.runs < 1 or args.jobs < 1 or args.seed < 0:
        parser.error(f"--runs and --jobs must be >= 1, --seed >= 0, got {args.runs}, {args.jobs}, {args.seed}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stress_resume_") as folder:
        outcomes = stress(args.runs, args.seed, Path(folder), args.jobs)
        done = show(outcomes, args.runs, Console(stderr=True))
    identical = sum(not outcome.differences for outcome in done)
    kinds = Counter(kill for outcome in done for kill in outcome.kills)
    print(f"{sum(kinds.values())} kills: {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}")
    print(f"{identical} of {args.runs} bit-identical")
    if args.json:
        figures = {"runs": args.runs, "identical": identical, "kills": dict(sorted(kinds.items())), "seed": args.seed}
        write(args.json, {**figures, "seconds": time.monotonic() - began, "outcomes": [asdict(o) for o in done]})
    sys.exit(0 if identical == args.runs else 1)


def write(path: Path, result: dict[str, Any]) -> None:
    """The figures, with everything needed to find them again."""
    if importlib.util.find_spec("irbm") is None:
        sys.path.insert(0, str(SOURCE))
    from irbm.experiments.results import stamp, write_json

    write_json(path, {**result, **stamp("cpu"), "threads": 1})


if __name__ == "__main__":
    main()
