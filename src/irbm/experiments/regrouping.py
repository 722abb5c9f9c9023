"""What random permutation does, against ordinary training at equal epochs: likelihood, size, filters, order.

``python -m irbm.experiments.regrouping digits --seeds 0 1 2 3 4`` writes results/regrouping_digits.json.
"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from irbm import data
from irbm.estimators import InfiniteRBM
from irbm.evaluation.diagnostics import order_invariance
from irbm.experiments.results import processes, stamp, write_json
from irbm.files import write_bytes

CALTECH_SLICE = 1000  # training examples, so that a run takes minutes on a CPU
MARGIN = 10  # M of ln p(z <= M | v) lies so far below the mean likeliest z, as in eq. 32, for both kinds of training

SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"n_iter": 100, "learning_rate": 0.05, "l1": 1e-4, "gibbs_steps": 10, "persistent": True},
    "caltech101_silhouettes": {
        "n_iter": 60,
        "learning_rate": 0.02,
        "l1": 1e-3,
        "gibbs_steps": 10,
        "persistent": False,
    },
}


def run(dataset: str, regroup: str | None, seed: int, n_iter: int, device: str, budget: int | None) -> dict[str, Any]:
    """One training and everything that is compared."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    splits = data.load(dataset)
    X, test = splits.train.X[:CALTECH_SLICE] if dataset != "digits" else splits.train.X, splits.test.X
    model = InfiniteRBM(**{**SETTINGS[dataset], "n_iter": n_iter}, regroup=regroup, random_state=seed, device=device)
    model.fit(X)
    log_z = model.log_partition("ais", data=X, random_state=seed, budget=budget)
    m = round(model.history_[-1]["mean_z"] - MARGIN)
    return {
        "seed": seed,
        "regroup": regroup,
        "n_components": model.n_components_,
        "effective_size": model.effective_size_,
        "mean_z": model.history_[-1]["mean_z"],
        "half_way": model.history_[n_iter // 2 - 1]["n_components"],
        "log_partition": asdict(log_z),
        "train_log_likelihood": float(-model.free_energy(X).mean() - log_z.value),
        "test_log_likelihood": float(-model.free_energy(test).mean() - log_z.value),
        "neighbour_correlation": neighbour_correlation(model.components_[: round(model.effective_size_)]),
        "mean_log_p_z_up_to_m": order_invariance(model.machine_, torch.from_numpy(X), max(m, 1)),
        "seconds": sum(row["seconds"] for row in model.history_),
    }


def neighbour_correlation(filters: NDArray[Any]) -> float:
    """The mean |correlation| of filters next to each other in the order."""
    centred = filters - filters.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1)
    kept = centred[norms > 0] / norms[norms > 0, None]
    return float(np.abs((kept[1:] * kept[:-1]).sum(axis=1)).mean())


def page(results: list[dict[str, Any]]) -> str:
    """The comparison as Markdown, from results as they were written."""
    lines = [
        "# What random permutation does",
        "",
        "Infinite RBMs trained with random permutation (RP) and without, at equal epochs; figures are written by",
        "`python -m irbm.experiments.regrouping DATASET` into `results/`. ln Z by annealing, with its bracket",
        "and verdict as they were at the commit named;",
        "likelihoods are nats per test example, in parentheses where they are not reliable. Width is the bracket's,",
        "in nats. Correlation is the mean",
        f"|correlation| of filters next to each other; M lies {MARGIN} below the mean likeliest z.",
    ]
    for result in results:
        settings = ", ".join(f"{name} {value}" for name, value in result["settings"].items())
        lines += [
            "",
            f"## {result['dataset']}",
            "",
            f"{result['note'].rstrip('.')}. Settings: {settings}. On {result['device']}, commit {result['commit']}.",
            "",
            "| training | seed | l | N_h | test log-likelihood | width | verdict | correlation | ln p(z ≤ M) |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_page_row(r) for r in sorted(result["runs"], key=lambda r: (r["regroup"] is None, r["seed"]))),
            *(_page_means(result["runs"], regroup) for regroup in ("adaptive", None)),
            "",
            _findings(result["runs"]),
        ]
    return "\n".join(lines) + "\n"


def _findings(runs: list[dict[str, Any]]) -> str:
    """How training with regrouping differs, seed by seed."""
    ways = [{r["seed"]: r for r in runs if (r["regroup"] is None) == ordinary} for ordinary in (False, True)]
    both = sorted(set(ways[0]) & set(ways[1]))

    def more(name: str) -> int:
        return sum(ways[0][seed][name] > ways[1][seed][name] for seed in both)

    alike = [np.mean([r["neighbour_correlation"] for r in way.values()]) for way in ways]
    mean = [np.mean([r["test_log_likelihood"] for r in way.values()]) for way in ways]
    sure = sum(r["log_partition"]["reliable"] for r in runs)
    return (
        f"Of {len(both)} seeds RP has the higher likelihood in {more('test_log_likelihood')}, by value, and more units "
        f"in {more('n_components')}; its mean likelihood is {abs(mean[0] - mean[1]):.2f} "
        f"{'higher' if mean[0] > mean[1] else 'lower'}, and {sure} of {len(runs)} estimates are reliable. "
        f"Neighbouring filters correlate by {alike[0]:.2f} with RP and by {alike[1]:.2f} without."
    )


def _page_row(r: dict[str, Any]) -> str:
    log_z = r["log_partition"]
    cells = [
        "RP" if r["regroup"] else "ordinary",
        f"{r['seed']}",
        f"{r['n_components']}",
        f"{r['effective_size']:.0f}",
        f"{r['test_log_likelihood']:.2f}" if log_z["reliable"] else f"({r['test_log_likelihood']:.2f})",
        f"{log_z['upper'] - log_z['lower']:.2f}",
        "reliable" if log_z["reliable"] else "not reliable",
        f"{r['neighbour_correlation']:.3f}",
        f"{r['mean_log_p_z_up_to_m']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _page_means(runs: list[dict[str, Any]], regroup: str | None) -> str:
    """Mean and standard deviation over the seeds of one kind of training."""
    kept = [r for r in runs if r["regroup"] == regroup]

    def spread(name: str, digits: int) -> str:
        values = np.array([r[name] for r in kept])
        return f"{values.mean():.{digits}f} ± {values.std(ddof=min(1, len(values) - 1)):.{digits}f}"

    reliable = sum(r["log_partition"]["reliable"] for r in kept)
    likelihood = spread("test_log_likelihood", 2)
    cells = [
        "**RP**" if regroup else "**ordinary**",
        "mean ± sd",
        spread("n_components", 0),
        spread("effective_size", 0),
        likelihood if reliable == len(kept) else f"({likelihood})",
        "",
        f"{reliable} of {len(kept)} reliable",
        spread("neighbour_correlation", 3),
        spread("mean_log_p_z_up_to_m", 1),
    ]
    return "| " + " | ".join(cells) + " |"


def write_page(folder: str, path: str) -> None:
    files = sorted(Path(folder).glob("regrouping_*.json"))
    write_bytes(path, page([json.loads(file.read_text()) for file in files]).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=[*SETTINGS, "page"], help="'page' writes docs/regrouping.md from results/")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--n-iter", type=int)
    parser.add_argument("--budget", type=int, help="points of the longest annealing schedule")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.dataset == "page":
        write_page("results", args.out or "docs/regrouping.md")
        return
    n_iter = args.n_iter or SETTINGS[args.dataset]["n_iter"]
    with processes(args.jobs) as pool:
        jobs = [
            pool.submit(run, args.dataset, regroup, seed, n_iter, args.device, args.budget)
            for seed in args.seeds
            for regroup in ("adaptive", None)
        ]
        runs = [job.result() for job in jobs]
    settings = {**SETTINGS[args.dataset], "n_iter": n_iter}
    note = data.load(args.dataset).note
    if args.dataset != "digits":
        note += f"; trained on the first {CALTECH_SLICE} training examples"
    result = {"dataset": args.dataset, "note": note, "settings": settings, "runs": runs, **stamp(args.device)}
    write_json(args.out or f"results/regrouping_{args.dataset}.json", result)
    for r in runs:
        log_z = r["log_partition"]
        print(
            f"{r['regroup']!s:8} seed {r['seed']}: l {r['n_components']} N_h {r['effective_size']:.0f} "
            f"test LL {r['test_log_likelihood']:.2f} bracket {log_z['upper'] - log_z['lower']:.2f} "
            f"{'reliable' if log_z['reliable'] else 'NOT reliable'} corr {r['neighbour_correlation']:.3f} "
            f"ln p(z<=M) {r['mean_log_p_z_up_to_m']:.1f} {r['seconds']:.0f} s"
        )


if __name__ == "__main__":
    main()
