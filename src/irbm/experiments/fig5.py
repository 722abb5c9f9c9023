"""Fig. 5: p(z | v) of every training example, with random permutation and without (sec. 4.1)."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm import plots
from irbm.experiments import paper
from irbm.experiments.lab import Lab, Run, Training, load, settings_table
from irbm.experiments.paper import BOTH, TITLES
from irbm.models import Machine

TITLE = "Figure 5: p(z | v) of all training examples"
DATASETS = BOTH
SEEDS = (0, 1, 2)
QUICK_SEEDS = (0,)
EPOCHS = {paper.MNIST: 50, paper.CALTECH: 300, paper.DIGITS: 20}
WAYS: dict[str, str | None] = {"without RP": None, "with RP": "adaptive"}
RANGE = {paper.MNIST: (500, 520), paper.CALTECH: (700, 750)}  # of the likeliest z with RP, in the paper
SHOWN = 1000  # examples of the picture, evenly from all of them sorted by likeliest z: more are not to be told apart
ROWS = 1000


def trainings(lab: Lab, seeds: tuple[int, ...], ways: dict[str, str | None] = WAYS) -> list[Training]:
    return [
        Training(dataset=name, settings=paper.density(name, lab.n_iter(EPOCHS[name]), regroup), seed=seed)
        for name in lab.chosen_datasets(DATASETS)
        for regroup in ways.values()
        for seed in seeds
    ]


def log_prob_z(machine: Machine, X: torch.Tensor) -> NDArray[np.float32]:
    """ln p(z | v) of many examples: (n, l+1)."""
    parts = (X[at : at + ROWS].to(machine.weights) for at in range(0, len(X), ROWS))
    return np.concatenate([machine.log_prob_z(v_BD).float().cpu().numpy() for v_BD in parts])


def of_training_examples(run: Run) -> NDArray[np.float32]:
    """Of every training example, under the machine as training left it."""
    return log_prob_z(run.machine(), torch.from_numpy(load(run.training.dataset).train.X))


def run(lab: Lab) -> dict[str, Any]:
    seeds = lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    runs = [figures(done) for done in lab.train(trainings(lab, seeds))]
    datasets = lab.chosen_datasets(DATASETS)
    settings = {name: settings_table(paper.density(name, lab.n_iter(EPOCHS[name]))) for name in datasets}
    return {"datasets": list(datasets), "seeds": list(seeds), "settings": settings, "runs": runs}


def figures(run: Run) -> dict[str, Any]:
    """Where the likeliest z of the training examples lie; the pooled tail is not one z."""
    last = run.history()[-1]
    likeliest = of_training_examples(run)[:, :-1].argmax(1) + 1
    lowest, low, high, highest = np.quantile(likeliest, [0, 0.01, 0.99, 1]).tolist()
    return {
        "dataset": run.training.dataset,
        "regroup": run.training.settings.regroup,
        "seed": run.training.seed,
        "n_components": last.n_components,
        "effective_size": last.effective_size,
        "regrouped": last.regrouped,
        "likeliest_z": {
            "mean": float(likeliest.mean()), "min": lowest, "1 %": low, "99 %": high, "max": highest,
        },
        "share_above_regrouped": float((likeliest > last.regrouped).mean()),
        "training_seconds": sum(row.seconds for row in run.history()),
    }  # fmt: skip


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    """One seed, the first."""
    panels = {}
    for done in lab.train(trainings(lab, tuple(result["seeds"][:1]))):
        way = next(name for name, regroup in WAYS.items() if regroup == done.training.settings.regroup)
        log_p = of_training_examples(done)
        order = log_p[:, :-1].argmax(1).argsort(kind="stable")
        rows = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).astype(int)]
        panels[f"{TITLES[done.training.dataset]}, {way}"] = (log_p[rows, :-1], done.history()[-1].regrouped)
    return plots.depth_panels(panels, columns=len(result["datasets"]))


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | training | seed | l | N_h | M_T | likeliest z: mean | range | above M_T | the paper's range |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in result["runs"]:
        z = r["likeliest_z"]
        above = f"{r['share_above_regrouped']:.2%}" if r["regroup"] else ""
        wanted = "{}-{}".format(*RANGE[r["dataset"]]) if r["regroup"] and r["dataset"] in RANGE else ""
        lines.append(
            f"| {TITLES[r['dataset']]} | {'RP' if r['regroup'] else 'ordinary'} | {r['seed']} | {r['n_components']} | "
            f"{r['effective_size']:.0f} | {r['regrouped'] or ''} | {z['mean']:.0f} | {z['min']:.0f}-{z['max']:.0f} | "
            f"{above} | {wanted} |"
        )
    words = [_verdict(result, name) for name in result["datasets"]]
    return "\n".join([*lines, "", " ".join(words)])


def _verdict(result: dict[str, Any], dataset: str) -> str:
    own = [r for r in result["runs"] if r["dataset"] == dataset]
    width = {
        way: np.mean([r["likeliest_z"]["99 %"] - r["likeliest_z"]["1 %"] for r in own if bool(r["regroup"]) == way])
        for way in (True, False)
    }
    above = [r["share_above_regrouped"] for r in own if r["regroup"]]
    text = (
        f"On {TITLES[dataset]} RP puts at least {min(above):.2%} of the likeliest z above M_T (the paper: all), and "
        f"98 % of the examples within {width[True]:.0f} units of each other, against {width[False]:.0f} without."
    )
    if dataset in RANGE:
        means, (low, high) = [r["likeliest_z"]["mean"] for r in own if r["regroup"]], RANGE[dataset]
        text += f" The mean is {min(means):.0f} to {max(means):.0f} over the seeds; the paper: {low} to {high}."
        if max(means) - min(means) > high - low:
            text += " Seeds alone move the size by more than that range is wide."
    return text
