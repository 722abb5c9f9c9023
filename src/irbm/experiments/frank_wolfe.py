"""The Frank-Wolfe RBM as a baseline: its likelihood, that of CD started from it (table 1), its features (table 2).

``python -m irbm.experiments.frank_wolfe --dataset caltech101_silhouettes --units 550 --device cuda`` writes
results/frank_wolfe_caltech101_silhouettes.json.
"""

import argparse
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from irbm import data
from irbm.estimators import RBM, FrankWolfeRBM
from irbm.experiments.results import stamp, write_json

# Of the CD that goes on from the greedy units. Chains that start afresh would be far from a trained machine, so none.
TUNING: dict[str, dict[str, Any]] = {
    "digits": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10, "persistent": False},
    "mnist": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10, "persistent": False},
    "binarized_mnist": {"learning_rate": 0.01, "l1": 1e-4, "gibbs_steps": 10, "persistent": False},
    "caltech101_silhouettes": {"learning_rate": 0.01, "l1": 1e-3, "gibbs_steps": 25, "persistent": False},
}


def likelihoods(model: FrankWolfeRBM | RBM, splits: data.Dataset, X: NDArray[Any], args: Any) -> dict[str, Any]:
    """ln Z with its bracket and verdict, and what follows from it."""
    log_z = model.log_partition("ais", data=X, random_state=args.seed, budget=args.budget)
    return {
        "log_partition": asdict(log_z),
        "train_log_likelihood": float(-model.free_energy(X).mean() - log_z.value),
        "validation_log_likelihood": float(-model.free_energy(splits.validation.X).mean() - log_z.value),
        "test_log_likelihood": float(-model.free_energy(splits.test.X).mean() - log_z.value),
    }


def classification_error(model: FrankWolfeRBM, splits: data.Dataset, n_rows: int) -> float | None:
    """Test error of softmax regression on the units' activation probabilities; None without labels."""
    if splits.train.y is None or splits.test.y is None:
        return None
    softmax = LogisticRegression(max_iter=1000)
    softmax.fit(model.transform(splits.train.X[:n_rows]), splits.train.y[:n_rows])
    return float(np.mean(softmax.predict(model.transform(splits.test.X)) != splits.test.y))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Greedy units, their evaluation, and ``args.cd_passes`` passes of CD from there."""
    splits = data.load(args.dataset)
    X = splits.train.X[: args.rows]
    model = FrankWolfeRBM(
        args.units,
        inner=args.inner,
        l2=args.l2,
        n_chains=args.chains,
        gibbs_steps=args.gibbs_steps,
        inner_steps=args.inner_steps,
        random_state=args.seed,
        device=args.device,
        verbose=1,
    ).fit(X)
    result = {
        "dataset": args.dataset,
        "note": splits.note + f"; trained on {len(X):,} examples",
        "settings": model.get_params(),
        "seconds": sum(row["seconds"] for row in model.history_),
        "frank_wolfe": likelihoods(model, splits, X, args),
        "classification_error": classification_error(model, splits, len(X)),
        "history": model.history_,
    }
    if args.cd_passes:
        rbm = model.to_rbm().set_params(**TUNING[args.dataset])
        for _ in range(args.cd_passes):
            rbm.partial_fit(X)
        tuned = {"passes": args.cd_passes, "settings": TUNING[args.dataset]}
        result["then_cd"] = tuned | likelihoods(rbm, splits, X, args)
    return result | stamp(args.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = FrankWolfeRBM()
    parser.add_argument("--dataset", choices=list(TUNING), default="digits")
    parser.add_argument("--units", type=int, default=defaults.n_components)
    parser.add_argument("--rows", type=int, help="train on so many examples only")
    parser.add_argument("--inner", default=defaults.inner)
    parser.add_argument("--l2", type=float, default=defaults.l2)
    parser.add_argument("--chains", type=int, default=defaults.n_chains)
    parser.add_argument("--gibbs-steps", type=int, default=defaults.gibbs_steps)
    parser.add_argument("--inner-steps", type=int, default=defaults.inner_steps)
    parser.add_argument("--cd-passes", type=int, default=0, help="passes of CD from there on")
    parser.add_argument("--budget", type=int, help="points of the longest annealing schedule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out")
    args = parser.parse_args()
    result = run(args)
    write_json(args.out or f"results/frank_wolfe_{args.dataset}.json", result)
    for name in ("frank_wolfe", "then_cd"):
        if name in result:
            log_z = result[name]["log_partition"]
            print(
                f"{name}: {args.units} units, test LL {result[name]['test_log_likelihood']:.2f}, bracket "
                f"{log_z['upper'] - log_z['lower']:.2f}, {'reliable' if log_z['reliable'] else 'NOT reliable'}"
            )
    if result["classification_error"] is not None:
        print(f"softmax regression on its features: {100 * result['classification_error']:.2f} % test error")
    print(f"greedy training: {result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
