"""What a trained run is worth on a split of its data: likelihood with bracket and verdict, errors of a classifier."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from irbm.data import Dataset
from irbm.estimators import InfiniteRBM
from irbm.evaluation.classification import error_rate
from irbm.evaluation.diagnostics import order_invariance
from irbm.evaluation.likelihood import mean_likelihood
from irbm.evaluation.partition import LogPartition
from irbm.models import Fixed
from irbm.runs import Run

Progress = Callable[[str], None]
LIKELIHOODS = {
    "log_likelihood": "mean ln p(v), nats",
    "average_over_orders": "averaged over orders",
    "as_plain_rbm": "as a plain RBM",
}


def assess(
    run: Run,
    part: str,
    *,
    seed: int = 0,
    tol: float = 0.1,
    budget: int | None = None,
    n_permutations: int = 0,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Everything that can be said of the model on one split, as JSON holds it."""
    config, model = run.config(), run.model()
    if n_permutations and not (isinstance(model, InfiniteRBM) and model._regrouped()):
        raise ValueError(f"permutations must be 0, got {n_permutations}: {run.path} has no orders to average over")
    examples = config.load_data()
    split = getattr(examples, part)
    effort = {"data": examples.train.X, "random_state": seed, "tol": tol, "budget": budget}
    result: dict[str, Any] = {"data": {"set": examples.name, "split": part, "examples": len(split.X)}}
    result["size"] = {"n_components": model.n_components_, "effective_size": model.effective_size_}
    if config.classifies:
        progress("classification")
        result["error"] = asdict(error_rate(split.y, model.predict(split.X)))
    progress("ln Z")
    log_z = model.log_partition(**effort)
    result["log_likelihood"] = likelihood(model, split.X, log_z)
    result["log_partition"] = asdict(log_z)
    progress("pseudo-likelihood")
    result["pseudo_log_likelihood"] = float(model.pseudo_log_likelihood(split.X).mean())
    result |= dict(_about_order(model, examples, split.X, effort, n_permutations, progress))
    return result


def likelihood(model: Any, X: NDArray[np.uint8], log_z: LogPartition) -> dict[str, Any]:
    """The mean of ln p(v) of a fitted estimator, as it is judged everywhere."""
    return mean_likelihood(-model.free_energy(X), log_z)


def doubts(found: dict[str, Any]) -> list[str]:
    """Which likelihoods of an assessment are not reliable, and why."""
    return [
        f"{name}: {found[key]['reason']}"
        for key, name in LIKELIHOODS.items()
        if key in found and not found[key]["reliable"]
    ]


def _about_order(
    model: Any, examples: Dataset, X: NDArray[np.uint8], effort: dict[str, Any], n_permutations: int, progress: Progress
) -> Iterator[tuple[str, Any]]:
    """What becomes of a machine that has an order: of p(z <= M), of the average over orders, of the plain RBM."""
    regrouped = model._regrouped()
    if not isinstance(model.machine_.depth, Fixed) and regrouped:
        mean = order_invariance(model.machine_, torch.from_numpy(examples.train.X), regrouped)
        yield "order", {"regrouped": regrouped, "mean_log_p_z_up_to_regrouped": mean}
    if not isinstance(model, InfiniteRBM):
        return
    if n_permutations:
        progress("averages over orders")
        yield "average_over_orders", asdict(model.averaged_likelihood(X, n_permutations, **effort))
    progress("as a plain RBM")
    rbm = model.to_rbm()
    found = likelihood(rbm, X, rbm.log_partition(**effort))
    yield "as_plain_rbm", {"n_components": rbm.n_components_, **found}
