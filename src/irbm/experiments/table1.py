"""Table 1: test log-likelihoods of density models (sec. 4.2), and of the RBM that the infinite one is turned into."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from irbm import plots
from irbm.evaluation.estimate import KEPT_PATHS
from irbm.experiments import frank_wolfe, paper
from irbm.experiments.choice import Choice, Chosen, choose, choose_all
from irbm.experiments.lab import Lab, Training, likelihood, load, settings_table
from irbm.experiments.paper import BOTH, CALTECH, DIGITS, MNIST, TITLES
from irbm.experiments.results import folded, judged, origin, rounds, short, table
from irbm.models import Machine
from irbm.training import Settings
from irbm.training.growth import prune

TITLE = "Table 1: density models"
CLAIM = "With RP the infinite RBM has higher likelihoods than the RBM and, on CalTech, than ordinary training."
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
RP, CONVERTED, CLASSIC, ORDINARY, GREEDY = "iRBM RP", "iRBM RP as RBM", "RBM", "iRBM", "FW-iRBM + CD"
# Rows that are not of the paper: whose settings they start from, and what they change.
OWN: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    MNIST: {
        "iRBM RP 1000 chains": (RP, {"n_chains": 1000}),
        "iRBM RP averaged": (RP, {"averaging": 1000}),
        "iRBM RP 0.9 l averaged": (RP, {"regroup": 0.9, "averaging": 1000}),
        "RBM averaged": (CLASSIC, {"averaging": 1000}),
        "iRBM averaged": (ORDINARY, {"averaging": 1000}),
    },
    CALTECH: {
        "iRBM RP 0.9 l": (RP, {"regroup": 0.9}),
        "iRBM RP 0.9 l averaged": (RP, {"regroup": 0.9, "averaging": 500}),
        "RBM averaged": (CLASSIC, {"averaging": 500}),
        "iRBM averaged": (ORDINARY, {"averaging": 500}),
    },
    DIGITS: {
        "iRBM RP averaged": (RP, {"averaging": 100}),
        "iRBM RP 0.9 l": (RP, {"regroup": 0.9}),
    },
}
OWN_MODELS = tuple(dict.fromkeys(model for models in OWN.values() for model in models))


def _with_own(usual: tuple[str, ...]) -> tuple[str, ...]:
    """Models, and after each the rows of our own that change something of its settings, of whatever data set."""
    own = [(of, model) for models in OWN.values() for model, (of, _) in models.items()]
    return tuple(dict.fromkeys(name for one in usual for name in (one, *(model for of, model in own if of == one))))


WITHOUT = _with_own((CLASSIC, ORDINARY, GREEDY))  # models without RP
MODELS = (RP, CONVERTED, *_with_own((RP,))[1:], *WITHOUT)


@dataclass(frozen=True)
class Effort:
    """How long to train on a data set, and how hard to look for ln Z."""

    candidates: tuple[int, ...]  # epochs among which the validation split chooses; the last one ends training
    averaged_candidates: tuple[int, ...]  # the same of averages; on MNIST fewer, for want of time
    greedy_candidates: tuple[int, ...]  # of CD from the greedy units, which are a good start; 0: these themselves
    sizes: dict[str, int]  # of the models that do not choose it
    choice_budget: int = 500  # points of the longest path of annealing
    full_budget: int = 8_000


EVERY_100TH, EVERY_200TH = tuple(range(100, 1001, 100)), tuple(range(200, 1001, 200))
EFFORT = {
    MNIST: Effort(EVERY_200TH, EVERY_100TH[:6], (0, 100, 200), {CLASSIC: 500, GREEDY: 460}),
    CALTECH: Effort(EVERY_100TH, EVERY_100TH, (0, 100, 200, 300), {CLASSIC: 500, GREEDY: 550}),
    DIGITS: Effort((50, 100), (50, 100), (0, 10), {CLASSIC: 100, GREEDY: 50}, choice_budget=100, full_budget=500),
}
PAPER: dict[str, dict[str, tuple[int | None, float]]] = {  # size, nats
    MNIST: {CLASSIC: (500, -86.34), ORDINARY: (1208, -85.65), GREEDY: (460, -85), RP: (674, -85.81),
            CONVERTED: (None, -88.13)},
    CALTECH: {CLASSIC: (500, -119.05), ORDINARY: (915, -121.47), GREEDY: (550, -127), RP: (695, -114.09),
              CONVERTED: (None, -115.90)},
}  # fmt: skip
# Rates and weights of L1 among which the validation split chooses, for models of which the paper names neither: the
# best of a shorter search (results/search_density_*.json). Ordinary training has RP's. On CalTech both had a second
# pair for the whole length, which was chosen with no seed of three (results/table1_before.json).
TRIED: dict[str, dict[str, tuple[tuple[float, float], ...]]] = {
    MNIST: {CLASSIC: ((0.05, 1e-4), (0.1, 1e-4))},
    CALTECH: {CLASSIC: ((0.02, 3e-4),)},
    DIGITS: {CLASSIC: ((0.05, 1e-4), (0.1, 1e-4))},
}
# Data sets whose RBM has visible biases that start at the data's log-odds.
BIASED = {CALTECH}
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


def training(dataset: str, model: str, seed: int, lab: Lab) -> Training:
    """What stands behind a row."""
    effort = EFFORT[dataset]
    settings = paper.density(dataset, lab.n_iter(_candidates(dataset, model)[-1]))
    if model in (RP, CONVERTED):
        return Training(dataset=dataset, settings=settings, seed=seed)
    if model in OWN_MODELS:
        usual, changes = OWN[dataset][model]
        like = training(dataset, usual, seed, lab)
        return replace(like, settings=replace(like.settings, n_iter=settings.n_iter, **changes))
    ordinary = replace(settings, regroup=None)
    if model == ORDINARY:
        return Training(dataset=dataset, settings=ordinary, seed=seed)
    size = effort.sizes[model]
    if model == CLASSIC:
        kind = "biased" if dataset in BIASED else "fixed"
        return Training(dataset=dataset, settings=ordinary, seed=seed, model=kind, n_components=size)
    n_iter = settings.n_iter
    tuning = Settings(**frank_wolfe.TUNING[dataset], n_iter=n_iter, persistent=False, regroup=None, max_norm=None)
    return Training(dataset=dataset, settings=tuning, seed=seed, model="greedy", n_components=size)


def _candidates(dataset: str, model: str) -> tuple[int, ...]:
    """Epochs among which the validation split chooses."""
    effort = EFFORT[dataset]
    usual, changes = OWN[dataset].get(model, (model, {}))
    if usual == GREEDY:
        return effort.greedy_candidates
    return effort.averaged_candidates if "averaging" in changes else effort.candidates


def choices(lab: Lab, dataset: str, model: str, seed: int) -> list[Choice]:
    """The same with each of the settings tried, and with the epochs to choose from, up to the last one trained."""
    usual, effort = training(dataset, model, seed, lab), EFFORT[dataset]
    like, _ = OWN[dataset].get(model, (model, {}))
    tried = TRIED[dataset].get(like, ((usual.settings.learning_rate, usual.settings.l1),))
    epochs = (*(epoch for epoch in _candidates(dataset, model) if epoch < usual.n_iter), usual.n_iter)
    settings = [replace(usual.settings, learning_rate=rate, l1=l1) for rate, l1 in tried]
    return [Choice(replace(usual, settings=one), epochs, effort.choice_budget) for one in settings]


def as_rbm(machine: Machine, n_units: int) -> Machine:
    """The classic RBM of the first units, z clamped. Sec. 4.2."""
    return machine.selected(machine.order[: max(1, n_units)]).clamped()


def best(lab: Lab, dataset: str, seed: int, model: str = RP) -> Chosen:
    """A model after the epoch that validates best, with the settings that do."""
    return max((choose(lab, one) for one in choices(lab, dataset, model, seed)), key=lambda chosen: chosen.lower)


def models_with_rp(dataset: str) -> tuple[str, ...]:
    """The infinite RBMs with random permutation, that of the paper first."""
    return (RP, *(model for model, (like, _) in OWN[dataset].items() if like == RP))


def best_regrouped(lab: Lab, dataset: str, seed: int) -> tuple[str, Chosen]:
    """Of the infinite RBMs with random permutation, our own among them, the one that validates best, with its name."""
    found = ((model, best(lab, dataset, seed, model)) for model in models_with_rp(dataset))
    return max(found, key=lambda one: one[1].lower)


def has(dataset: str, model: str) -> bool:
    """Whether a data set has such a row: those that are not of the paper are of some data sets only."""
    return model in MODELS and (model not in OWN_MODELS or model in OWN[dataset])


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
            found = [_against(r["test"], other["test"]) if other else "" for other in others]
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
                cells.append(_how_often([_against(*pair) for pair in compared]))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _against(ours: dict[str, Any], other: dict[str, Any]) -> str:
    """Level where brackets meet."""
    if ours["lower"] > other["upper"]:
        return "above"
    return "below" if ours["upper"] < other["lower"] else "level"


def _how_often(outcomes: list[str]) -> str:
    """Outcomes with how many seeds have them, the commonest first."""
    return ", ".join(f"{one} ({n} of {len(outcomes)})" for one, n in Counter(outcomes).most_common())


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
