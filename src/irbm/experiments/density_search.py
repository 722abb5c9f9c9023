"""A search for the settings of density models within the paper's ranges (sec. 4.2), by the validation split alone.

``python -m irbm.experiments.density_search --dataset caltech101_silhouettes --jobs 6`` writes
results/search_density_caltech101_silhouettes.json: rates within 0.001..1 and weights of L1 within 0..0.01, for each
model by itself. The test split is not looked at: table 1 does that, once it has trained the best of these for longer
(``density_models.TRIED``). Trainings are kept as those of table 1 are, which goes on from them.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from irbm.experiments import density_models
from irbm.experiments.density_models import CLASSIC, ORDINARY, RP
from irbm.experiments.lab import Lab, likelihood, load, settings_table
from irbm.experiments.paper import CALTECH, DIGITS, MNIST, TITLES
from irbm.experiments.results import judged, known_runs, stamp, write_json

BUDGET = 500  # points of the longest path of annealing: enough to tell settings apart that differ by nats
EPOCHS = {CALTECH: 500, MNIST: 200, DIGITS: 10}  # fewer than table 1 trains for: what learns fast is seen, no more
# Rate and weight of L1. The paper's own come first.
CANDIDATES: dict[str, dict[str, list[tuple[float, float]]]] = {
    CALTECH: {
        CLASSIC: [(0.02, 1e-3), (0.05, 1e-3), (0.1, 1e-3), (0.05, 3e-3), (0.1, 3e-3), (0.02, 3e-4)],
        RP: [(0.02, 1e-3), (0.05, 1e-3), (0.02, 3e-4), (0.05, 3e-3)],
        ORDINARY: [(0.02, 1e-3), (0.05, 1e-3), (0.02, 3e-4)],
    },
    MNIST: {
        CLASSIC: [(0.05, 1e-4), (0.1, 1e-4), (0.05, 1e-5), (0.1, 1e-5)],
        RP: [(0.05, 1e-4), (0.02, 1e-4), (0.1, 1e-4), (0.05, 1e-5), (0.1, 1e-5)],
        ORDINARY: [(0.05, 1e-4), (0.1, 1e-4), (0.05, 1e-5)],
    },
    DIGITS: {CLASSIC: [(0.2, 1e-4), (0.1, 1e-4)], RP: [(0.2, 1e-4)]},
}


def tried(lab: Lab, dataset: str, model: str, rate: float, l1: float, seed: int) -> dict[str, Any]:
    """One candidate: trained, and its likelihood of the validation split."""
    usual = density_models.training(dataset, model, seed, lab)
    settings = replace(usual.settings, learning_rate=rate, l1=l1, n_iter=lab.n_iter(EPOCHS[dataset]))
    (run,) = lab.train([replace(usual, settings=settings)], f"{model}, rate {rate:g}, L1 {l1:g}")
    machine, last = run.machine(), run.history()[-1]
    log_z = lab.log_partition(machine, run.training, BUDGET, run.log_z_file(last.epoch, BUDGET))
    return {
        "model": model,
        "learning_rate": rate,
        "l1": l1,
        "seed": seed,
        "validation": likelihood(machine, load(dataset).validation.X, log_z),
        "n_components": last.n_components,
        "effective_size": last.effective_size,
        "settings": settings_table(settings),
        "training_seconds": sum(report.seconds for report in run.history()),
    }


def search(lab: Lab, dataset: str, models: list[str], seed: int, file: Path) -> list[dict[str, Any]]:
    """All candidates, best first within a model by the lower end of the bracket; written after each.

    What the file has of other models stays.
    """
    calls = [
        {"lab": replace(lab, jobs=1), "dataset": dataset, "model": model, "rate": rate, "l1": l1, "seed": seed}
        for model in models
        for rate, l1 in CANDIDATES[dataset][model]
    ]
    order = list(CANDIDATES[dataset])
    runs = [r for r in known_runs(file) if r["model"] not in models]
    for found in lab.each(tried, calls, "candidates", talks=True):
        runs.append(found)
        runs.sort(key=lambda r: (order.index(r["model"]), -r["validation"]["lower"]))
        about = {"dataset": dataset, "note": load(dataset).note, "epochs": lab.n_iter(EPOCHS[dataset])}
        write_json(file, {**about, "budget": BUDGET, "runs": runs, **stamp(lab.device)})
    return runs


def section(found: dict[str, Any]) -> str:
    """What a file of results says, as Markdown."""
    lines = [
        f"{TITLES[found['dataset']]}, {found['epochs']} epochs, on {found['device']}, commit {found['commit']}:",
        "",
        "| model | rate | L1 | l | validation log-likelihood | bracket | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['model']} | {r['learning_rate']:g} | {r['l1']:g} | {r['n_components']} | "
        f"{' | '.join(judged(r['validation']))} |"
        for r in found["runs"]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(CANDIDATES), required=True)
    parser.add_argument("--only", help="some of the models, with commas")
    parser.add_argument("--n-iter", type=int, help="epochs of a candidate, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="candidates at the same time")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    models = args.only.split(",") if args.only else list(CANDIDATES[args.dataset])
    unknown = sorted(set(models) - set(CANDIDATES[args.dataset]))
    if unknown:
        parser.error(f"only must name some of {', '.join(CANDIDATES[args.dataset])}, got {unknown[0]!r}")
    lab = Lab(out=args.out, name="search", device=args.device, epochs=args.n_iter, jobs=args.jobs)
    for run in search(lab, args.dataset, models, args.seed, args.out / f"search_density_{args.dataset}.json"):
        held = run["validation"]
        print(
            f"{run['model']}, rate {run['learning_rate']:g}, L1 {run['l1']:g}: validation {held['value']:.2f} in "
            f"[{held['lower']:.2f}, {held['upper']:.2f}], l {run['n_components']}, {run['training_seconds']:.0f} s"
        )


if __name__ == "__main__":
    main()
