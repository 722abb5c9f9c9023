"""How far ``log_partition("ais")`` can be trusted: its bracket and verdict on machines whose ln Z is known.

``python -m irbm.experiments.trust small`` writes results/trust_small.json, ``large`` the machines of 784 x 300 units,
``needle`` those of 100 x 801 and ``company`` those of 64 x 264, with narrow modes.
Nothing is told to the estimator but the machine. Beside it stands what is usually done.
"""

import argparse
import json
import math
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path as File
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from irbm.evaluation import ais
from irbm.evaluation.estimate import ERRORS, LEAST_ESS, estimate
from irbm.evaluation.partition import LogPartition
from irbm.evaluation.paths import Base, Path
from irbm.experiments.known import SUITES, Known, machines
from irbm.experiments.results import place, processes, stamp, write_json
from irbm.models import Frozen, Machine
from irbm.ops.noise import uniform_noise

PER_KIND = 3  # machines of each kind and depth; with another number things are only tried out
WRONG = 0.5  # nats by which a value called reliable must not be off
NAIVE_POINTS, NAIVE_CHAINS = 1000, 100
RULES = ("largest", "largest of enough chains", "largest less its errors", "both sides together")


def naive(
    machine: Machine, bias_D: Tensor, n_points: int, n_chains: int, seed: int, pull: float = 0.0
) -> dict[str, float]:
    """What is usually done: z free or pulled, one base, an even schedule, and no look from the other side."""
    machine = machine.selected(machine.order[: int(machine.size)]).to(dtype=torch.float32)
    base = Base.usual(bias_D.to(machine.weights), machine.capacity)
    schedule = torch.linspace(0, 1, n_points, dtype=torch.float64, device=machine.weights.device)
    noise = uniform_noise(seed, 0, device=machine.weights.device)
    found = ais.forward(Path("usual", Frozen.of(machine), base, pull), schedule, n_chains, noise)
    return {"n_points": n_points, "n_chains": n_chains, "value": found.value, "stderr": found.stderr, "ess": found.ess}


def judge(known: Known, seed: int, device: str, budget: int | None) -> dict[str, Any]:
    """The estimate of one machine's ln Z beside the truth."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    machine = known.machine.to(device=device)
    found = estimate(machine, seed=seed, budget=budget)
    seconds = time.perf_counter() - began
    usual = naive(machine, machine.visible_bias, NAIVE_POINTS, NAIVE_CHAINS, seed)
    return {
        "machine": known.name,
        "exact": known.log_z,
        "off": found.value - known.log_z,
        "contained": found.lower <= known.log_z <= found.upper,
        "n_points": found.trials[-1].n_points,
        "n_chains": found.trials[-1].n_chains,
        "seconds": seconds,
        **{name: value for name, value in asdict(found).items() if name != "trials"},
        "off_by_rule": {rule: value - known.log_z for rule, value in by_rule(found).items()},
        "naive": {**usual, "off": usual["value"] - known.log_z},
    }


def by_rule(found: LogPartition) -> dict[str, float]:
    """Which value to believe, by several rules: of the forward ones alone, and the one that is reported."""
    runs = [t for t in found.trials if t.side == "forward"]
    values = (
        max(t.value for t in runs),
        max((t.value for t in runs if t.ess >= LEAST_ESS), default=found.value),
        max(runs, key=lambda t: t.value - ERRORS * t.stderr).value,
        found.value,
    )
    return dict(zip(RULES, values, strict=True))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Both kinds of error, and how often the verdict is a yes."""
    return {
        "machines": len(rows),
        "contained": sum(row["contained"] for row in rows) / len(rows),
        "reliable": sum(row["reliable"] for row in rows) / len(rows),
        "wrongly called reliable": sum(row["reliable"] and abs(row["off"]) > WRONG for row in rows),
        "rightly contained but called unreliable": sum(row["contained"] and not row["reliable"] for row in rows),
        "naive off by more than 0.5 nat": sum(abs(row["naive"]["off"]) > WRONG for row in rows),
        "root mean square off by rule": {
            rule: math.sqrt(sum(row["off_by_rule"][rule] ** 2 for row in rows) / len(rows))
            for rule in rows[0]["off_by_rule"]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="machines at the same time")
    parser.add_argument("--resume", action="store_true", help="go on after the machines that the file has already")
    parser.add_argument("--out")
    args = parser.parse_args()
    console = Console(stderr=True)
    out = File(args.out or place(f"trust_{args.suite}", tried=args.per_kind != PER_KIND))
    settings = {"seed": args.seed, "per_kind": args.per_kind, "budget": args.budget}
    rows = _rows_of(out, settings) if args.resume else []
    with processes(args.jobs) as pool:
        todo = islice(enumerate(machines(list(SUITES[args.suite]), args.seed, args.per_kind)), len(rows), None)
        jobs = [pool.submit(judge, known, n, args.device, args.budget) for n, known in todo]
        for job in track(jobs, "machines", console=console, disable=not console.is_terminal):
            rows.append(job.result())  # written after each, so that an end before the last loses little
            write_json(out, {"settings": settings, **summary(rows), "rows": rows, **stamp(args.device)})
            print(_line(rows[-1]), flush=True)
    print(summary(rows))


def _rows_of(file: File, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """What an earlier run with the same settings has written."""
    if not file.exists():
        return []
    found = json.loads(file.read_text())
    if found["settings"] != settings:
        raise ValueError(f"{file} has other settings, {found['settings']}: run without --resume to begin anew")
    if found["commit"] != stamp("cpu")["commit"]:
        raise ValueError(f"{file} is of commit {found['commit']}: run without --resume to begin anew")
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['machine']:50s} {row['exact']:9.3f}  {row['off']:+7.3f} "
        f"[{row['lower'] - row['exact']:+7.3f}, {row['upper'] - row['exact']:+7.3f}] "
        f"{'reliable' if row['reliable'] else 'not reliable'}{'' if row['contained'] else ', MISSED'} "
        f"{row['n_points']} x {row['n_chains']}, {row['seconds']:.0f} s; naive {row['naive']['off']:+.2f}"
    )


if __name__ == "__main__":
    main()
