"""The density models that table 1 compares, and others take from it: what each is trained with, and for how long.

Rows that are not of the paper are of our own, named by what they change.
"""

from dataclasses import dataclass, replace
from typing import Any

from irbm.experiments import frank_wolfe, paper
from irbm.experiments.choice import Choice, Chosen, choose
from irbm.experiments.lab import Lab, Training
from irbm.experiments.paper import CALTECH, DIGITS, MNIST
from irbm.models import Machine
from irbm.training import Settings

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


def with_own(usual: tuple[str, ...]) -> tuple[str, ...]:
    """Models, and after each the rows of our own that change something of its settings, of whatever data set."""
    own = [(of, model) for models in OWN.values() for model, (of, _) in models.items()]
    return tuple(dict.fromkeys(name for one in usual for name in (one, *(model for of, model in own if of == one))))


WITHOUT = with_own((CLASSIC, ORDINARY, GREEDY))  # models without RP
MODELS = (RP, CONVERTED, *with_own((RP,))[1:], *WITHOUT)


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
