"""The remark of sec. 4 that results are robust to the penalty of a hidden unit: three values of beta."""

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from irbm import plots
from irbm.experiments import fig5, paper
from irbm.experiments.lab import Lab, Training, likelihood, load, settings_table
from irbm.experiments.paper import BOTH, TITLES
from irbm.experiments.results import judged, table

TITLE = "Robustness to the penalty beta"
CLAIM = "Results are robust to the penalty beta (cited from others); a small one is preferred."
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
BETAS = (1.01, 1.1, 1.5)  # of beta_i = beta ln 2; the paper's first
EPOCHS = fig5.EPOCHS
BUDGET = 16_000  # points of the longest path of annealing
QUICK_SIZE = 14  # hidden units at most, so that they can be enumerated


def training(lab: Lab, dataset: str, beta: float, seed: int) -> Training:
    settings = paper.density(dataset, lab.n_iter(EPOCHS[dataset]))
    settings = replace(settings, max_components=QUICK_SIZE if lab.quick else None)
    return Training(dataset=dataset, settings=settings, seed=seed, beta=beta)


def identity(lab: Lab, dataset: str, beta: float, seed: int) -> str:
    own = training(lab, dataset, beta, seed)
    return f"{lab.run_of(own).folder.name} {own.n_iter} {BUDGET}"


def row(lab: Lab, dataset: str, beta: float, seed: int) -> dict[str, Any]:
    (done,) = lab.train([training(lab, dataset, beta, seed)], f"{TITLES[dataset]}, beta {beta:g}")
    machine, history = done.machine(), done.history()
    lab.say(f"{TITLES[dataset]}, beta {beta:g}: test log-likelihood")
    log_z = lab.log_partition(machine, done.training, BUDGET, done.log_z_file(done.training.n_iter, BUDGET))
    return {
        "dataset": dataset,
        "beta": beta,
        "seed": seed,
        "settings": settings_table(done.training.settings),
        "n_components": history[-1].n_components,
        "effective_size": history[-1].effective_size,
        "sizes": [report.n_components for report in history],
        "test": likelihood(machine, load(dataset).test.X, log_z),
        "training_seconds": sum(report.seconds for report in history),
    }


def run(lab: Lab) -> dict[str, Any]:
    places = [
        (dataset, beta, seed)
        for dataset in lab.chosen_datasets(DATASETS)
        for beta in BETAS
        for seed in lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    ]
    lab.train([training(lab, *place) for place in lab.left(places, identity)])
    return lab.rows(places, identity, row, result_of)


def result_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return table(rows, lambda r: (r["dataset"], r["beta"], r["seed"]))


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels: dict[str, list[plots.Valued]] = {}
    for r in result["rows"]:
        test = r["test"]
        point = plots.Valued(
            r["beta"], test["value"], test["lower"], test["upper"], test["reliable"], r["effective_size"]
        )
        panels.setdefault(TITLES[r["dataset"]], []).append(point)
    return plots.sensitivity(panels, "β")


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | beta | seed | epochs | l | N_h | test log-likelihood | bracket | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        lines.append(
            f"| {TITLES[r['dataset']]} | {r['beta']:g} | {r['seed']} | {len(r['sizes'])} | {r['n_components']} | "
            f"{r['effective_size']:.0f} | {' | '.join(judged(r['test']))} |"
        )
    words = [_verdict(result, name) for name in result["datasets"]]
    return "\n".join([*lines, "", " ".join(words)])


def _verdict(result: dict[str, Any], dataset: str) -> str:
    own = [r for r in result["rows"] if r["dataset"] == dataset]
    values, sizes = [r["test"]["value"] for r in own], [r["effective_size"] for r in own]
    return (
        f"On {TITLES[dataset]} the log-likelihoods lie within {max(values) - min(values):.2f} nats of each other, and "
        f"the effective sizes between {min(sizes):.0f} and {max(sizes):.0f}."
    )
