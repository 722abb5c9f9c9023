"""How far ``log_partition("ais")`` can be trusted: its bracket and verdict on machines whose ln Z is known.

``python -m irbm.experiments.trust small`` writes results/trust_small.json, ``large`` the machines of 784 x 300 units.
Nothing is told to the estimator but the machine.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from irbm.evaluation.estimate import estimate
from irbm.experiments.known import LARGE, SMALL, Known, machines
from irbm.experiments.results import stamp, write_json

WRONG = 0.5  # nats by which a value called reliable must not be off


def judge(known: Known, seed: int, device: str, budget: int | None) -> dict[str, Any]:
    """The estimate of one machine's ln Z beside the truth."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    found = estimate(known.machine.to(device=device), seed=seed, budget=budget)
    return {
        "machine": known.name,
        "exact": known.log_z,
        "off": found.value - known.log_z,
        "contained": found.lower <= known.log_z <= found.upper,
        "n_points": found.trials[-1].n_points,
        "n_chains": found.trials[-1].n_chains,
        "seconds": time.perf_counter() - began,
        **{name: value for name, value in asdict(found).items() if name != "trials"},
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Both kinds of error, and how often the verdict is a yes."""
    return {
        "machines": len(rows),
        "contained": sum(row["contained"] for row in rows) / len(rows),
        "reliable": sum(row["reliable"] for row in rows) / len(rows),
        "wrongly called reliable": sum(row["reliable"] and abs(row["off"]) > WRONG for row in rows),
        "rightly contained but called unreliable": sum(row["contained"] and not row["reliable"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=["small", "large"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-kind", type=int, default=3)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="machines at the same time")
    parser.add_argument("--out")
    args = parser.parse_args()
    console = Console(stderr=True)
    out = args.out or f"results/trust_{args.suite}.json"
    settings = {"seed": args.seed, "per_kind": args.per_kind, "budget": args.budget}
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        all_known = machines(list(SMALL if args.suite == "small" else LARGE), args.seed, args.per_kind)
        jobs = [pool.submit(judge, known, n, args.device, args.budget) for n, known in enumerate(all_known)]
        rows = []
        for job in track(jobs, "machines", console=console, disable=not console.is_terminal):
            rows.append(job.result())  # written after each, so that an end before the last loses little
            write_json(out, {"settings": settings, **summary(rows), "rows": rows, **stamp(args.device)})
    for row in rows:
        said = "reliable" if row["reliable"] else "not reliable"
        print(
            f"{row['machine']:58s} {row['exact']:9.3f}  {row['off']:+8.3f} "
            f"[{row['lower'] - row['exact']:+8.3f}, {row['upper'] - row['exact']:+8.3f}] {said}"
            f"{'' if row['contained'] else ', MISSED'} {row['n_points']} points {row['seconds']:.0f} s"
        )
    print(summary(rows))


if __name__ == "__main__":
    main()
