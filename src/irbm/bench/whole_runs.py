"""How long whole trainings take: 1000 epochs at the paper's settings, of each data set in turn.

``python -m irbm.bench.whole_runs --device cuda`` writes results/whole_runs.json, which docs/performance.md shows.
Nothing else should run meanwhile. Machines are kept as those of table 1 are, which then need no training; writing them
is within the time.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from irbm.experiments import density_models
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH
from irbm.experiments.results import stamp, write_json


def timed(lab: Lab, dataset: str, seed: int) -> dict[str, Any]:
    """One training from its start to its end: growth, every epoch's end and every machine kept within."""
    training = density_models.training(dataset, density_models.RP, seed, lab)
    folder = lab.run_of(training).folder
    if folder.exists():
        raise FileExistsError(f"{folder} has a run already, whole or in part, and no time of it: use another --out")
    load(dataset)
    began = time.perf_counter()
    (run,) = lab.train([training], dataset)
    wall, history = time.perf_counter() - began, run.history()
    return {
        "dataset": dataset,
        "model": density_models.RP,
        "seed": seed,
        "epochs": training.n_iter,
        "steps": history[-1].step,
        "n_components": history[-1].n_components,
        "effective_size": history[-1].effective_size,
        "settings": settings_table(training.settings),
        "training_seconds": sum(report.seconds for report in history),
        "wall_seconds": wall,
        **stamp(lab.device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--datasets", default=",".join(BOTH), help="with commas")
    parser.add_argument("--epochs", type=int, help="fewer, to try things out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results"), help="a folder: whole_runs.json and runs/")
    args = parser.parse_args()
    lab, rows = Lab(out=args.out, name="whole_runs", device=args.device, epochs=args.epochs), []
    for dataset in args.datasets.split(","):
        rows.append(timed(lab, dataset, args.seed))
        print(f"{dataset}: {rows[-1]['wall_seconds']:.1f} s, {rows[-1]['n_components']} units", flush=True)
        notes = {row["dataset"]: load(row["dataset"]).note for row in rows}
        write_json(lab.file, {"notes": notes, "rows": rows})


if __name__ == "__main__":
    main()
