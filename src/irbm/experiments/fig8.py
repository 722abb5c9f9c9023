"""Fig. 8: the first filters after ten epochs, with random permutation and without (sec. 4.2).

The paper's ordinary machines of this comparison are trained by CD, in steps that it does not count: here it is one.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from irbm import plots
from irbm.experiments import paper
from irbm.experiments.lab import Lab, Run, Training, load, settings_table
from irbm.experiments.paper import TITLES
from irbm.experiments.regrouping import neighbour_correlation
from irbm.training import Settings

TITLE = "Figure 8: filters after 10 epochs"
CLAIM = "With RP filters differ from each other; without it neighbours are alike."
DATASETS = (paper.MNIST,)
SEEDS = (0, 1, 2)
QUICK_SEEDS = (0,)
EPOCHS = 10
SHOWN = 100  # the left-most filters
WAYS: dict[str, str | None] = {"with RP": "adaptive", "without RP": None}


def settings(lab: Lab, dataset: str, regroup: str | None = "adaptive") -> Settings:
    """The paper's for density models, but for CD with one step."""
    return replace(paper.density(dataset, lab.n_iter(EPOCHS), regroup), persistent=False, gibbs_steps=1)


def trainings(lab: Lab, seeds: tuple[int, ...]) -> list[Training]:
    return [
        Training(dataset=name, settings=settings(lab, name, regroup), seed=seed)
        for name in lab.chosen_datasets(DATASETS)
        for regroup in WAYS.values()
        for seed in seeds
    ]


def filters(run: Run) -> np.ndarray[Any, Any]:
    """The weights of the first units, by position."""
    machine = run.machine()
    return machine.weights[machine.order[: min(SHOWN, int(machine.size))]].cpu().numpy()


def run(lab: Lab) -> dict[str, Any]:
    seeds, datasets = lab.chosen_seeds(SEEDS, QUICK_SEEDS), lab.chosen_datasets(DATASETS)
    runs = [
        {
            "dataset": done.training.dataset,
            "regroup": done.training.settings.regroup,
            "seed": done.training.seed,
            "n_components": done.history()[-1].n_components,
            "neighbour_correlation": neighbour_correlation(filters(done)),
            "training_seconds": sum(row.seconds for row in done.history()),
        }
        for done in lab.train(trainings(lab, seeds))
    ]
    used = {name: settings_table(settings(lab, name)) for name in datasets}
    return {"datasets": list(datasets), "seeds": list(seeds), "settings": used, "runs": runs}


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    """One seed, the first."""
    grids = {}
    for done in lab.train(trainings(lab, tuple(result["seeds"][:1]))):
        way = next(name for name, regroup in WAYS.items() if regroup == done.training.settings.regroup)
        shape = load(done.training.dataset).image_shape or (1, -1)
        grids[f"{TITLES[done.training.dataset]}, {way}"] = filters(done).reshape(-1, *shape)
    return plots.image_grids(grids, diverging=True)


def section(result: dict[str, Any]) -> str:
    lines = ["| training | seed | l | mean absolute correlation of neighbouring filters |", "|---|---|---|---|"]
    lines += [
        f"| {'RP' if r['regroup'] else 'ordinary'} | {r['seed']} | {r['n_components']} | "
        f"{r['neighbour_correlation']:.3f} |"
        for r in result["runs"]
    ]
    mean = {
        way: float(np.mean([r["neighbour_correlation"] for r in result["runs"] if bool(r["regroup"]) == way]))
        for way in (True, False)
    }
    agrees = (
        "as in the paper, they differ more from their neighbours" if mean[True] < mean[False] else "unlike the paper"
    )
    words = (
        "All by CD with one step: the paper's ordinary machines of this comparison are trained by CD, with how many "
        "steps it does not say, and table 1 has PCD with ten. Weights above 0 are red, below 0 blue. "
        f"Filters next to each other correlate by {mean[True]:.3f} with RP and by {mean[False]:.3f} without, over the "
        f"first {SHOWN}: {agrees}."
    )
    return "\n".join([*lines, "", words])
