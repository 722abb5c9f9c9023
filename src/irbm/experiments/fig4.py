"""Fig. 4: how infinite RBMs grow when a constant share of their units is regrouped before each step (sec. 4.1)."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from irbm import plots
from irbm.experiments import paper
from irbm.experiments.lab import Lab, Training, settings_table
from irbm.experiments.paper import BOTH, TITLES

TITLE = "Figure 4: growth at constant regrouping rates"
CLAIM = "Regrouping fewer than 0.8 l_t units hardly influences growth."
DATASETS = BOTH
SEEDS = (0, 1, 2, 3, 4)
FRACTIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)  # M_t / l_t; the paper says "from 0 to 0.9 l_t"
QUICK_SEEDS, QUICK_FRACTIONS = (0,), (0.0, 0.5, 0.8, 0.9)
EPOCHS = {paper.MNIST: 10, paper.CALTECH: 60, paper.DIGITS: 15}
TAME = 0.8  # the growth "is not remarkably influenced as long as M_t is smaller than 0.8 l_t"


def run(lab: Lab) -> dict[str, Any]:
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    trainings = [
        Training(dataset=name, settings=paper.density(name, lab.n_iter(EPOCHS[name]), fraction), seed=seed)
        for name in datasets
        for fraction in (QUICK_FRACTIONS if lab.quick else FRACTIONS)
        for seed in seeds
    ]
    runs = []
    for done in lab.train(trainings):
        history = done.history()
        runs.append(
            {
                "dataset": done.training.dataset,
                "fraction": done.training.settings.regroup,
                "seed": done.training.seed,
                "sizes": [row.n_components for row in history],
                "effective_size": history[-1].effective_size,
                "training_seconds": sum(row.seconds for row in history),
            }
        )
    settings = {name: settings_table(paper.density(name, lab.n_iter(EPOCHS[name]))) for name in datasets}
    return {"datasets": list(datasets), "seeds": list(seeds), "settings": settings, "runs": runs}


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels = {
        TITLES[name]: {f"{fraction:g} $l_t$": sizes for fraction, sizes in _sizes(result, name).items()}
        for name in result["datasets"]
    }
    return plots.growth(panels)


def _sizes(result: dict[str, Any], dataset: str) -> dict[float, np.ndarray[Any, Any]]:
    """l after each epoch, (seeds, epochs), by the fraction."""
    own = [r for r in result["runs"] if r["dataset"] == dataset]
    fractions = sorted({r["fraction"] for r in own})
    return {f: np.array([r["sizes"] for r in own if r["fraction"] == f]) for f in fractions}


def section(result: dict[str, Any]) -> str:
    lines = ["| data | M_t / l_t | l at the end, mean ± sd over seeds | against no regrouping |", "|---|---|---|---|"]
    words = []
    for name in result["datasets"]:
        last = {fraction: sizes[:, -1] for fraction, sizes in _sizes(result, name).items()}
        for fraction, l in last.items():
            lines.append(
                f"| {TITLES[name]} | {fraction:g} | {l.mean():.0f} ± {l.std(ddof=min(1, len(l) - 1)):.0f} | "
                f"{l.mean() / last[0.0].mean():.2f} x |"
            )
        words.append(_verdict(TITLES[name], {f: float(l.mean() / last[0.0].mean()) for f, l in last.items()}))
    return "\n".join([*lines, "", " ".join(words)])


def _verdict(title: str, ratio: dict[float, float]) -> str:
    """What the paper says of growth, and what came out."""
    tame = [r for f, r in ratio.items() if 0 < f < TAME]
    wild = {f: r for f, r in ratio.items() if f >= TAME}
    ends = "; ".join(f"at {f:g} l_t it is {r:.2f} times" for f, r in wild.items())
    return (
        f"On {title}, the paper finds growth hardly influenced below {TAME:g} l_t: here the mean size below it lies "
        f"between {min(tame):.2f} and {max(tame):.2f} times that without regrouping; {ends}."
    )
