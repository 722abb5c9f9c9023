"""Discriminative infinite RBMs with and without random permutation (sec. 4.3, table 2 and fig. 11).

``python -m irbm.experiments.classification --dataset binarized_mnist --settings discriminative,hybrid --seeds 0,1,2``
writes results/classification_binarized_mnist.json. The validation split chooses the epoch; the test split is looked at
once, by the machine that was chosen. Flags such as ``--n-iter`` or ``--learning-rate`` win over the named settings;
``--objective`` and ``--regroup`` make a setting of their own where none is named.
"""

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from irbm import data
from irbm.estimators import InfiniteRBMClassifier
from irbm.evaluation.classification import error_rate
from irbm.experiments.results import stamp, write_json
from irbm.training import Callback, Checkpointer, Report, Trainer

ORDERS = 5  # of eq. 35, as in the paper

# What the paper says of its best models; it does not say how long they were trained.
DATASETS: dict[str, dict[str, Any]] = {
    "mnist": {"learning_rate": 0.1, "l1": 1e-4, "alpha": 0.005, "n_iter": 100},
    "binarized_mnist": {"learning_rate": 0.1, "l1": 1e-4, "alpha": 0.005, "n_iter": 100},
    "caltech101_silhouettes": {"learning_rate": 0.01, "l1": 1e-3, "alpha": 0.01, "n_iter": 300},
}
COMMON: dict[str, Any] = {"batch_size": 100, "gibbs_steps": 3, "persistent": False}
FIVE: dict[str, Any] = {"objective": "discriminative", "n_iter": 5, "learning_rate": 0.1}
NAMED: dict[str, dict[str, Any]] = {
    "discriminative": {"objective": "discriminative"},
    "discriminative_ordinary": {"objective": "discriminative", "regroup": None},
    "hybrid": {"objective": "hybrid"},
    "hybrid_ordinary": {"objective": "hybrid", "regroup": None},
    # Fig. 11: the first five epochs, by three rules for the rate.
    "five": FIVE,
    "five_ordinary": {**FIVE, "regroup": None},
    "five_constant": {**FIVE, "optimizer": "constant"},
    "five_constant_ordinary": {**FIVE, "optimizer": "constant", "regroup": None},
    "five_fast": {**FIVE, "optimizer": "constant", "learning_rate": 1.0},
    "five_fast_ordinary": {**FIVE, "optimizer": "constant", "learning_rate": 1.0, "regroup": None},
}


class Clock(Callback):
    """Ends training orderly once its time is over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def after_segment(self, trainer: Trainer) -> None:
        if time.monotonic() > self._end:
            trainer.stop()


class Progress(Callback):
    """A line every few epochs."""

    def __init__(self, name: str, every: int) -> None:
        self._name, self._every = name, every

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        score = trainer.state.history[-1].validation_score
        if report.epoch % self._every == 0 and score is not None:
            print(
                f"{self._name} epoch {report.epoch}: validation error {1 - score:.2%}, l {report.n_components}",
                flush=True,
            )


def run(name: str, dataset: str, settings: dict[str, Any], seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """One training, and the one look at the test split. ``options``: device, rows, seconds, checkpoints."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    splits = data.load(dataset)
    X, y, held, test = splits.train.X, splits.train.y, splits.validation, splits.test
    if y is None or held.y is None or test.y is None:
        raise ValueError(f"{dataset} has no labels")
    X, y = X[: options["rows"]], y[: options["rows"]]
    model = InfiniteRBMClassifier(**settings, random_state=seed, device=options["device"])
    callbacks: list[Callback] = [Progress(f"{name} seed {seed}", max(1, settings["n_iter"] // 10))]
    resume_from = None
    if options["checkpoints"]:
        path = Path(options["checkpoints"]) / f"{dataset}_{name}_{seed}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        resume_from = path if path.is_file() else None
        callbacks.append(Checkpointer(path))
    if options["seconds"]:
        callbacks.append(Clock(options["seconds"]))
    began = time.perf_counter()
    model.fit(X, y, validation=(held.X, held.y), callbacks=callbacks, resume_from=resume_from)
    wall = time.perf_counter() - began
    rows = model.history_
    chosen = rows[model.best_epoch_ - 1]
    one_order = error_rate(test.y, model.predict(test.X))
    averaged = error_rate(test.y, model.set_params(n_permutations=ORDERS).predict(test.X))
    return {
        "setting": name,
        "seed": seed,
        "test_error": asdict(one_order),
        f"test_error_{ORDERS}_orders": asdict(averaged),
        "validation_error": 1 - chosen["validation_score"],
        "best_epoch": model.best_epoch_,
        "epochs": len(rows),
        "n_components": chosen["n_components"],
        "effective_size": chosen["effective_size"],
        "regrouped": chosen["regrouped"],
        "validation_errors": [round(1 - row["validation_score"], 6) for row in rows],
        "sizes": [row["n_components"] for row in rows],
        "training_seconds": sum(row["seconds"] for row in rows),
        "wall_seconds": wall,
    }


def summary(runs: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """A line for each setting: means over the seeds with their standard deviations."""
    for name in names:
        kept = [r for r in runs if r["setting"] == name]
        if not kept:
            continue
        test = np.array([100 * r["test_error"]["rate"] for r in kept])
        averaged = np.array([100 * r[f"test_error_{ORDERS}_orders"]["rate"] for r in kept])
        size = np.array([r["n_components"] for r in kept])
        spread = test.std(ddof=min(1, len(test) - 1))
        yield (
            f"{name}: test error {test.mean():.2f} ± {spread:.2f} % over {len(kept)} seeds "
            f"({ORDERS} orders: {averaged.mean():.2f} %), l {size.mean():.0f}, "
            f"epochs {', '.join(str(r['best_epoch']) for r in kept)} of {kept[0]['epochs']}"
        )


def wanted_settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings to try, by name: the data set's own, then the named ones', then what flags say."""
    flags = {n: getattr(args, n) for n in ("n_iter", "learning_rate", "l1", "alpha", "batch_size", "gibbs_steps")}
    given = {n: v for n, v in flags.items() if v is not None}
    base = COMMON | DATASETS[args.dataset]
    if args.settings:
        names = args.settings.split(",")
        unknown = sorted(set(names) - set(NAMED))
        if unknown:
            raise SystemExit(f"settings must be among {', '.join(NAMED)}, got {unknown[0]!r}")
        return {name: base | NAMED[name] | given for name in names}
    regroup = None if args.regroup == "none" else args.regroup
    name = args.objective + ("" if regroup else "_ordinary")
    return {name: base | {"objective": args.objective, "regroup": regroup} | given}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(DATASETS), required=True)
    parser.add_argument("--settings", help=f"one or more of {', '.join(NAMED)}, with commas")
    parser.add_argument("--objective", choices=["discriminative", "hybrid", "generative"], default="hybrid")
    parser.add_argument("--regroup", choices=["adaptive", "none"], default="adaptive")
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    for name, kind in {"n-iter": int, "learning-rate": float, "l1": float, "alpha": float}.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--gibbs-steps", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out")
    parser.add_argument("--seconds", type=float, help="end each run after so long, at the epoch it has reached")
    parser.add_argument("--checkpoints", help="a folder: runs write checkpoints there, and go on from them")
    parser.add_argument("--out")
    args = parser.parse_args()
    tried, seeds = wanted_settings(args), [int(seed) for seed in args.seeds.split(",")]
    options = {n: getattr(args, n) for n in ("device", "rows", "seconds", "checkpoints")}
    result: dict[str, Any] = {"dataset": args.dataset, "note": data.load(args.dataset).note, "rows": args.rows}
    result |= {"settings": tried, "runs": [], **stamp(args.device)}
    out = args.out or f"results/classification_{args.dataset}.json"
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        pending = [
            pool.submit(run, name, args.dataset, settings, seed, options)
            for name, settings in tried.items()
            for seed in seeds
        ]
        for job in as_completed(pending):  # written after each, so that an end before the last loses little
            result["runs"] = sorted(
                [*result["runs"], job.result()], key=lambda r: (list(tried).index(r["setting"]), r["seed"])
            )
            write_json(out, result)
    print("\n".join(summary(result["runs"], list(tried))))


if __name__ == "__main__":
    main()
