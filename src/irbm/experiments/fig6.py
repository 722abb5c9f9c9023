"""Fig. 6: p(z <= i | v) of every training example of machines trained with random permutation (sec. 4.1)."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm import plots
from irbm.evaluation.diagnostics import order_invariance
from irbm.evaluation.permutations import permuted
from irbm.experiments import fig5, paper
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH, ORDERS, TITLES
from irbm.experiments.results import packed, shown, unpacked
from irbm.ops.noise import uniform_noise

TITLE = "Figure 6: p(z ≤ i | v) of all training examples"
CLAIM = "p(z ≤ M_T given v) is next to nothing: all orders of the regrouped units are about the same model."
DATASETS = BOTH
SEEDS, QUICK_SEEDS = fig5.SEEDS, fig5.QUICK_SEEDS
PAPER = {paper.MNIST: -28.06, paper.CALTECH: -37.46}  # the mean of ln p(z <= M_T | v)
QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)


def run(lab: Lab) -> dict[str, Any]:
    wanted = fig5.places(lab, fig5.REGROUPED)
    lab.train([fig5.training(lab, *place) for place in lab.left(wanted, fig5.identity)])
    return lab.rows(wanted, fig5.identity, row, fig5.result_of)


def row(lab: Lab, dataset: str, way: str, seed: int) -> dict[str, Any]:
    """The condition of Proposition 3.1, in the order that training left and in others: one need not speak for all."""
    (done,) = lab.train([fig5.training(lab, dataset, way, seed)])
    machine, last = done.machine(), done.history()[-1]
    m, X = max(1, last.regrouped), torch.from_numpy(load(dataset).train.X)
    noise = uniform_noise(seed, 0)
    others = [order_invariance(permuted(machine, m, noise), X, m) for _ in range(ORDERS)]
    log_up_to = np.logaddexp.accumulate(fig5.of_training_examples(done)[:, :-1], axis=1)
    return {
        "dataset": dataset,
        "regroup": done.training.settings.regroup,
        "seed": seed,
        "settings": settings_table(done.training.settings),
        "n_components": last.n_components,
        "regrouped": m,
        "mean_log_p_z_up_to_m": order_invariance(machine, X, m),
        "in_other_orders": others,
        "log_p_up_to": packed(np.quantile(log_up_to, QUANTILES, axis=0)),
        "training_seconds": sum(report.seconds for report in done.history()),
        **done.made(),
    }


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels: dict[str, dict[str, tuple[NDArray[np.float32], int]]] = {}
    for r in shown(result, "log_p_up_to"):
        ways = panels.setdefault(TITLES[r["dataset"]], {})
        ways[fig5.way_of(r["regroup"])] = (unpacked(r["log_p_up_to"]), r["regrouped"])
    return plots.cumulative_depth(panels)


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | training | seed | l | M_T | mean ln p(z ≤ M_T given v) | in 5 other orders | the paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        others = r["in_other_orders"]
        lines.append(
            f"| {TITLES[r['dataset']]} | {fig5.way_of(r['regroup'])} | {r['seed']} | {r['n_components']} | "
            f"{r['regrouped']} | {r['mean_log_p_z_up_to_m']:.2f} | {min(others):.2f} to {max(others):.2f} | "
            f"{PAPER.get(r['dataset'], '')} |"
        )
    known = [name for name in result["datasets"] if name in PAPER]
    words = [_verdict(result, name, way) for name in known for way in fig5.ways_with_rp(result, name)]
    return "\n".join([*lines, "", " ".join(words)])


def _verdict(result: dict[str, Any], dataset: str, way: str) -> str:
    own = [r for r in result["rows"] if r["dataset"] == dataset and r["regroup"] == fig5.REGROUPED[way]]
    found = [r["mean_log_p_z_up_to_m"] for r in own]
    mean = float(np.mean(found))
    apart = f"{'further below' if mean < PAPER[dataset] else 'nearer to'} zero than the paper's {PAPER[dataset]}"
    spread = f", between {min(found):.2f} and {max(found):.2f}" if len(found) > 1 else ""
    seeds = "1 seed" if len(found) == 1 else f"{len(found)} seeds"
    return f"On {TITLES[dataset]} with {way} the mean over {seeds} is {mean:.2f}{spread}, {apart}."
