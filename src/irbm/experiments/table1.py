"""Table 1: test log-likelihoods of density models (sec. 4.2), and of the RBM that the infinite one is turned into."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from irbm import plots
from irbm.evaluation.estimate import KEPT_PATHS
from irbm.experiments.choice import Chosen, choose, choose_all
from irbm.experiments.density_models import (
    CLASSIC,
    CONVERTED,
    EFFORT,
    GREEDY,
    MODELS,
    ORDINARY,
    OWN_MODELS,
    RP,
    WITHOUT,
    as_rbm,
    choices,
    has,
    models_with_rp,
)
from irbm.experiments.lab import Lab, likelihood, load, settings_table
from irbm.experiments.paper import BOTH, CALTECH, MNIST, TITLES
from irbm.experiments.results import against, folded, how_often, judged, origin, rounds, short, table
from irbm.training.growth import prune

TITLE = "Table 1: density models"
CLAIM = "With RP the infinite RBM has higher likelihoods than the RBM and, on CalTech, than ordinary training."
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
PAPER: dict[str, dict[str, tuple[int | None, float]]] = {  # size, nats
    MNIST: {CLASSIC: (500, -86.34), ORDINARY: (1208, -85.65), GREEDY: (460, -85), RP: (674, -85.81),
            CONVERTED: (None, -88.13)},
    CALTECH: {CLASSIC: (500, -119.05), ORDINARY: (915, -121.47), GREEDY: (550, -127), RP: (695, -114.09),
              CONVERTED: (None, -115.90)},
}  # fmt: skip
MISSED = 10.0  # nats more that later rounds of an estimate found: its story is told
HOW = (
    "The validation split chooses among the epochs {epochs} by the lower end of the bracket of its mean "
    "log-likelihood, of a budget of {choice_budget} points; likelihoods of the test split have budgets of {budgets}. A "
    "budget is points of a path with the first number of chains, or as much work with fewer points and more chains."
)
WORDS = (
    'The column "pruned" counts the units left without those whose weights have less than a tenth of the mean norm. '
    "Rows with 1000 chains are not of the paper, which names no number; the others have 100, the minibatch. Nor are "
    "those of 0.9 l, which mix nine tenths of the units in every step; the paper's schedule mixes as many as examples "
    "use on average, less ten, and here never more than 0.9 l, a bound that the paper does not have and that RP has "
    "reached on CalTech. Nor are averaged rows, whose machines have averages of their parameters over the last "
    "1000 updates (MNIST), 500 (CalTech) or 100 (digits): their N_h is of the parameters themselves, and on MNIST they "
    "have 600 epochs. On CalTech the RBM's visible biases start at the data's log-odds. The iRBM that the paper cites "
    "on MNIST was trained for 3000 epochs; here all models had 1000 at most."
)

BEST = (
    "The seed of every model that validates best, as it is for epochs and settings. This rule was added when the test "
    "likelihoods were known; models have one to six seeds; and it favours the model whose seeds differ most, which is "
    "RP."
)
BESIDE = (
    "Means over seeds, in parentheses unless all are reliable. Above and below are by the brackets of the same seed, "
    "and level is where they meet, with how many of the seeds that both have. Where a bracket is not reliable, neither "
    "is what is said by it."
)
ALL = "Every seed"


def row(lab: Lab, dataset: str, model: str, seed: int) -> dict[str, Any]:
    """Train, choose settings and epoch, look at the test split."""
    tried = [choose(lab, one) for one in choices(lab, dataset, model, seed)]
    found = max(tried, key=lambda chosen: chosen.lower)
    machine, size = found.machine, found.report.effective_size
    if model == CONVERTED:
        machine = as_rbm(machine, round(size))
    lab.say(f"{TITLES[dataset]}, {model}: test split, epoch {found.epoch}")
    kind = "converted" if model == CONVERTED else "own"
    log_z = found.log_partition(lab, machine, _full_budget(lab, dataset), kind)
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "epoch": found.epoch,
        "epochs": found.choice.training.n_iter,
        "n_components": int(machine.size),
        "effective_size": size,
        "after_pruning": int(prune(machine).size),
        "budget": _full_budget(lab, dataset),
        "test": likelihood(machine, load(dataset).test.X, log_z),
        "validation": [_looked(chosen, one) for chosen in tried for one in chosen.validation],
        "log_partition": asdict(log_z),
        "settings": settings_table(found.choice.training.settings),
        "training_seconds": 0.0 if model == CONVERTED else sum(chosen.training_seconds for chosen in tried),
        **found.made(),
    }


def _looked(chosen: Chosen, validation: dict[str, Any]) -> dict[str, Any]:
    """What the validation split said of an epoch, with the settings it was trained with."""
    settings = chosen.choice.training.settings
    return {"learning_rate": settings.learning_rate, "l1": settings.l1, **validation}


def _full_budget(lab: Lab, dataset: str) -> int:
    return lab.budget or EFFORT[dataset].full_budget


def _identity(lab: Lab, dataset: str, model: str, seed: int) -> str:
    names = [one.name(lab) for one in choices(lab, dataset, model, seed)]
    return f"{' '.join(names)} {_full_budget(lab, dataset)}"


def run(lab: Lab) -> dict[str, Any]:
    datasets = lab.chosen_datasets(DATASETS)
    models = lab.chosen_rows([model for model in MODELS if any(has(dataset, model) for dataset in datasets)])
    wanted = [
        (dataset, model, seed)
        for dataset in datasets
        for seed in lab.chosen_seeds(SEEDS, QUICK_SEEDS)
        for model in models
        if has(dataset, model)
    ]
    for r in lab.earlier().get("rows", []):
        if not has(r["dataset"], r["model"]):
            lab.say(f"{TITLES[r['dataset']]}, {r['model']}: no row of the table any more, left out")
    choose_all(lab, [one for place in lab.left(wanted, _identity) for one in choices(lab, *place)])
    return lab.rows(wanted, _identity, row, _result)


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [r for r in rows if has(r["dataset"], r["model"])]
    effort = {name: asdict(EFFORT[name]) for name in EFFORT if any(r["dataset"] == name for r in rows)}
    return table(rows, lambda r: (r["dataset"], MODELS.index(r["model"]), r["seed"]), effort=effort)


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    panels = {
        TITLES[name]: [_compared(r) for r in result["rows"] if r["dataset"] == name] for name in result["datasets"]
    }
    return plots.comparison(panels, "mean test log-likelihood, nats")


def _compared(r: dict[str, Any]) -> plots.Compared:
    test, (_, nats) = r["test"], PAPER.get(r["dataset"], {}).get(r["model"], (None, None))
    return plots.Compared(r["model"], test["value"], test["lower"], test["upper"], test["reliable"], nats)


def section(result: dict[str, Any]) -> str:
    every = [
        "| data | model | seed | rate, L1 | l | pruned | N_h | epoch | test log-likelihood | bracket | verdict | "
        "paper | diff. | trained on, by |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(r) for r in result["rows"]),
    ]
    lines = [BESIDE, "", *_beside(result), "", *_best(result), folded(ALL, "\n".join(every)), ""]
    for how, names in _ways(result).items():
        lines += [f"{', '.join(TITLES[name] for name in names)}: {how}", ""]
    words = [WORDS, *(_among(result, name) for name in result["datasets"])]
    found = {(r["dataset"], r["model"]) for r in result["rows"]}
    for name in result["datasets"]:
        missing = [model for model in MODELS if has(name, model) and (name, model) not in found]
        words += [f"Not run yet on {TITLES[name]}: {', '.join(missing)}."] if missing else []
    told = (r for r in result["rows"] if (r["model"] == RP and r["seed"] == result["seeds"][0]) or _found_late(r))
    stories = [_story(r) for r in told]
    text = " ".join(word for word in words if word)
    return "\n\n".join(["\n".join([*lines, text]), *filter(None, stories)])


def _found_late(r: dict[str, Any]) -> bool:
    """Whether the first round missed nearly all of Z."""
    forward = [trial["value"] for trial in r["log_partition"]["trials"] if trial["side"] == "forward"]
    return bool(forward) and max(forward[:KEPT_PATHS]) < r["log_partition"]["value"] - MISSED


_BOTH = "; what both sides have in common in the last round narrows that where it is the same however it is asked"


def _story(r: dict[str, Any]) -> str:
    """How ln Z of a row was found, round by round; nothing where it was enumerated."""
    log_z, test = r["log_partition"], r["test"]
    if not log_z["trials"]:
        return ""
    lines = [
        "Estimates ± standard errors, with effective chains in parentheses. Forward values are mostly too small where "
        "they are wrong, and those going back too large; with few effective chains they are off either way. The lower "
        "end is the largest forward value less four errors, all first paths of the rounds together and all second ones "
        "counting as values, too, and never less than known states weigh; the upper end is what the last round's way "
        f"back allows{_BOTH if any(t['side'] == 'both' for t in log_z['trials']) else ''} "
        "([the rule](decisions/005-bracket.md)).",
        "",
        *rounds(log_z["trials"]),
        "",
        f"So ln Z is {log_z['value']:.2f} in [{log_z['lower']:.2f}, {log_z['upper']:.2f}]. The mean of -F(v) over the "
        f"test split is {test['value'] + log_z['value']:.2f}; less ln Z that is {', '.join(judged(test))}. The mean "
        f"over examples has a standard error of its own, {test['stderr_of_examples']:.2f}.",
    ]
    title = f"How ln Z of {r['model']} on {TITLES[r['dataset']]}, seed {r['seed']}, was found, round by round"
    return folded(title, "\n".join(lines))


def _ways(result: dict[str, Any]) -> dict[str, list[str]]:
    """How epochs were chosen and likelihoods estimated, with the data sets that it holds for."""
    found: dict[str, list[str]] = {}
    for name in result["datasets"]:
        rows = [r for r in result["rows"] if r["dataset"] == name]
        epochs = _with_models(rows, lambda r: ", ".join(map(str, sorted({one["epoch"] for one in r["validation"]}))))
        budgets = _with_models(rows, lambda r: f"{r['budget']}")
        how = HOW.format(epochs=epochs, choice_budget=result["effort"][name]["choice_budget"], budgets=budgets)
        found.setdefault(how, []).append(name)
    return found


def _with_models(rows: list[dict[str, Any]], what: Callable[[dict[str, Any]], str]) -> str:
    """What rows have: that of the most of them first, the others with the names of their models."""
    having: dict[str, list[str]] = {}
    for r in rows:
        differs = any(what(one) != what(r) for one in rows if one["model"] == r["model"])
        having.setdefault(what(r), []).append(f"{r['model']} seed {r['seed']}" if differs else r["model"])
    usual, *others = sorted(having, key=lambda one: -len(having[one]))
    return "; ".join([usual, *(f"{one} ({', '.join(dict.fromkeys(having[one]))})" for one in others)])


def highlights(result: dict[str, Any]) -> list[str]:
    """Rows for the README, of the models that the paper compares and the best of our own.

    | what | the paper | mean, of seeds | the seed that validates best | reliable |
    """
    lines = []
    for name in (dataset for dataset in result["datasets"] if dataset in PAPER):
        rows = [r for r in result["rows"] if r["dataset"] == name]
        chosen, means = _chosen(rows), _means(rows)
        own = sorted((model for model in chosen if model in OWN_MODELS), key=lambda model: _validated(chosen[model]))
        for model in (one for one in (RP, CLASSIC, ORDINARY, *own[-1:]) if one in chosen):
            (mean, sure, n), (value, bracket, _) = means[model], judged(chosen[model]["test"])
            _, nats = PAPER[name].get(model, (None, ""))
            what = f"{TITLES[name]}, {model}: test log-likelihood"
            lines.append(f"| {what} | {nats} | {mean}, {n} | {value} {bracket} | {sure} of {n} |")
    return lines


def _line(r: dict[str, Any]) -> str:
    device, commit = origin(r)
    return f"| {' | '.join([*_cells(r), f'{device}, {short(commit)}'])} |"


def _cells(r: dict[str, Any]) -> list[str]:
    test, (size, nats) = r["test"], PAPER.get(r["dataset"], {}).get(r["model"], (None, None))
    return [
        TITLES[r["dataset"]],
        r["model"],
        f"{r['seed']}",
        _rate_and_l1(r["settings"]),
        f"{r['n_components']}",
        f"{r['after_pruning']}",
        f"{r['effective_size']:.0f}",
        f"{r['epoch']} of {r['epochs']}",
        *judged(test),
        "" if nats is None else f"{_about(r)}{nats:g}" + (f" ({size})" if size else ""),
        "" if nats is None else f"{_about(r)}{test['value'] - nats:{'+.0f' if _about(r) else '+.2f'}}",
    ]


def _about(r: dict[str, Any]) -> str:
    """The paper cites what greedy units reach as approximate."""
    return "≈ " if r["model"] == GREEDY else ""


def _rate_and_l1(settings: dict[str, Any]) -> str:
    return f"{settings['learning_rate']:g}, {settings['l1']:g}"


def _among(result: dict[str, Any], dataset: str) -> str:
    """Which rows had settings to choose from, and which."""
    words = []
    for r in result["rows"]:
        tried = list(dict.fromkeys(_rate_and_l1(looked) for looked in r["validation"]))
        if r["dataset"] == dataset and len(tried) > 1:
            words.append(f"{r['model']} among {' and '.join(f'({one})' for one in tried)}")
    if not words:
        return ""
    return (
        f"On {TITLES[dataset]} the validation split chooses the rate and the weight of L1 as well, where the paper "
        f"names none: {', '.join(dict.fromkeys(words))}."
    )


def _chosen(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of every model the row whose seed validates best."""
    models = dict.fromkeys(r["model"] for r in rows)
    return {model: max((r for r in rows if r["model"] == model), key=_validated) for model in models}


def _validated(r: dict[str, Any]) -> float:
    """The mean log-likelihood of the validation split at least, at the epoch that was chosen by it."""
    return float(max(looked["lower"] for looked in r["validation"]))


def _without(result: dict[str, Any]) -> list[str]:
    """The models without RP to stand beside: the paper's, and of our own those that have rows."""
    return [model for model in WITHOUT if model not in OWN_MODELS or any(r["model"] == model for r in result["rows"])]


def _best(result: dict[str, Any]) -> list[str]:
    """The seed of every model that validates best, where there are several: with RP beside the best without it."""
    without = _without(result)
    beside = " | ".join(f"beside {model}" for model in without)
    lines = [
        BEST,
        "",
        f"| data | model | seed | of seeds | test log-likelihood | bracket | verdict | paper | diff. | {beside} |",
        "|---|---|---|---|---|---|---|---|---|" + "---|" * len(without),
    ]
    several = [
        name for name in result["datasets"] if len({r["seed"] for r in result["rows"] if r["dataset"] == name}) > 1
    ]
    for name in several:
        rows = [r for r in result["rows"] if r["dataset"] == name]
        chosen = _chosen(rows)
        for model, r in chosen.items():
            data, _, seed, *_, value, bracket, verdict, theirs, apart = _cells(r)
            n = sum(one["model"] == model for one in rows)
            others = [chosen.get(other) if model in models_with_rp(name) else None for other in without]
            found = [against(r["test"], other["test"]) if other else "" for other in others]
            cells = (data, model, seed, f"{n}", value, bracket, verdict, theirs, apart, *found)
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""] if several else []


def _beside(result: dict[str, Any]) -> list[str]:
    """How models with RP stand beside those without, by brackets and not by values, seed by seed: a table."""
    without = _without(result)
    lines = [
        f"| data | model | mean, of seeds | reliable | {' | '.join(f'beside {model}' for model in without)} |",
        "|---|---|---|---|" + "---|" * len(without),
    ]
    for name in result["datasets"]:
        rows = [r for r in result["rows"] if r["dataset"] == name]
        for model, (mean, sure, n) in _means(rows).items():
            ours = {r["seed"]: r["test"] for r in rows if r["model"] == model}
            cells = [TITLES[name], model, f"{mean}, {n}", f"{sure} of {n}"]
            for other in without:
                theirs = [(ours[r["seed"]], r["test"]) for r in rows if r["model"] == other and r["seed"] in ours]
                compared = theirs if model in models_with_rp(name) else []
                cells.append(how_often([against(*pair) for pair in compared]))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _means(rows: list[dict[str, Any]]) -> dict[str, tuple[str, int, int]]:
    """Of every model: the mean value, in parentheses unless all are reliable; how many are; and over how many seeds."""
    tests: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        tests.setdefault(r["model"], []).append(r["test"])
    found = {}
    for model, own in tests.items():
        mean, sure = f"{sum(test['value'] for test in own) / len(own):.2f}", sum(test["reliable"] for test in own)
        found[model] = (mean if sure == len(own) else f"({mean})", sure, len(own))
    return found
