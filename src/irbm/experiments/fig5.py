"""Fig. 5: p(z | v) of every training example, with random permutation and without (sec. 4.1).

The paper does not say how much was regrouped for its figures 5 and 6, which come between constant fractions of l_t
(fig. 4) and the adaptive schedule (eq. 32): here are both.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm import plots
from irbm.experiments import paper
from irbm.experiments.lab import Lab, Run, Training, load, settings_table
from irbm.experiments.paper import BOTH, TITLES
from irbm.experiments.results import packed, shown, table, unpacked
from irbm.models import Machine

TITLE = "Figure 5: p(z | v) of all training examples"
CLAIM = "With RP the likeliest z of all examples lie above M_T, within few units of each other."
DATASETS = BOTH
SEEDS = (0, 1, 2)
QUICK_SEEDS = (0,)
EPOCHS = {paper.MNIST: 50, paper.CALTECH: 300, paper.DIGITS: 20}
FRACTIONS = (0.5, 0.9)
Way = str | float | None
REGROUPED: dict[str, Way] = {"RP": "adaptive", **{f"RP, {share:g} l_t": share for share in FRACTIONS}}
WAYS: dict[str, Way] = {"ordinary": None, **REGROUPED}
RANGE = {paper.MNIST: (500, 520), paper.CALTECH: (700, 750)}  # of the likeliest z with RP, in the paper
SHOWN = 1000  # examples of the picture, evenly from all of them sorted by likeliest z: more are not to be told apart
WORDS = (
    f"The picture has {SHOWN:,} of the examples of one seed, evenly from all by likeliest z; darker is likelier. How "
    "much was regrouped for this figure the paper does not say: it stands between the constant fractions of fig. 4 "
    "and the adaptive schedule of eq. 32. Here are both; of constant fractions 0.75 l_t was tried first, and then "
    f"{' and '.join(f'{share:g} l_t' for share in FRACTIONS)}, which are shown "
    "([more](decisions/010-reproduction.md))."
)
ROWS = 1000


def training(lab: Lab, dataset: str, way: str, seed: int) -> Training:
    settings = paper.density(dataset, lab.n_iter(EPOCHS[dataset]), WAYS[way])
    return Training(dataset=dataset, settings=settings, seed=seed)


def places(lab: Lab, ways: Iterable[str]) -> list[tuple[str, str, int]]:
    """Of the rows: data set, way to regroup, seed."""
    seeds = lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    return [(name, way, seed) for name in lab.chosen_datasets(DATASETS) for way in ways for seed in seeds]


def identity(lab: Lab, dataset: str, way: str, seed: int) -> str:
    wanted = training(lab, dataset, way, seed)
    return f"{lab.run_of(wanted).folder.name} {wanted.n_iter}"


def way_of(regroup: Way) -> str:
    """The name of a way to regroup."""
    return next(name for name, way in WAYS.items() if way == regroup)


def ways_with_rp(result: dict[str, Any], dataset: str) -> list[str]:
    """The ways to regroup that a data set has rows of."""
    return list(dict.fromkeys(way_of(r["regroup"]) for r in result["rows"] if r["dataset"] == dataset and r["regroup"]))


def log_prob_z(machine: Machine, X: torch.Tensor) -> NDArray[np.float32]:
    """ln p(z | v) of many examples: (n, l+1)."""
    parts = (X[at : at + ROWS].to(machine.weights) for at in range(0, len(X), ROWS))
    return np.concatenate([machine.log_prob_z(v_BD).float().cpu().numpy() for v_BD in parts])


def of_training_examples(run: Run) -> NDArray[np.float32]:
    """Of every training example, under the machine as training left it."""
    return log_prob_z(run.machine(), torch.from_numpy(load(run.training.dataset).train.X))


def run(lab: Lab) -> dict[str, Any]:
    wanted = places(lab, WAYS)
    lab.train([training(lab, *place) for place in lab.left(wanted, identity)])
    return lab.rows(wanted, identity, row, result_of)


def result_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return table(rows, lambda r: (r["dataset"], list(WAYS).index(way_of(r["regroup"])), r["seed"]))


def row(lab: Lab, dataset: str, way: str, seed: int) -> dict[str, Any]:
    """Where the likeliest z of the training examples lie; the pooled tail is not one z."""
    (done,) = lab.train([training(lab, dataset, way, seed)])
    last = done.history()[-1]
    log_p = of_training_examples(done)[:, :-1]
    likeliest = log_p.argmax(1) + 1
    lowest, low, high, highest = np.quantile(likeliest, [0, 0.01, 0.99, 1]).tolist()
    return {
        "dataset": dataset,
        "regroup": done.training.settings.regroup,
        "seed": seed,
        "settings": settings_table(done.training.settings),
        "n_components": last.n_components,
        "effective_size": last.effective_size,
        "regrouped": last.regrouped,
        "likeliest_z": {
            "mean": float(likeliest.mean()), "min": lowest, "1 %": low, "99 %": high, "max": highest,
        },
        "share_above_regrouped": float((likeliest > last.regrouped).mean()),
        "p_z": packed(_in_the_picture(log_p)),
        "training_seconds": sum(report.seconds for report in done.history()),
        **done.made(),
    }  # fmt: skip


def _in_the_picture(log_p: NDArray[np.float32]) -> NDArray[np.float32]:
    """p(z | v) of so many examples as the picture has, to three digits."""
    order = log_p.argmax(1).argsort(kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).astype(int)]
    return np.asarray(np.exp(log_p[rows]).round(3), np.float32)


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels: dict[str, dict[str, tuple[NDArray[np.float32], int]]] = {}
    for r in shown(result, "p_z"):
        panels.setdefault(TITLES[r["dataset"]], {})[way_of(r["regroup"])] = (unpacked(r["p_z"]), r["regrouped"])
    return plots.depth_panels(panels)


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | training | seed | l | N_h | M_T | likeliest z: mean | range | above M_T | the paper's range |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        z = r["likeliest_z"]
        above = f"{r['share_above_regrouped']:.2%}" if r["regroup"] else ""
        wanted = "{}-{}".format(*RANGE[r["dataset"]]) if r["regroup"] and r["dataset"] in RANGE else ""
        lines.append(
            f"| {TITLES[r['dataset']]} | {way_of(r['regroup'])} | {r['seed']} | {r['n_components']} | "
            f"{r['effective_size']:.0f} | {r['regrouped'] or ''} | {z['mean']:.0f} | {z['min']:.0f}-{z['max']:.0f} | "
            f"{above} | {wanted} |"
        )
    words = [WORDS, *(_verdict(result, name) for name in result["datasets"])]
    return "\n".join([*lines, "", " ".join(words)])


def _verdict(result: dict[str, Any], dataset: str) -> str:
    ways = [_found(result, dataset, way) for way in ways_with_rp(result, dataset)]
    alone = _spread([r for r in result["rows"] if r["dataset"] == dataset and not r["regroup"]])
    text = (
        f"On {TITLES[dataset]}, of the likeliest z {'; '.join(ways)}. Without RP the 98 % lie within {alone:.0f} units."
    )
    return text + (" The paper has all above M_T, at {} to {}.".format(*RANGE[dataset]) if dataset in RANGE else "")


def _found(result: dict[str, Any], dataset: str, way: str) -> str:
    own = [r for r in result["rows"] if r["dataset"] == dataset and r["regroup"] == REGROUPED[way]]
    above, means = [r["share_above_regrouped"] for r in own], [r["likeliest_z"]["mean"] for r in own]
    return (
        f"{way} puts {_range(above, '.2%')} above M_T, with means of {_range(means, '.0f')}, and 98 % within "
        f"{_spread(own):.0f} units of each other"
    )


def _range(values: list[float], form: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _spread(runs: list[dict[str, Any]]) -> float:
    """Units from the 1st to the 99th percentile of the likeliest z, the mean over seeds."""
    return float(np.mean([r["likeliest_z"]["99 %"] - r["likeliest_z"]["1 %"] for r in runs]))
