"""The sizes that infinite RBMs find with the paper's density settings (sec. 4.1 and 4.2).

``python -m irbm.experiments.sizes binarized_mnist --seeds 0 1 2`` writes results/sizes_binarized_mnist.json.
"""

import argparse
import time
from dataclasses import asdict
from typing import Any

import torch

from irbm import data
from irbm.evaluation.diagnostics import order_invariance
from irbm.experiments import paper
from irbm.experiments.results import processes, stamp, write_json
from irbm.models import Infinite
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.initial import initial_machine

PAPER = {name: paper.density(name, epochs) for name, epochs in {paper.MNIST: 50, paper.CALTECH: 300}.items()}


def train(dataset: str, seed: int, n_iter: int, device: str) -> dict[str, Any]:
    """One run: its history, and ln p(z <= M | v) over the training set at its end."""
    settings = Settings(**{**asdict(PAPER[dataset]), "n_iter": n_iter})
    X = torch.from_numpy(data.load(dataset).train.X)
    machine = initial_machine(Infinite(), X.shape[1], device=device)
    began = time.perf_counter()
    state = Trainer(TrainingState.start(machine, settings, seed), X, settings=settings).run()
    seconds = time.perf_counter() - began
    last = state.history[-1]
    return {
        "seed": seed,
        "seconds": seconds,
        "last": asdict(last),
        "mean_log_p_z_up_to_m": order_invariance(state.machine, X, last.regrouped),
        "history": [asdict(report) for report in state.history],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=list(PAPER))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--n-iter", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=1, help="seeds trained at the same time")
    args = parser.parse_args()
    n_iter = args.n_iter or PAPER[args.dataset].n_iter
    with processes(args.jobs) as pool:
        jobs = [pool.submit(train, args.dataset, seed, n_iter, args.device) for seed in args.seeds]
        runs = [job.result() for job in jobs]
    settings = {**asdict(PAPER[args.dataset]), "n_iter": n_iter}
    result = {
        "dataset": args.dataset,
        "note": data.load(args.dataset).note,
        "settings": settings,
        "runs": runs,
        **stamp(args.device),
    }
    write_json(args.out or f"results/sizes_{args.dataset}.json", result)
    for run in runs:
        last = run["last"]
        print(
            f"seed {run['seed']}: l = {last['n_components']}, mean argmax z = {last['mean_z']:.1f}, "
            f"N_h = {last['effective_size']:.1f}, ln p(z <= M | v) = {run['mean_log_p_z_up_to_m']:.2f}, "
            f"{run['seconds']:.0f} s"
        )


if __name__ == "__main__":
    main()
