"""A search for the settings of hybrid training, over the paper's ranges (sec. 4.3), by the validation split alone.

``python -m irbm.experiments.search --dataset caltech101_silhouettes`` writes results/search_DATASET.json.
The test split is not looked at: ``irbm.experiments.classification`` does that for the settings that win here.
"""

import argparse
from concurrent.futures import as_completed
from typing import Any

import torch

from irbm.experiments.classification import load, train
from irbm.experiments.results import processes, write_json

# Changes to the paper's best settings, along each of the three axes that it searched, and a few along two.
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "binarized_mnist": [
        {},
        {"alpha": 0.02},
        {"alpha": 0.1},
        {"alpha": 0.02, "learning_rate": 0.02},
        {"alpha": 0.1, "learning_rate": 0.03},
        {"l1": 1e-3},
        {"l1": 1e-5},
        {"momentum": True, "batch_size": 200, "l1": 5e-4},
        {"momentum": True, "batch_size": 200, "l1": 5e-4, "alpha": 0.02},
    ],
    "caltech101_silhouettes": [
        {},
        {"alpha": 0.03},
        {"alpha": 0.05},
        {"alpha": 0.1},
        {"learning_rate": 0.02},
        {"alpha": 0.05, "learning_rate": 0.02},
        {"l1": 3e-4},
        {"l1": 3e-3},
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(CANDIDATES), required=True)
    parser.add_argument("--n-iter", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="end each run after so long, wherever it is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out")
    parser.add_argument("--out")
    args = parser.parse_args()
    out = args.out or f"results/search_{args.dataset}.json"
    options = {"device": args.device, "rows": args.rows, "seconds": args.seconds, "test": False}
    runs: list[dict[str, Any]] = []
    with processes(args.jobs) as pool:
        jobs = {
            pool.submit(
                train, args.dataset, "hybrid", args.seed, changes=change | {"n_iter": args.n_iter}, **options
            ): change
            for change in CANDIDATES[args.dataset]
        }
        for job in as_completed(jobs):  # written after each, so that an end before the last loses little
            runs.append({"change": jobs[job], **job.result()})
            runs.sort(key=lambda run: run["validation_error"])
            write_json(out, {"dataset": args.dataset, "note": load(args.dataset).note, "runs": runs})
    for run in runs:
        print(
            f"{run['change'] or 'the paper'}: validation error {run['validation_error']:.2%} at epoch "
            f"{run['best_epoch']} of {run['epochs']}, l {run['n_components']}"
        )


if __name__ == "__main__":
    main()
