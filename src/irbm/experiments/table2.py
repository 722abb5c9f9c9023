"""Table 2: test errors of classifiers (sec. 4.3), means over seeds with 95 % intervals."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from irbm import plots
from irbm.experiments import classification, frank_wolfe
from irbm.experiments.lab import Lab
from irbm.experiments.paper import CALTECH, DIGITS, INTENSITIES, MNIST, TITLES

TITLE = "Table 2: classifiers"
CLAIM = "With RP classifiers err less than with ordinary training, discriminative or hybrid."
DATASETS = (MNIST, INTENSITIES, CALTECH)
SEEDS = (0, 1, 2)
QUICK_SEEDS = (0, 1)
GREEDY = "FW-iRBM + softmax"
MODELS = {  # setting of the classification experiment
    "Dis-iRBM RP hybrid": "hybrid",
    "Dis-iRBM RP wide": "hybrid_wide",
    "Dis-iRBM RP wide shifted": "hybrid_wide_shifted",
    "Dis-iRBM RP dis.": "discriminative",
    "Dis-iRBM hybrid": "hybrid_ordinary",
    "Dis-iRBM dis.": "discriminative_ordinary",
    "ClassRBM hybrid": "classrbm_hybrid",
    "ClassRBM dis.": "classrbm",
    GREEDY: "frank_wolfe_softmax",
}
OWN = tuple(f"Dis-iRBM RP {kind}" for kind in ("wide", "wide shifted"))
WORDS = (
    '"Wide" is hybrid training that mixes 0.95 of the units in every step and may grow to a bound, on CalTech with the '
    'rate and the L1 weight that the validation split chose, too; "shifted" learns from images moved by one pixel as '
    "well, and on MNIST ends with eight passes at a tenth of the rate: neither is a row of the paper."
)
PAIRS = {"hybrid": "hybrid_ordinary", "discriminative": "discriminative_ordinary"}
UNITS = {MNIST: 600, CALTECH: 600, DIGITS: 20}  # of the greedy machine
QUICK: dict[str, dict[str, Any]] = {"classrbm": {"n_components": 20}, "classrbm_hybrid": {"n_components": 30}}
QUICK_EPOCHS = 10
PAPER: dict[str, dict[str, tuple[int, float]]] = {  # size, error in %
    MNIST: {"ClassRBM dis.": (500, 1.81), "ClassRBM hybrid": (1500, 1.28), "Dis-iRBM dis.": (382, 2.20),
            "Dis-iRBM hybrid": (416, 1.71), GREEDY: (600, 2.2), "Dis-iRBM RP dis.": (489, 1.92),
            "Dis-iRBM RP hybrid": (621, 1.41)},
    CALTECH: {"Dis-iRBM dis.": (235, 37.10), "Dis-iRBM hybrid": (373, 34.59), GREEDY: (600, 34.5),
              "Dis-iRBM RP dis.": (165, 34.55), "Dis-iRBM RP hybrid": (742, 30.95)},
}  # fmt: skip
PAPER[INTENSITIES] = PAPER[MNIST]
BESIDE_INTENSITIES = (
    "The paper's pixels are drawn, it says: its figures stand beside those of intensities to tell what drawing costs."
)


def run(lab: Lab) -> dict[str, Any]:
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    models = lab.chosen_rows([model for model in MODELS if any(has(name, model) for name in datasets)])
    wanted = {
        (name, MODELS[model], seed): _changes(lab, name, MODELS[model])
        for name in datasets
        for model in models
        if model != GREEDY and has(name, model)
        for seed in seeds
    }
    lab.classify(wanted, result_of)
    for name in datasets:
        if GREEDY in models and has(name, GREEDY):
            _greedy_rows(lab, name, seeds)
    return result_of(lab.earlier().get("runs", []))


def has(dataset: str, model: str) -> bool:
    """Whether a data set has such a row: greedy units are of binary ones, and rows of our own of some only."""
    if model == GREEDY:
        return dataset in UNITS
    return model not in OWN or MODELS[model] in classification.CHOSEN.get(dataset, {})


def _changes(lab: Lab, dataset: str, setting: str) -> dict[str, Any]:
    """What makes a named setting shorter, or small enough to be quick."""
    full = QUICK_EPOCHS if lab.quick else classification.settings_of(dataset, setting)["n_iter"]
    return {"n_iter": lab.n_iter(full)} | (QUICK.get(setting, {}) if lab.quick else {})


def greedy_row(dataset: str, seed: int, units: int, device: str) -> dict[str, Any]:
    """Softmax regression on the greedy units' activations; validation chooses its strength."""
    found = frank_wolfe.train_classifier(dataset, seed, units=units, device=device)
    return {"dataset": dataset, "effective_size": units, **found}


def _greedy_rows(lab: Lab, dataset: str, seeds: tuple[int, ...]) -> None:
    runs: list[dict[str, Any]] = lab.earlier().get("runs", [])
    own = {r["seed"]: r for r in runs if (r["dataset"], r["setting"]) == (dataset, MODELS[GREEDY])}
    left = [seed for seed in seeds if own.get(seed, {}).get("n_components") != UNITS[dataset]]
    calls = [{"dataset": dataset, "seed": s, "units": UNITS[dataset], "device": lab.device} for s in left]
    others = [r for r in runs if r not in [own.get(seed) for seed in left]]
    for found in lab.each(greedy_row, calls, GREEDY):
        others.append(found)
        lab.write(result_of(others))


def result_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    datasets = [name for name in (*DATASETS, DIGITS) if any(r["dataset"] == name for r in runs)]
    settings = list(MODELS.values())
    order = sorted(runs, key=lambda r: (datasets.index(r["dataset"]), settings.index(r["setting"]), r["seed"]))
    return {"datasets": datasets, "seeds": sorted({r["seed"] for r in runs}), "runs": order}


def interval(values: list[float]) -> tuple[float, float, float]:
    """The mean of errors, and Student's 95 % interval of it; of one value nothing is known."""
    mean, n = float(np.mean(values)), len(values)
    if n == 1:
        return mean, float("nan"), float("nan")
    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, max(0.0, mean - half), mean + half


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each data set and model that has been run: errors in %."""
    found = []
    for name in result["datasets"]:
        for model, setting in MODELS.items():
            own = [r for r in result["runs"] if (r["dataset"], r["setting"]) == (name, setting) and "test_error" in r]
            if not own:
                continue
            errors = [100 * r["test_error"]["rate"] for r in own]
            mean, lower, upper = interval(errors)
            averaged = [100 * r["test_error_5_orders"]["rate"] for r in own if "test_error_5_orders" in r]
            size, theirs = PAPER.get(name, {}).get(model, (None, None))
            found.append(
                {
                    "dataset": name, "model": model, "seeds": len(own), "errors": errors,
                    "mean": mean, "lower": lower, "upper": upper,
                    "averaged": float(np.mean(averaged)) if averaged else None,
                    "size": float(np.mean([r["effective_size"] for r in own])),
                    "l": float(np.mean([r["n_components"] for r in own])),
                    "epochs": ", ".join(f"{r['best_epoch']} of {r['epochs']}" for r in own if "best_epoch" in r),
                    "paper": theirs, "paper_size": size,
                }
            )  # fmt: skip
    return found


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels: dict[str, list[plots.Compared]] = {}
    for r in rows(result):
        compared = plots.Compared(r["model"], r["mean"], r["lower"], r["upper"], True, r["paper"], tuple(r["errors"]))
        title = TITLES[r["dataset"]] + ("\n(the paper's are drawn)" if r["dataset"] == INTENSITIES else "")
        panels.setdefault(title, []).append(compared)
    return plots.comparison(panels, "test error, %", "mean, with 95 % interval")


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | model | seeds | l | N_h | epochs | test error, % | 95 % interval | 5 orders | paper | difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *("| " + " | ".join(_cells(r)) + " |" for r in rows(result)),
    ]
    words = [_verdict(result, name) for name in result["datasets"]]
    words += [BESIDE_INTENSITIES] if INTENSITIES in result["datasets"] else []
    words += [WORDS] if any(r["model"] in OWN for r in rows(result)) else []
    found = {(r["dataset"], r["model"]) for r in rows(result)}
    for name in result["datasets"]:
        missing = [one for one in MODELS if one not in OWN and has(name, one) and (name, one) not in found]
        words += [f"Not run yet on {TITLES[name]}: {', '.join(missing)}."] if missing else []
    return "\n".join([*lines, "", " ".join(word for word in words if word)])


def _cells(r: dict[str, Any]) -> list[str]:
    return [
        TITLES[r["dataset"]],
        r["model"],
        f"{r['seeds']}",
        f"{r['l']:.0f}",
        f"{r['size']:.0f}",
        r["epochs"],
        f"{r['mean']:.2f}",
        f"[{r['lower']:.2f}, {r['upper']:.2f}]" if r["seeds"] > 1 else "one seed",
        "" if r["averaged"] is None else f"{r['averaged']:.2f}",
        "" if r["paper"] is None else f"{r['paper']:.2f} ({r['paper_size']})",
        "" if r["paper"] is None else f"{r['mean'] - r['paper']:+.2f}",
    ]


def _verdict(result: dict[str, Any], dataset: str) -> str:
    """Whether RP beats ordinary training, seed by seed."""
    words = []
    for ours, other in PAIRS.items():
        errors = {
            s: {r["seed"]: r["test_error"]["rate"] for r in result["runs"]
                if (r["dataset"], r["setting"]) == (dataset, s) and "test_error" in r}
            for s in (ours, other)
        }  # fmt: skip
        both = sorted(set(errors[ours]) & set(errors[other]))
        if both:
            wins = sum(errors[ours][seed] < errors[other][seed] for seed in both)
            words.append(f"{ours} training in {wins} of {len(both)} seeds")
    if not words:
        return ""
    theirs = "" if dataset == INTENSITIES else " (the paper: in both)"
    return f"On {TITLES[dataset]} RP errs less than ordinary training: {', '.join(words)}{theirs}."


def highlights(result: dict[str, Any]) -> list[str]:
    """Rows for the README, of models with RP and without: errors need no verdict, and all seeds count alike.

    | what | the paper | mean, of seeds | | |
    """
    lines = []
    for r in rows(result):
        if r["dataset"] in PAPER and r["model"].startswith("Dis-iRBM"):
            what = f"{TITLES[r['dataset']]}, {r['model']}: test error, %"
            between = f" [{r['lower']:.2f}, {r['upper']:.2f}]" if r["seeds"] > 1 else ""
            paper = "" if r["paper"] is None or r["dataset"] == INTENSITIES else f"{r['paper']:.2f}"
            lines.append(f"| {what} | {paper} | {r['mean']:.2f}{between}, {r['seeds']} | | |")
    return lines
