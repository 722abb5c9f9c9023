"""Fig. 7: L1 against L2, AdaGrad against a decaying rate, random permutation against ordinary training (sec. 4.2)."""

from dataclasses import asdict, replace
from typing import Any

from matplotlib.figure import Figure

from irbm import plots
from irbm.experiments import paper
from irbm.experiments.lab import Lab, Training, likelihood, load, settings_table
from irbm.experiments.paper import DIGITS, MNIST
from irbm.experiments.results import against, how_often, judged, origin, short, table

TITLE = "Figure 7: regularisation, rate and regrouping"
CLAIM = "With RP training converges faster than without; L1 is better than L2, and the models are smaller."
DATASETS = (MNIST,)
SEEDS = QUICK_SEEDS = (0,)
L1, L2 = {"l1": 1e-4, "l2": 0.0}, {"l1": 0.0, "l2": 1e-4}
ADA: dict[str, Any] = {"optimizer": "adagrad"}
DCL: dict[str, Any] = {"optimizer": "decay", "learning_rate": 0.1}
VARIANTS: dict[str, dict[str, Any]] = {
    "RP L1 ADA": {**L1, **ADA},
    "RP L2 ADA": {**L2, **ADA},
    "RP L1 DCL": {**L1, **DCL},
    "RP L2 DCL": {**L2, **DCL},
    "ordinary L1 ADA": {**L1, **ADA, "regroup": None},
    "ordinary L2 ADA": {**L2, **ADA, "regroup": None},
}
PANELS: dict[str, dict[str, str]] = {  # of the picture: ways to train, and their variants
    l: {"RP": f"RP {l} ADA", "ordinary": f"ordinary {l} ADA", "RP, decaying rate": f"RP {l} DCL"} for l in ("L1", "L2")
}
BESIDE = {  # what is said of variants two by two
    "RP beside ordinary, L1": ("RP L1 ADA", "ordinary L1 ADA"),
    "RP beside ordinary, L2": ("RP L2 ADA", "ordinary L2 ADA"),
    "L1 beside L2, RP": ("RP L1 ADA", "RP L2 ADA"),
    "L1 beside L2, ordinary": ("ordinary L1 ADA", "ordinary L2 ADA"),
    "L1 beside L2, RP, decaying rate": ("RP L1 DCL", "RP L2 DCL"),
}
PAPER = {"RP L1 ADA": 501, "RP L2 ADA": 588, "ordinary L1 ADA": 566, "ordinary L2 ADA": 805}  # N_h at the end
POINTS = {MNIST: tuple(range(200, 1001, 200)), DIGITS: (10, 50)}  # epochs; the paper looks at every 50th
BUDGET, LAST_BUDGET = 2_000, 8_000  # points of the longest path of annealing, on the way and at the end
SAME_SIZE = 0.05  # sizes that differ by a smaller share are about the same
QUICK_SIZE = 14  # hidden units at most, so that they can be enumerated


def training(lab: Lab, dataset: str, variant: str, seed: int) -> Training:
    settings = replace(paper.density(dataset, lab.n_iter(POINTS[dataset][-1])), **VARIANTS[variant])
    return Training(
        dataset=dataset, settings=replace(settings, max_components=QUICK_SIZE if lab.quick else None), seed=seed
    )


def epochs(training: Training) -> list[int]:
    return [epoch for epoch in POINTS[training.dataset] if epoch < training.n_iter] + [training.n_iter]


def budgets(lab: Lab, training: Training) -> dict[int, int]:
    """How hard to look for ln Z after which epoch."""
    *before, last = epochs(training)
    return dict.fromkeys(before, BUDGET) | {last: lab.budget or LAST_BUDGET}


def identity(lab: Lab, dataset: str, variant: str, seed: int) -> str:
    own = training(lab, dataset, variant, seed)
    return f"{lab.run_of(own).folder.name} {budgets(lab, own)}"


def row(lab: Lab, dataset: str, variant: str, seed: int) -> dict[str, Any]:
    (done,) = lab.train([training(lab, dataset, variant, seed)], variant)
    X, points = load(dataset).test.X, []
    for epoch, budget in budgets(lab, done.training).items():
        lab.say(f"{variant}: test log-likelihood after {epoch} epochs")
        machine, file = done.machine(epoch), done.log_z_file(epoch, budget)
        log_z = lab.log_partition(machine, done.training, budget, file)
        about = {"epoch": epoch, "n_components": int(machine.size), "budget": budget}
        points.append(about | likelihood(machine, X, log_z) | {"log_partition": asdict(log_z)})
    last = done.history()[-1]
    return {
        "dataset": dataset,
        "variant": variant,
        "seed": seed,
        "settings": settings_table(done.training.settings),
        "n_components": last.n_components,
        "effective_size": last.effective_size,
        "points": points,
        "training_seconds": sum(report.seconds for report in done.history()),
        **done.made(),
    }


def run(lab: Lab) -> dict[str, Any]:
    places = [
        (dataset, variant, seed)
        for dataset in lab.chosen_datasets(DATASETS)
        for seed in lab.chosen_seeds(SEEDS, QUICK_SEEDS)
        for variant in lab.chosen_rows(tuple(VARIANTS))
    ]
    lab.train([training(lab, *place) for place in lab.left(places, identity)])
    return lab.rows(places, identity, row, result_of)


def result_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return table(rows, lambda r: (list(VARIANTS).index(r["variant"]), r["seed"]))


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    found = {
        l: {way: runs for way, variant in ways.items() if (runs := _points(result, variant))}
        for l, ways in PANELS.items()
    }
    return plots.likelihood_curves({l: ways for l, ways in found.items() if ways})


def _points(result: dict[str, Any], variant: str) -> dict[int, list[dict[str, Any]]]:
    """The looks of a variant, by seed."""
    return {r["seed"]: r["points"] for r in result["rows"] if r["variant"] == variant}


def section(result: dict[str, Any]) -> str:
    lines = [
        "| training | seed | epochs | l | N_h | the paper's | test log-likelihood at the end | bracket | verdict | "
        "budget, in the end | trained on, by |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        last, (device, commit) = r["points"][-1], origin(r)
        theirs = PAPER.get(r["variant"], "") if r["dataset"] == MNIST else ""
        asked = dict.fromkeys(f"{point['budget']}" for point in r["points"])
        lines.append(
            f"| {r['variant']} | {r['seed']} | {last['epoch']} | {r['n_components']} | {r['effective_size']:.0f} | "
            f"{theirs} | {' | '.join(judged(last))} | {', '.join(asked)} | {device}, {short(commit)} |"
        )
    return "\n".join([*_beside(result), *lines, "", _verdict(result)])


def _beside(result: dict[str, Any]) -> list[str]:
    """How variants stand beside each other, look by look of the same seed and epoch: a table."""
    lines = []
    for what, (one, other) in BESIDE.items():
        ours, theirs = _points(result, one), _points(result, other)
        seeds = [_together(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
        looks = [pair for pairs in seeds for pair in pairs]
        sure = [pair for pair in looks if all(point["reliable"] for point in pair)]
        kinds = ([pairs[0] for pairs in seeds if pairs], [pairs[-1] for pairs in seeds if pairs], looks, sure)
        if looks:
            lines.append(f"| {what} | {' | '.join(how_often([against(*pair) for pair in kind]) for kind in kinds)} |")
    head = [
        "By brackets of the same seed and epoch; level is where they meet.",
        "",
        "| | first look | last look | all looks | those of which both are reliable |",
        "|---|---|---|---|---|",
    ]
    return [*head, *lines, ""] if lines else []


def _together(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The looks of two runs after the same epochs."""
    others = {point["epoch"]: point for point in theirs}
    return [(point, others[point["epoch"]]) for point in ours if point["epoch"] in others]


def _verdict(result: dict[str, Any]) -> str:
    sizes = [_sizes(result, l) for l in PANELS]
    text = (
        "All with persistent chains, as in table 1; the paper has CD for some of them. The paper looks at every 50th "
        "epoch; here are fewer looks, each with as many points of annealing at most as its budget has. The decaying "
        f"rate starts at {DCL['learning_rate']:g}: the paper does not say where. "
    )
    if any(sizes):
        text += f"N_h of RP's machines, seed by seed: {'; '.join(filter(None, sizes))} (the paper: smaller with both)."
    return text.rstrip()


def _sizes(result: dict[str, Any], l: str) -> str:
    """N_h with RP beside that without, of the seeds that both have, one by one and on average; nothing without any."""
    ours, theirs = (
        {r["seed"]: r["effective_size"] for r in result["rows"] if r["variant"] == f"{way} {l} ADA"}
        for way in ("RP", "ordinary")
    )
    if not (seeds := sorted(ours.keys() & theirs.keys())):
        return ""
    mean, other = (sum(found[seed] for seed in seeds) / len(seeds) for found in (ours, theirs))
    found = how_often([_apart(ours[seed], theirs[seed]) for seed in seeds])
    return f"{found} with {l}, on average {mean:.0f} beside {other:.0f}"


def _apart(ours: float, other: float) -> str:
    if abs(ours - other) < SAME_SIZE * other:
        return "about the same"
    return "smaller" if ours < other else "larger"
