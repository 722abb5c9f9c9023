"""Fig. 10: the likeliest z of every test example, by p(z | v) summed over five orders (sec. 4.2)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from irbm import plots
from irbm.evaluation.permutations import permuted
from irbm.experiments import fig5, table1
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH, ORDERS, TITLES
from irbm.ops.noise import uniform_noise

TITLE = "Figure 10: likeliest z of the test examples"
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)


def run(lab: Lab) -> dict[str, Any]:
    """Of the machines of table 1 trained with RP, at the epochs that validate best."""
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    runs = [figures(lab, name, seed) for name in datasets for seed in seeds]
    return {"datasets": list(datasets), "seeds": list(seeds), "settings": {}, "runs": runs}


def figures(lab: Lab, dataset: str, seed: int) -> dict[str, Any]:
    best = table1.best(lab, dataset, seed)
    report, machine = best.report, best.machine
    noise, X = uniform_noise(seed, 0), torch.from_numpy(load(dataset).test.X)
    orders = [permuted(machine, report.regrouped, noise) for _ in range(ORDERS)]
    p_z = sum(np.exp(fig5.log_prob_z(order, X)[:, :-1]) for order in orders)
    z_m = np.asarray(p_z).argmax(1) + 1
    return {
        "dataset": dataset,
        "seed": seed,
        "epoch": best.epoch,
        "settings": settings_table(replace(best.choice.training.settings, n_iter=best.epoch)),
        "n_components": report.n_components,
        "regrouped": report.regrouped,
        "likeliest_z": {
            "mean": float(z_m.mean()),
            "sd": float(z_m.std()),
            "min": int(z_m.min()),
            "max": int(z_m.max()),
        },
        "share_above_regrouped": float((z_m > report.regrouped).mean()),
        "counts": np.bincount(z_m, minlength=report.n_components + 1)[1:].tolist(),  # of z = 1, 2, ..., l
    }


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    shown = [r for r in result["runs"] if r["seed"] == result["seeds"][0]]
    return plots.depth_histograms({TITLES[r["dataset"]]: (np.array(r["counts"]), r["regrouped"]) for r in shown})


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | seed | epoch | l | M_T | likeliest z: mean ± sd | range | above M_T |",
        "|---|---|---|---|---|---|---|---|",
    ]
    words = []
    for r in result["runs"]:
        z = r["likeliest_z"]
        lines.append(
            f"| {TITLES[r['dataset']]} | {r['seed']} | {r['epoch']} | {r['n_components']} | {r['regrouped']} | "
            f"{z['mean']:.0f} ± {z['sd']:.0f} | {z['min']}-{z['max']} | {r['share_above_regrouped']:.2%} |"
        )
        words.append(
            f"On {TITLES[r['dataset']]} {r['share_above_regrouped']:.2%} of the test examples have their likeliest z "
            f"above M_T (the paper: all), and they differ by {z['sd']:.1f} units (standard deviation), "
            f"{z['sd'] / z['mean']:.1%} of the mean."
        )
    return "\n".join([*lines, "", " ".join(words)])
