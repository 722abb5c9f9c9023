"""Table 1: test log-likelihoods of density models (sec. 4.2), and of the RBM that the infinite one is turned into."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from irbm import plots
from irbm.experiments import frank_wolfe, paper
from irbm.experiments.lab import Lab, Run, Training, likelihood, load, settings_table
from irbm.experiments.paper import BOTH, CALTECH, DIGITS, MNIST, TITLES
from irbm.experiments.results import judged
from irbm.models import Fixed, Machine
from irbm.training import Settings

TITLE = "Table 1: density models"
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
RP, CONVERTED, CLASSIC, ORDINARY, GREEDY = "iRBM RP", "iRBM RP as RBM", "RBM", "iRBM", "FW-iRBM + CD"
MODELS = (RP, CONVERTED, CLASSIC, ORDINARY, GREEDY)


@dataclass(frozen=True)
class Effort:
    """How long to train on a data set, and how hard to look for ln Z."""

    candidates: tuple[int, ...]  # epochs among which the validation split chooses; the last one ends training
    greedy_candidates: tuple[int, ...]  # of CD from the greedy units, which are a good start; 0: these themselves
    sizes: dict[str, int]  # of the models that do not choose it
    choice_budget: int = 2000  # points of the longest path of annealing
    full_budget: int = 16_000
    max_components: int | None = None


EFFORT = {
    MNIST: Effort((200, 400, 600, 800, 1000), (0, 100, 200), {CLASSIC: 500, GREEDY: 460}),
    CALTECH: Effort((200, 400, 600, 800, 1000), (0, 100, 200, 300), {CLASSIC: 500, GREEDY: 550}),
    # Small enough to enumerate, so that seconds do.
    DIGITS: Effort((10, 50, 100), (0, 10), {CLASSIC: 14, GREEDY: 14}, max_components=14),
}
PAPER: dict[str, dict[str, tuple[int | None, float]]] = {  # size, nats
    MNIST: {CLASSIC: (500, -86.34), ORDINARY: (1208, -85.65), GREEDY: (460, -85), RP: (674, -85.81),
            CONVERTED: (None, -88.13)},
    CALTECH: {CLASSIC: (500, -119.05), ORDINARY: (915, -121.47), GREEDY: (550, -127), RP: (695, -114.09),
              CONVERTED: (None, -115.90)},
}  # fmt: skip
HOW = (
    "The validation split chooses among the epochs {candidates} by the lower end of the bracket of its mean "
    "log-likelihood (annealing of at most {choice_budget} points); the test split is looked at once, with up to "
    "{full_budget} points. Machines of few units are enumerated."
)


def training(dataset: str, model: str, seed: int, lab: Lab) -> Training:
    """What stands behind a row."""
    effort = EFFORT[dataset]
    settings = replace(paper.density(dataset, lab.n_iter(effort.candidates[-1])), max_components=effort.max_components)
    if model in (RP, CONVERTED):
        return Training(dataset=dataset, settings=settings, seed=seed)
    ordinary = replace(settings, regroup=None)
    if model == ORDINARY:
        return Training(dataset=dataset, settings=ordinary, seed=seed)
    size = effort.sizes[model]
    if model == CLASSIC:
        return Training(dataset=dataset, settings=ordinary, seed=seed, model="fixed", n_components=size)
    n_iter = lab.n_iter(effort.greedy_candidates[-1])
    tuning = Settings(**frank_wolfe.TUNING[dataset], n_iter=n_iter, persistent=False, regroup=None, max_norm=None)
    return Training(dataset=dataset, settings=tuning, seed=seed, model="greedy", n_components=size)


def candidates(training: Training) -> list[int]:
    """The epochs to choose from, up to the last one trained."""
    effort = EFFORT[training.dataset]
    listed = effort.greedy_candidates if training.model == "greedy" else effort.candidates
    return [epoch for epoch in listed if epoch < training.n_iter] + [training.n_iter]


def choose(lab: Lab, run: Run) -> tuple[int, list[dict[str, Any]]]:
    """The epoch that validates best, and what was found of each."""
    held, effort = load(run.training.dataset).validation.X, EFFORT[run.training.dataset]
    found = []
    for epoch in candidates(run.training):
        machine = run.machine(epoch)
        log_z = lab.log_partition(run, machine, epoch, effort.choice_budget)
        found.append({"epoch": epoch, **likelihood(machine, held, log_z)})
    return max(found, key=lambda c: c["lower"])["epoch"], found


def effective_size(run: Run, epoch: int, machine: Machine) -> float:
    """N_h in that epoch (eq. 33 of sec. 3.3); a machine whose z is fixed uses all it has."""
    return float(machine.size) if isinstance(machine.depth, Fixed) else run.history()[epoch - 1].effective_size


def as_rbm(machine: Machine, n_units: int) -> Machine:
    """The classic RBM of the first units, z clamped. Sec. 4.2."""
    return machine.selected(machine.order[: max(1, n_units)]).clamped()


def best(lab: Lab, dataset: str, seed: int) -> tuple[Run, int]:
    """The run of the infinite RBM with random permutation, and its epoch that validates best."""
    (run,) = lab.train([training(dataset, RP, seed, lab)], f"{TITLES[dataset]}, {RP}")
    return run, choose(lab, run)[0]


def row(lab: Lab, dataset: str, model: str, seed: int) -> dict[str, Any]:
    """Train, choose the epoch, look at the test split."""
    (run,) = lab.train([training(dataset, model, seed, lab)], f"{TITLES[dataset]}, {model}")
    lab.say(f"{TITLES[dataset]}, {model}: choosing the epoch")
    epoch, found = choose(lab, run)
    machine = run.machine(epoch)
    size = effective_size(run, epoch, machine)
    if model == CONVERTED:
        machine = as_rbm(machine, round(size))
    lab.say(f"{TITLES[dataset]}, {model}: test split, epoch {epoch}")
    kind = "converted" if model == CONVERTED else "own"
    log_z = lab.log_partition(run, machine, epoch, EFFORT[dataset].full_budget, kind)
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "epoch": epoch,
        "epochs": run.training.n_iter,
        "n_components": int(machine.size),
        "effective_size": size,
        "test": likelihood(machine, load(dataset).test.X, log_z),
        "validation": found,
        "log_partition": asdict(log_z),
        "settings": settings_table(run.training.settings),
        "training_seconds": sum(report.seconds for report in run.history()),
    }


def _identity(lab: Lab, dataset: str, model: str, seed: int) -> str:
    run, effort = lab.run_of(training(dataset, model, seed, lab)), EFFORT[dataset]
    return f"{run.folder.name} {candidates(run.training)} {effort.choice_budget} {effort.full_budget}"


def run(lab: Lab) -> dict[str, Any]:
    models = lab.chosen_rows(MODELS)
    wanted = [
        (dataset, model, seed)
        for dataset in lab.chosen_datasets(DATASETS)
        for seed in lab.chosen_seeds(SEEDS, QUICK_SEEDS)
        for model in models
    ]
    return lab.rows(wanted, _identity, row, _result)


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    order = sorted(rows, key=lambda r: (r["dataset"], MODELS.index(r["model"]), r["seed"]))
    datasets = list(dict.fromkeys(r["dataset"] for r in order))
    effort = {name: asdict(EFFORT[name]) for name in datasets}
    return {"datasets": datasets, "seeds": sorted({r["seed"] for r in order}), "effort": effort, "rows": order}


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels = {
        TITLES[name]: [_compared(r) for r in result["rows"] if r["dataset"] == name] for name in result["datasets"]
    }
    return plots.comparison(panels, "mean test log-likelihood, nats")


def _compared(r: dict[str, Any]) -> plots.Compared:
    test, (_, nats) = r["test"], PAPER.get(r["dataset"], {}).get(r["model"], (None, None))
    return plots.Compared(r["model"], test["value"], test["lower"], test["upper"], test["reliable"], nats)


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | model | seed | l | N_h | epoch | test log-likelihood | bracket | verdict | the paper | difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(r) for r in result["rows"]),
        "",
    ]
    for name in result["datasets"]:
        effort = result["effort"][name]
        lines += [f"{TITLES[name]}: {HOW.format(**effort)} {_verdict(result, name)}", ""]
    return "\n".join(lines).rstrip()


def highlights(result: dict[str, Any]) -> list[str]:
    """Rows for the README: | what | the paper | here | verdict |."""
    lines = []
    for r in result["rows"]:
        if r["dataset"] in PAPER and r["seed"] == result["seeds"][0]:
            _, _, _, _, size, _, value, bracket, verdict, theirs, _ = _cells(r)
            what = f"{TITLES[r['dataset']]}, {r['model']}: test log-likelihood (N_h)"
            lines.append(f"| {what} | {theirs} | {value} {bracket} ({size}) | {verdict} |")
    return lines


def _line(r: dict[str, Any]) -> str:
    return "| " + " | ".join(_cells(r)) + " |"


def _cells(r: dict[str, Any]) -> list[str]:
    test, (size, nats) = r["test"], PAPER.get(r["dataset"], {}).get(r["model"], (None, None))
    return [
        TITLES[r["dataset"]],
        r["model"],
        f"{r['seed']}",
        f"{r['n_components']}",
        f"{r['effective_size']:.0f}",
        f"{r['epoch']} of {r['epochs']}",
        *judged(test),
        "" if nats is None else f"{nats:g}" + (f" ({size})" if size else ""),
        "" if nats is None else f"{test['value'] - nats:+.2f}",
    ]


def _verdict(result: dict[str, Any], dataset: str) -> str:
    """How RP stands beside the others, by brackets and not by values."""
    own = [r for r in result["rows"] if r["dataset"] == dataset]
    ours = next((r for r in own if r["model"] == RP), None)
    if ours is None:
        return ""
    words = []
    for other in own:
        if other["model"] in (CLASSIC, ORDINARY, GREEDY) and other["seed"] == ours["seed"]:
            words.append(f"{_against(ours['test'], other['test'])} {other['model']}")
    unsure = [r["model"] for r in own if not r["test"]["reliable"]]
    text = f"By their brackets, iRBM RP is {', '.join(words)}." if words else ""
    if unsure:
        text += f" Not reliable, and in parentheses: {', '.join(dict.fromkeys(unsure))}."
    return text


def _against(ours: dict[str, Any], other: dict[str, Any]) -> str:
    if ours["lower"] > other["upper"]:
        return "above"
    return "below" if ours["upper"] < other["lower"] else "not to be told apart from"
