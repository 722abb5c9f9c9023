"""Classifiers of table 2: discriminative infinite RBMs with and without random permutation, and ClassRBMs (sec. 4.3).

``python -m irbm.experiments.classification --dataset binarized_mnist --settings discriminative,hybrid --seeds 0,1,2``
writes results/classification_binarized_mnist.json. The validation split chooses the epoch. The test split is looked at
once, by the machine that was chosen, and only when a run has come to its end: one that ``--seconds`` cut off goes on
from its checkpoint at the next call, or ends there with ``--final``. Runs that the file already has are not repeated.
Flags such as ``--n-iter`` or ``--learning-rate`` win over the named settings.
"""

import argparse
import copy
import os
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from irbm import data
from irbm.estimators import InfiniteRBMClassifier, RBMClassifier
from irbm.evaluation.classification import error_rate
from irbm.experiments import intensities
from irbm.experiments.paper import INTENSITIES
from irbm.experiments.results import known_runs, place, processes, stamp, write_json
from irbm.training import Callback, Checkpointer, Report, Trainer

THRESHOLD = 127  # of 255
ORDERS = 5  # of eq. 35, as in the paper

# What the paper says of its best models. It does not say how long they were trained; its authors' published scripts
# train for 200 epochs on MNIST and 300 on CalTech. Intensities have 100, and wide machines 60, for want of time.
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"learning_rate": 0.2, "l1": 1e-3, "alpha": 0.03, "n_iter": 200, "batch_size": 50},
    INTENSITIES: {"learning_rate": 0.1, "l1": 1e-4, "alpha": 0.005, "n_iter": 100},
    "thresholded_mnist": {"learning_rate": 0.1, "l1": 1e-4, "alpha": 0.005, "n_iter": 200},
    "binarized_mnist": {"learning_rate": 0.1, "l1": 1e-4, "alpha": 0.005, "n_iter": 200},
    "caltech101_silhouettes": {"learning_rate": 0.01, "l1": 1e-3, "alpha": 0.01, "n_iter": 300},
}
COMMON: dict[str, Any] = {"batch_size": 100, "gibbs_steps": 3, "persistent": False}
FIVE: dict[str, Any] = {"objective": "discriminative", "n_iter": 5, "learning_rate": 0.1}
RULES: dict[str, dict[str, Any]] = {  # for the rate
    "five": {},
    "five_constant": {"optimizer": "constant"},
    "five_fast": {"optimizer": "constant", "learning_rate": 1.0},
}
# Nearly all units are mixed in every step, so that nearly all take part, and growth ends only where it must.
WIDE: dict[str, Any] = {"regroup": 0.95, "max_components": 1000}
SEARCHED: dict[str, Any] = {"learning_rate": 0.02, "l1": 3e-4}  # what validation chose for CalTech
NAMED: dict[str, dict[str, Any]] = {
    "discriminative": {"objective": "discriminative"},
    "discriminative_ordinary": {"objective": "discriminative", "regroup": None},
    "hybrid": {"objective": "hybrid"},
    "hybrid_ordinary": {"objective": "hybrid", "regroup": None},
    "hybrid_wide": {"objective": "hybrid", **WIDE},
    "hybrid_wide_shifted": {"objective": "hybrid", **WIDE, "shifts": True},
    "classrbm": {"objective": "discriminative", "n_components": 500},
    "classrbm_hybrid": {"objective": "hybrid", "alpha": 0.01, "n_components": 1500},
    **{  # fig. 11: the first five epochs
        f"{name}{suffix}{ending}": FIVE | rule | momentum | order
        for name, rule in RULES.items()
        for suffix, momentum in (("", {}), ("_momentum", {"momentum": True}))
        for ending, order in (("", {}), ("_half", {"regroup": 0.5}), ("_ordinary", {"regroup": None}))
    },
}
# By experiments.search, whose files say what else was tried; but cool passes are taken over from the digits, and for
# intensities nothing was searched. Table 2 has these rows of our own.
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "binarized_mnist": {"hybrid_wide_shifted": {"n_iter": 25, "cool": 8}},
    INTENSITIES: {"hybrid_wide": {"n_iter": 60}},
    "caltech101_silhouettes": {
        "hybrid_wide": {**SEARCHED, "n_iter": 200},
        "hybrid_wide_shifted": {**SEARCHED, "n_iter": 60},
    },
}
CHANGES: dict[str, type] = {  # what flags may change
    "n_iter": int,
    "learning_rate": float,
    "l1": float,
    "alpha": float,
    "batch_size": int,
    "gibbs_steps": int,
}


class Clock(Callback):
    """Ends training once its time is over, after the first epoch at the earliest."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def after_segment(self, trainer: Trainer) -> None:
        if time.monotonic() > self._end and trainer.state.epoch > 0:
            trainer.stop()


class Progress(Callback):
    """A line every few epochs."""

    def __init__(self, name: str, every: int) -> None:
        self._name, self._every, self._began = name, every, time.monotonic()

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        best, score = trainer.state.best, trainer.state.history[-1].validation_score
        if report.epoch % self._every == 0 and score is not None and best is not None:
            print(
                f"{self._name} epoch {report.epoch}: validation error {1 - score:.2%} (best epoch {best.epoch}), "
                f"l {report.n_components}, {time.monotonic() - self._began:.0f} s",
                flush=True,
            )


class Sparing(Checkpointer):
    """Writes by the clock alone: a small epoch on a GPU takes less time than its checkpoint."""

    def after_epoch(self, trainer: Trainer, report: Report) -> None:
        self.after_segment(trainer)


def settings_of(dataset: str, setting: str, **changes: Any) -> dict[str, Any]:
    """The data set's own settings, then the named ones, what was found for both, then changes that are not None."""
    given = {name: value for name, value in changes.items() if value is not None}
    return COMMON | DATASETS[dataset] | NAMED[setting] | CHOSEN.get(dataset, {}).get(setting, {}) | given


def train(
    dataset: str,
    setting: str,
    seed: int,
    *,
    device: str | None = None,
    changes: dict[str, Any] | None = None,
    rows: int | None = None,
    seconds: float | None = None,
    checkpoints: str | Path | None = None,
    final: bool = True,
    test: bool = True,
    quiet: bool = False,
) -> dict[str, Any]:
    """One run of a named setting, with ``changes`` such as n_iter: what was found, JSON-ready.

    It ends after ``n_iter`` epochs or ``seconds``; where the setting has ``cool``, so many passes at a tenth of the
    rate follow, and the epoch is one of these. The one look at the test split comes in the first case, and in the
    second where it is ``final``; else the run can go on from its checkpoint, a file in the folder ``checkpoints``. With
    the first ``rows`` alone, or without ``test``, there is no look.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    began, settings = time.perf_counter(), settings_of(dataset, setting, **(changes or {}))
    splits = load(dataset)
    X, y, held = splits.train.X[:rows], labels_of(splits.train)[:rows], splits.validation
    n_rows, options = len(X), dict(settings)
    if options.pop("shifts", False):
        X, y = shifted(X, y, splits.image_shape)
    cool, validation = options.pop("cool", 0), (held.X, labels_of(held))
    kind = estimator(dataset, fixed="n_components" in settings)
    model = kind(**options, random_state=seed, device=device)
    callbacks: list[Callback] = []
    if not quiet:
        callbacks.append(Progress(f"{setting} seed {seed}", max(1, settings["n_iter"] // 20)))
    resume_from = None
    if checkpoints:
        path = Path(checkpoints) / f"{dataset}_{setting}_{seed}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        resume_from = path if path.is_file() else None
        callbacks.append(Sparing(path))
    if seconds:
        callbacks.append(Clock(seconds))
    model.fit(X, y, validation=None if cool else validation, callbacks=callbacks, resume_from=resume_from)
    finished = len(model.history_) == settings["n_iter"]
    found = cooled(model, X, y, validation, cool) if cool else of_history(model)
    return {
        "setting": setting,
        "seed": seed,
        "settings": settings,
        "rows": n_rows,
        "finished": finished,
        **(errors(found.model, splits.test) if test and rows is None and (finished or final) else {}),
        **chosen(found),
        "wall_seconds": time.perf_counter() - began,  # of this call, where a run took several
        **stamp(device or "cpu"),
    }


def load(dataset: str, *, progress: bool = True) -> data.Dataset:
    """A data set; or MNIST without the noise of drawn pixels, cut at half intensity or with intensities as they are."""
    if dataset == INTENSITIES:
        return intensities.load(progress)
    if dataset == "thresholded_mnist":
        return data.load("mnist", binarize=THRESHOLD, progress=progress)
    return data.load(dataset, progress=progress)


def estimator(dataset: str, *, fixed: bool) -> type[InfiniteRBMClassifier | RBMClassifier]:
    """What takes such data, with a fixed number of units or without."""
    if dataset == INTENSITIES:
        return intensities.IntensityRBMClassifier if fixed else intensities.IntensityInfiniteRBMClassifier
    return RBMClassifier if fixed else InfiniteRBMClassifier


def shifted(X: Any, y: Any, shape: tuple[int, int] | None) -> tuple[Any, Any]:
    """All images, and each again moved by one pixel down, up, right and left; what leaves the frame is lost."""
    if shape is None:
        raise ValueError("these examples are no images that could be shifted")
    framed = np.pad(X.reshape(-1, *shape), [(0, 0), (1, 1), (1, 1)])
    height, width = shape
    corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    moved = [framed[:, top : top + height, left : left + width].reshape(X.shape) for top, left in corners]
    return np.concatenate(moved), np.tile(y, len(corners))


def labels_of(split: data.Split) -> Any:
    if split.y is None:
        raise ValueError("these data have no labels")
    return split.y


def errors(model: InfiniteRBMClassifier | RBMClassifier, split: data.Split) -> dict[str, Any]:
    """Error rates on a split: of one order, and of averages over several where the model regroups."""
    y = labels_of(split)
    found = {"test_error": asdict(error_rate(y, model.predict(split.X)))}
    if isinstance(model, InfiniteRBMClassifier):
        averaged = model.set_params(n_permutations=ORDERS).predict(split.X)
        found[f"test_error_{ORDERS}_orders"] = asdict(error_rate(y, averaged))
    return found


class Found(NamedTuple):
    """What validation chose, of which passes."""

    model: InfiniteRBMClassifier | RBMClassifier
    epoch: int
    scores: list[float]  # of the last passes, those that could be chosen
    history: list[dict[str, Any]]


def of_history(model: InfiniteRBMClassifier | RBMClassifier) -> Found:
    rows = model.history_
    return Found(model, model.best_epoch_, [row["validation_score"] for row in rows], rows)


def cool_passes(model: Any, X: Any, y: Any, passes: int) -> Iterator[Any]:
    """The model after each of so many passes at a tenth of its rate: less noise."""
    model.set_params(learning_rate=model.learning_rate / 10)
    for _ in range(passes):
        yield model.partial_fit(X, y)


def cooled(model: Any, X: Any, y: Any, validation: tuple[Any, Any], passes: int) -> Found:
    """The model after the first of the cool passes that validate best."""
    best, scores = model, []
    for _ in cool_passes(model, X, y, passes):
        scores.append(float(model.score(*validation)))
        if scores[-1] > max(scores[:-1], default=-1.0):
            best = copy.deepcopy(model)
    return Found(best, len(best.history_), scores, model.history_)


def chosen(found: Found) -> dict[str, Any]:
    """What the history says of the epoch that validation chose, and of the way there."""
    rows, first = found.history, len(found.history) - len(found.scores)
    best = rows[found.epoch - 1]
    return {
        "validation_error": 1 - found.scores[found.epoch - 1 - first],
        "best_epoch": found.epoch,
        "epochs": len(rows),
        **{name: best[name] for name in ("n_components", "effective_size", "regrouped")},
        "validation_errors": [round(1 - score, 6) for score in found.scores],
        "sizes": [row["n_components"] for row in rows],
        "training_seconds": sum(row["seconds"] for row in rows),
    }


def summary(runs: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each setting: means over the seeds with their standard deviations."""
    for name in dict.fromkeys(r["setting"] for r in runs):
        kept = [r for r in runs if r["setting"] == name and "test_error" in r]
        for r in runs:
            if r["setting"] == name and "test_error" not in r:
                yield f"{name} seed {r['seed']}: unfinished, validation error {r['validation_error']:.2%}"
        if not kept:
            continue
        test = np.array([100 * r["test_error"]["rate"] for r in kept])
        averaged = [100 * r[f"test_error_{ORDERS}_orders"]["rate"] for r in kept if f"test_error_{ORDERS}_orders" in r]
        spread = test.std(ddof=min(1, len(test) - 1))
        yield (
            f"{name}: test error {test.mean():.2f} ± {spread:.2f} % over {len(kept)} seeds "
            + (f"({ORDERS} orders: {np.mean(averaged):.2f} %), " if averaged else "")
            + f"l {np.mean([r['n_components'] for r in kept]):.0f}, "
            + "epochs "
            + ", ".join(f"{r['best_epoch']} of {r['epochs']}" for r in kept)
        )


def merged(old: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs with a new one in the place of the one with the same setting and seed."""
    names = list(NAMED)
    others = [r for r in old if (r["setting"], r["seed"]) != (new["setting"], new["seed"])]
    return sorted([*others, new], key=lambda r: (names.index(r["setting"]), r["seed"]))


def is_done(run: dict[str, Any], setting: str, seed: int, settings: dict[str, Any], rows: int) -> bool:
    """Whether this run is the wanted one, and has had its look at the test split."""
    wanted = {"setting": setting, "seed": seed, "settings": settings, "rows": rows}
    return "test_error" in run and all(run.get(name) == value for name, value in wanted.items())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(DATASETS), required=True)
    parser.add_argument("--settings", default="hybrid", help=f"one or more of {', '.join(NAMED)}, with commas")
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    for name, kind in CHANGES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out: no test")
    parser.add_argument("--seconds", type=float, help="end each run after so long, wherever it is")
    parser.add_argument("--final", action="store_true", help="look at the test split where time ended a run, too")
    parser.add_argument("--checkpoints", help="a folder: runs write checkpoints there, and go on from them")
    parser.add_argument("--out")
    args = parser.parse_args()
    unknown = sorted(set(args.settings.split(",")) - set(NAMED))
    if unknown:
        parser.error(f"settings must be among {', '.join(NAMED)}, got {unknown[0]!r}")
    return args


def main() -> None:
    args = arguments()
    splits = load(args.dataset)
    changes = {name: getattr(args, name) for name in CHANGES}
    options = {name: getattr(args, name) for name in ("device", "rows", "seconds", "checkpoints", "final")}
    out = args.out or place(f"classification_{args.dataset}", tried=args.rows is not None)
    runs, n_rows = known_runs(out), len(splits.train.X[: args.rows])
    wanted = [
        (setting, int(seed))
        for setting in args.settings.split(",")
        for seed in args.seeds.split(",")
        if not any(is_done(r, setting, int(seed), settings_of(args.dataset, setting, **changes), n_rows) for r in runs)
    ]
    with processes(args.jobs) as pool:
        jobs = [pool.submit(train, args.dataset, *pair, changes=changes, **options) for pair in wanted]
        for job in as_completed(jobs):  # written after each, so that an end before the last loses little
            runs = merged(runs, job.result())
            write_json(out, {"dataset": args.dataset, "note": splits.note, "runs": runs})
    print("\n".join(summary(runs)))


if __name__ == "__main__":
    main()
