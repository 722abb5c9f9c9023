"""How much to regroup: the paper's schedule, or a constant share of the units, by the validation split alone.

``python -m irbm.experiments.fractions --dataset caltech101_silhouettes --jobs 5`` writes
results/fractions_caltech101_silhouettes.json: RP at the paper's settings but for that, with several seeds. The test
split is not looked at: table 1 does that, for the best of these (``density_models.OWN``). On the paper's data trainings
and choices of an epoch are those of table 1.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from irbm.experiments import density_models, paper
from irbm.experiments.choice import Choice, choose, choose_all
from irbm.experiments.lab import Lab, Training, load
from irbm.experiments.paper import BOTH, DIGITS, TITLES
from irbm.experiments.results import EARLIER, judged, origin, stamp, write_json

EPOCHS = {**{name: density_models.EFFORT[name].candidates for name in BOTH}, DIGITS: (10, 50)}
SCHEDULES: tuple[str | float, ...] = ("adaptive", 0.5, 0.8, 0.9)
SEEDS = (0, 1, 2)
BUDGET = density_models.EFFORT[BOTH[0]].choice_budget  # points of annealing, as table 1 has it


def candidate(lab: Lab, dataset: str, regroup: str | float, seed: int) -> Choice:
    n_iter = lab.n_iter(EPOCHS[dataset][-1])
    epochs = (*(epoch for epoch in EPOCHS[dataset] if epoch < n_iter), n_iter)
    training = Training(dataset=dataset, settings=paper.density(dataset, n_iter, regroup), seed=seed)
    return Choice(training, epochs, BUDGET)


def row(lab: Lab, choice: Choice) -> dict[str, Any]:
    """One candidate: its size in the epoch that validates best, and what the validation split said of each."""
    found = choose(lab, choice)
    return {
        "regroup": choice.training.settings.regroup,
        "seed": choice.training.seed,
        "epoch": found.epoch,
        "n_components": found.report.n_components,
        "regrouped": found.report.regrouped,
        "mean_z": found.report.mean_z,
        "validation": found.validation,
        "training_seconds": found.training_seconds,
        **found.made(),
    }


def compare(lab: Lab, dataset: str, file: Path) -> list[dict[str, Any]]:
    """All candidates, by schedule and seed."""
    choices = [candidate(lab, dataset, regroup, seed) for regroup in SCHEDULES for seed in SEEDS]
    choose_all(lab, choices)
    rows = [row(lab, choice) for choice in choices]
    about = {"dataset": dataset, "note": load(dataset).note, "budget": choices[0].budget}
    write_json(file, {**about, "rows": rows, **stamp(lab.device)})
    return rows


def section(found: dict[str, Any]) -> str:
    """What a file of results says, as Markdown."""
    epochs = ", ".join(f"{one['epoch']}" for one in found["rows"][0]["validation"])
    commits = ", ".join(dict.fromkeys(origin(r)[1] or EARLIER for r in found["rows"]))
    lines = [
        f"{TITLES[found['dataset']]}, epochs {epochs}, a budget of {found['budget']} points; commit {commits}:",
        "",
        "| regrouped | seed | l | of these regrouped | mean likeliest z | epoch | validation log-likelihood "
        "| bracket | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found["rows"]:
        (best,) = (one for one in r["validation"] if one["epoch"] == r["epoch"])
        how = "the schedule" if r["regroup"] == "adaptive" else f"{r['regroup']:g} l"
        lines.append(
            f"| {how} | {r['seed']} | {r['n_components']} | {r['regrouped']} | {r['mean_z']:.0f} | {r['epoch']} | "
            f"{' | '.join(judged(best))} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(EPOCHS), required=True)
    parser.add_argument("--n-iter", type=int, help="epochs, at most")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    lab = Lab(out=args.out, name="fractions", device=args.device, epochs=args.n_iter, jobs=args.jobs)
    file = args.out / f"fractions_{args.dataset}.json"
    compare(lab, args.dataset, file)
    print(file)


if __name__ == "__main__":
    main()
