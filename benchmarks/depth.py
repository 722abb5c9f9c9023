"""How often a training loses its depth: l runs ahead of the likeliest z of nearly all examples.

``python -m benchmarks.depth --seeds 0,1,2 --epochs 400 --jobs 2`` trains RP on CalTech as table 1 does, seed by seed,
and writes results/depth.json: l, M_t, N_h and the mean likeliest z of every 50th epoch. A run that is there is not
trained again.
"""

import argparse
from pathlib import Path
from typing import Any

from irbm.experiments import density_models
from irbm.experiments.lab import Lab, Run
from irbm.experiments.paper import CALTECH
from irbm.experiments.results import stamp, write_json

LOST = 0.85  # of l, below which the mean likeliest z says that depth is lost; where it is kept it is 0.9 to 0.95
EVERY = 50


def told(run: Run) -> dict[str, Any]:
    history = run.history()
    last = history[-1]
    return {
        "seed": run.training.seed,
        "lost": last.mean_z < LOST * last.n_components,
        "history": [
            {name: getattr(r, name) for name in ("epoch", "n_components", "regrouped", "mean_z", "effective_size")}
            for r in history
            if r.epoch % EVERY == 0
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"), help="a folder: depth.json and runs/")
    args = parser.parse_args()
    lab = Lab(out=args.out, name="depth", device=args.device, jobs=args.jobs, epochs=args.epochs)
    wanted = [density_models.training(CALTECH, density_models.RP, int(seed), lab) for seed in args.seeds.split(",")]
    runs = [told(run) for run in lab.train(wanted, "depth")]
    for run in runs:
        last = run["history"][-1]
        print(run["seed"], last["n_components"], f"{last['mean_z']:.0f}", "lost" if run["lost"] else "kept")
    what = {"dataset": CALTECH, "model": density_models.RP, "epochs": lab.epochs, "runs": runs}
    write_json(lab.file, what | stamp(args.device))


if __name__ == "__main__":
    main()
