"""Fig. 10: the likeliest z of every test example, by p(z | v) summed over five orders (sec. 4.2)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from irbm import plots
from irbm.evaluation.permutations import permuted
from irbm.experiments import density_models, fig5
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH, ORDERS, TITLES
from irbm.experiments.results import shown, table
from irbm.ops.noise import uniform_noise

TITLE = "Figure 10: likeliest z of the test examples"
CLAIM = "The likeliest z of all test examples lie above M_T and close together."
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)


def run(lab: Lab) -> dict[str, Any]:
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    return lab.rows([(name, seed) for name in datasets for seed in seeds], _identity, row, table)


def _identity(lab: Lab, dataset: str, seed: int) -> str:
    return " ".join(one.name(lab) for one in density_models.choices(lab, dataset, density_models.RP, seed))


def row(lab: Lab, dataset: str, seed: int) -> dict[str, Any]:
    """Of the machine of table 1 trained with RP, at the epoch that validates best."""
    best = density_models.best(lab, dataset, seed)
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
        **best.made(),
    }


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    rows = shown(result)
    return plots.depth_histograms({TITLES[r["dataset"]]: (np.array(r["counts"]), r["regrouped"]) for r in rows})


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | seed | epoch | l | M_T | likeliest z: mean ± sd | range | above M_T |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        z = r["likeliest_z"]
        lines.append(
            f"| {TITLES[r['dataset']]} | {r['seed']} | {r['epoch']} | {r['n_components']} | {r['regrouped']} | "
            f"{z['mean']:.0f} ± {z['sd']:.0f} | {z['min']}-{z['max']} | {r['share_above_regrouped']:.2%} |"
        )
    return "\n".join([*lines, "", " ".join(_verdict(result, name) for name in result["datasets"])])


def _verdict(result: dict[str, Any], dataset: str) -> str:
    own = [r for r in result["rows"] if r["dataset"] == dataset]
    above = ", ".join(f"{r['share_above_regrouped']:.2%}" for r in own)
    spread = ", ".join(f"{r['likeliest_z']['sd']:.1f}" for r in own)
    return (
        f"On {TITLES[dataset]} {above} of the test examples have their likeliest z above M_T (the paper: all), and "
        f"they differ by {spread} units (standard deviation)."
    )
