"""A search for the settings of hybrid training, over the paper's ranges (sec. 4.3), by the validation split alone.

``python -m irbm.experiments.search --dataset caltech101_silhouettes`` writes results/search_DATASET.json. Candidates
that the file already has are not tried again. The test split is not looked at: ``irbm.experiments.classification`` does
that for the settings that win here.
"""

import argparse
from concurrent.futures import as_completed
from typing import Any

import torch

from irbm.experiments.classification import SEARCHED, WIDE, load, train
from irbm.experiments.results import known_runs, place, processes, write_json

# Changes to the paper's best settings: along the axes that it searched, and along others. A number of epochs among them
# wins over the flag: with shifted images an epoch has five times as many steps.
SHIFTED = {"shifts": True, "n_iter": 20}
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "binarized_mnist": [
        {},
        {"objective": "discriminative"},
        {"learning_rate": 0.3},
        {"learning_rate": 1.0},
        {"l1": 1e-5},
        {"l1": 1e-5, "learning_rate": 0.3},
        {"l1": 1e-5, "alpha": 0.02},
        {"l1": 1e-5, "alpha": 0.1, "persistent": True, "gibbs_steps": 10},
        {"momentum": True, "batch_size": 200, "l1": 5e-4},
        {"momentum": True, "batch_size": 200, "l1": 5e-5},
        {"n_components": 500, "objective": "discriminative"},
        {"n_components": 1500, "alpha": 0.01},
        {"n_components": 1500, "alpha": 0.01, "l1": 1e-5},
        SHIFTED,
        SHIFTED | {"l1": 1e-5},
        SHIFTED | {"l1": 1e-5, "alpha": 0.02},
        WIDE | SHIFTED,
        WIDE | SHIFTED | {"l1": 1e-5},
        WIDE,
        WIDE | SHIFTED | {"max_components": 600},
        WIDE | {"l1": 1e-5, "alpha": 0.01},
    ],
    "caltech101_silhouettes": [
        {},
        {"learning_rate": 0.02},
        SEARCHED,
        SEARCHED | {"alpha": 0.05},
        {"learning_rate": 0.05, "l1": 3e-4},
        {"learning_rate": 0.05, "l1": 3e-4, "alpha": 0.05},
        {"learning_rate": 0.05, "l1": 1e-4, "alpha": 0.05},
        {"learning_rate": 0.02, "l1": 1e-4, "alpha": 0.1},
        {"l1": 3e-4, "alpha": 0.05},
        SEARCHED | {"n_components": 1000},
        SEARCHED | {"shifts": True, "n_iter": 60},
        SEARCHED | {"shifts": True, "n_iter": 60, "alpha": 0.05},
        {"shifts": True, "n_iter": 60, "learning_rate": 0.05, "l1": 1e-4, "alpha": 0.05},
        WIDE | SEARCHED,
        WIDE | SEARCHED | {"alpha": 0.05},
        WIDE | SEARCHED | {"shifts": True, "n_iter": 60},
        WIDE | SEARCHED | {"shifts": True, "n_iter": 60, "alpha": 0.05},
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(CANDIDATES), required=True)
    parser.add_argument("--n-iter", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="end each run after so long, wherever it is")
    parser.add_argument("--seeds", default="0", help="with commas; candidates are ranked by their means")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out")
    parser.add_argument("--out")
    args = parser.parse_args()
    out = args.out or place(f"search_{args.dataset}", tried=args.rows is not None)
    options = {"device": args.device, "rows": args.rows, "seconds": args.seconds, "test": False}
    runs, length = known_runs(out), {"n_iter": args.n_iter}
    wanted = untried(CANDIDATES[args.dataset], [int(seed) for seed in args.seeds.split(",")], runs)
    with processes(args.jobs) as pool:
        jobs = {
            pool.submit(train, args.dataset, "hybrid", seed, changes=length | change, **options): change
            for change, seed in wanted
        }
        for job in as_completed(jobs):  # written after each, so that an end before the last loses little
            runs.append({"change": jobs[job], **job.result()})
            write_json(out, {"dataset": args.dataset, "note": load(args.dataset).note, "runs": ranked(runs)})
    for run in ranked(runs):
        print(
            f"{run['change'] or 'the paper'}, seed {run['seed']}: validation error {run['validation_error']:.2%} at "
            f"epoch {run['best_epoch']} of {run['epochs']}, l {run['n_components']}"
        )


def untried(
    candidates: list[dict[str, Any]], seeds: list[int], runs: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], int]]:
    """The changes and seeds that no run is of."""
    known = [(run["change"], run["seed"]) for run in runs]
    return [(change, seed) for seed in seeds for change in candidates if (change, seed) not in known]


def ranked(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by the mean validation error of a change over its seeds, its runs together."""

    def key(run: dict[str, Any]) -> tuple[float, str, int]:
        same = [other["validation_error"] for other in runs if other["change"] == run["change"]]
        return sum(same) / len(same), str(run["change"]), run["seed"]

    return sorted(runs, key=key)


if __name__ == "__main__":
    main()
