"""The Frank-Wolfe RBM as a baseline: its likelihood, that of CD started from it (table 1), its features (table 2).

``python -m irbm.experiments.frank_wolfe --dataset caltech101_silhouettes --units 550 --cd-passes 300 --device cuda``
writes results/frank_wolfe_caltech101_silhouettes.json. Of several ``--l2`` the one with the highest likelihood of the
validation split is taken, by the lower end of its bracket. ``--features 600`` trains so many units and classifies by
softmax regression on them, its strength chosen on the validation split. The test split is looked at last.
"""

import argparse
import time
import warnings
from dataclasses import asdict
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from irbm import data
from irbm.data import Split
from irbm.estimators import RBM, FrankWolfeRBM
from irbm.evaluation.classification import error_rate
from irbm.evaluation.likelihood import mean_likelihood
from irbm.experiments.results import place, stamp, write_json
from irbm.training import Settings, Trainer, TrainingState

# Of the CD that goes on from the greedy units. Chains that start afresh would be far from a trained machine, so none.
TUNING: dict[str, dict[str, Any]] = {
    "digits": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10},
    "mnist": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10},
    "binarized_mnist": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10},
    "caltech101_silhouettes": {"learning_rate": 0.01, "l1": 1e-3, "gibbs_steps": 25},
}
TRIAL_BUDGET = 500  # points of the annealing that compares several l2
STRENGTHS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]  # C of softmax regression


def greedy(dataset: str, units: int, seed: int, *, rows: int | None = None, **settings: Any) -> FrankWolfeRBM:
    """A Frank-Wolfe RBM of so many units, trained on the first ``rows`` examples or all."""
    return FrankWolfeRBM(units, random_state=seed, **settings).fit(data.load(dataset).train.X[:rows])


def likelihood(model: FrankWolfeRBM | RBM, X: NDArray[Any], base: NDArray[Any], seed: int, budget: int | None) -> Any:
    """The mean ln p(v) of X with its bracket and verdict; ``base`` are examples that help to find ln Z."""
    log_z = model.log_partition("ais", data=base, random_state=seed, budget=budget)
    return mean_likelihood(-model.free_energy(X), log_z) | {"log_partition": asdict(log_z)}


def said(found: dict[str, Any]) -> str:
    """A likelihood as it is printed: never without its bracket and verdict."""
    verdict = "reliable" if found["reliable"] else "NOT reliable"
    return f"LL {found['value']:.2f} in [{found['lower']:.2f}, {found['upper']:.2f}], {verdict}"


def chosen(
    dataset: str, units: int, seed: int, penalties: list[float], *, rows: int | None = None, **settings: Any
) -> tuple[FrankWolfeRBM, list[dict[str, Any]]]:
    """The machine of the L2 weight that makes the validation split likeliest, and what was tried."""
    splits = data.load(dataset)
    X, tried = splits.train.X[:rows], []
    for l2 in penalties:
        model = greedy(dataset, units, seed, rows=rows, l2=l2, **settings)
        seconds = sum(row["seconds"] for row in model.history_)
        about = {"l2": l2, "seconds": seconds}
        if len(penalties) > 1:
            found = likelihood(model, splits.validation.X, X, seed, TRIAL_BUDGET)
            about |= {f"validation_{name}": found[name] for name in ("value", "lower", "upper", "reliable")}
            print(f"l2 {l2}: validation {said(found)}, {seconds:.0f} s", flush=True)
        tried.append((about.get("validation_lower", 0.0), model, about))
    _, best, _ = max(tried, key=lambda t: t[0])
    return best, [about for _, _, about in tried]


def then_cd(model: FrankWolfeRBM, X: NDArray[Any], passes: int, settings: dict[str, Any], seed: int) -> RBM:
    """All parameters trained together from the greedy units on, by CD."""
    rbm = model.to_rbm()
    cd = Settings(**settings, persistent=False, max_norm=None, regroup=None, n_iter=passes)
    machine = rbm.machine_.with_capacity(rbm.n_components_)  # a copy
    state = Trainer(TrainingState.start(machine, cd, seed), torch.from_numpy(X), settings=cd).run()
    trained = (state.machine.weights, state.machine.hidden_bias, state.machine.visible_bias)
    tuned = RBM.from_parameters(*(t.cpu() for t in trained))
    tuned.set_params(device=model.device)
    return tuned


def softmax_regression(model: FrankWolfeRBM, splits: data.Dataset, rows: int | None = None) -> dict[str, Any]:
    """Errors of softmax regression on the units' activation probabilities, its strength chosen on validation."""
    features = {name: model.transform(split.X) for name, split in _parts(splits).items()}
    labels = {name: _labels(split) for name, split in _parts(splits).items()}
    tried = []
    for strength in STRENGTHS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            softmax = LogisticRegression(C=strength, max_iter=300)
            softmax.fit(features["train"][:rows], labels["train"][:rows])
        held = error_rate(labels["validation"], softmax.predict(features["validation"]))
        tried.append((held.rate, strength, softmax))
    rate, strength, softmax = min(tried, key=lambda t: t[0])
    return {
        "C": strength,
        "tried": {f"{c:g}": error for error, c, _ in tried},  # validation errors
        "validation_error": rate,
        "test_error": asdict(error_rate(labels["test"], softmax.predict(features["test"]))),
    }


def _parts(splits: data.Dataset) -> dict[str, Split]:
    return {"train": splits.train, "validation": splits.validation, "test": splits.test}


def _labels(split: Split) -> Any:
    if split.y is None:
        raise ValueError("these data have no labels")
    return split.y


def train_classifier(
    dataset: str, seed: int, *, units: int = 600, device: str | None = None, rows: int | None = None, **settings: Any
) -> dict[str, Any]:
    """The row "FW-iRBM+SR" of table 2: greedy units, then softmax regression on them. JSON-ready."""
    began = time.perf_counter()
    model = greedy(dataset, units, seed, rows=rows, device=device, **settings)
    return {
        "setting": "frank_wolfe_softmax",
        "seed": seed,
        "n_components": units,
        "settings": model.get_params(),
        **softmax_regression(model, data.load(dataset), rows),
        "wall_seconds": time.perf_counter() - began,
        **stamp(device or "cpu"),
    }


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Greedy units, ``args.cd_passes`` passes of CD from there; then the likelihood of the test split by both."""
    splits, began = data.load(args.dataset), time.perf_counter()
    X = splits.train.X[: args.rows]
    settings = {"inner": args.inner, "n_chains": args.chains, "gibbs_steps": args.gibbs_steps}
    settings |= {"inner_steps": args.inner_steps, "device": args.device, "verbose": 1}
    penalties = [float(l2) for l2 in args.l2.split(",")]
    model, tried = chosen(args.dataset, args.units, args.seed, penalties, rows=args.rows, **settings)
    result = {
        "dataset": args.dataset,
        "note": splits.note + f"; trained on {len(X):,} examples",
        "seed": args.seed,
        "settings": model.get_params(),
        "tried": tried,
        "frank_wolfe": likelihood(model, splits.test.X, X, args.seed, args.budget),
    }
    if args.cd_passes:
        rbm = then_cd(model, X, args.cd_passes, TUNING[args.dataset], args.seed)
        about = {"passes": args.cd_passes, "settings": TUNING[args.dataset]}
        result["then_cd"] = about | likelihood(rbm, splits.test.X, X, args.seed, args.budget)
    return result | {"history": model.history_, "wall_seconds": time.perf_counter() - began, **stamp(args.device)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = FrankWolfeRBM()
    parser.add_argument("--dataset", choices=list(TUNING), default="digits")
    parser.add_argument("--units", type=int, default=defaults.n_components)
    parser.add_argument("--rows", type=int, help="train on so many examples only")
    parser.add_argument("--inner", default=defaults.inner)
    parser.add_argument("--l2", default=str(defaults.l2), help="one or several, with commas")
    parser.add_argument("--chains", type=int, default=defaults.n_chains)
    parser.add_argument("--gibbs-steps", type=int, default=defaults.gibbs_steps)
    parser.add_argument("--inner-steps", type=int, default=defaults.inner_steps)
    parser.add_argument("--cd-passes", type=int, default=0, help="passes of CD from there on")
    parser.add_argument("--budget", type=int, help="points of the longest annealing schedule")
    parser.add_argument("--features", type=int, help="so many units for softmax regression, in place of likelihoods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.features:
        own = {"units": args.features, "device": args.device, "rows": args.rows, "n_chains": args.chains}
        result = train_classifier(args.dataset, args.seed, **own, l2=float(args.l2))
        write_json(args.out or place(f"frank_wolfe_features_{args.dataset}", tried=args.rows is not None), result)
        print(f"softmax regression on {args.features} units: {result['test_error']['rate']:.2%} test error")
        return
    result = run(args)
    write_json(args.out or place(f"frank_wolfe_{args.dataset}", tried=args.rows is not None), result)
    for name in ("frank_wolfe", "then_cd"):
        if name in result:
            print(f"{name}: {args.units} units, test {said(result[name])}")
    print(f"{result['wall_seconds']:.0f} s, of which greedy {sum(t['seconds'] for t in result['tried']):.0f} s")


if __name__ == "__main__":
    main()
