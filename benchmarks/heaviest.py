"""What an estimate of ln Z makes of a machine with one state that outweighs the rest, with and without a part for it.

``python -m benchmarks.heaviest CHOSEN.safetensors --dataset NAME`` takes a file as ``benchmarks.starts`` does, and
looks for ln Z from several seeds with a small budget: with no parts of the base for the heaviest states, and with those
there are now. It writes results/heaviest.json: each estimate with the largest forward value of its runs, and what the
heaviest examples weigh alone.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from benchmarks.starts import chosen

from irbm.evaluation import modes
from irbm.evaluation.estimate import estimate
from irbm.experiments.results import stamp, write_json
from irbm.models import Machine

NOW = modes.HEAVIEST


def estimated(machine: Machine, X: torch.Tensor, heaviest: int, seed: int, budget: int) -> dict[str, Any]:
    modes.HEAVIEST = heaviest
    found = estimate(machine, means_D=X.double().mean(0), examples=X, seed=seed, budget=budget)
    forward = max(trial.value for trial in found.trials if trial.side == "forward")
    said = {name: getattr(found, name) for name in ("value", "lower", "upper", "reliable", "reason")}
    return {"heaviest": heaviest, "seed": seed, "largest_forward": forward, **said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budget", type=int, default=500)
    args = parser.parse_args()
    machine, X = chosen(args.file, args.dataset)
    result: dict[str, Any] = {
        "dataset": args.dataset,
        "machine": args.file.stem,
        "n_components": int(machine.size),
        "budget": args.budget,
        "known_weight_of_examples": modes.known_weight(machine, X),
        "largest_of_examples": float(modes.minus_free_energy(machine, X).max()),
        "estimates": [],
    }
    for heaviest in (0, NOW):
        for seed in range(args.seeds):
            row = estimated(machine, X, heaviest, seed, args.budget)
            result["estimates"].append(row)
            print(heaviest, seed, *(f"{row[name]:.2f}" for name in ("largest_forward", "lower", "upper")), flush=True)
    write_json(Path("results/heaviest.json"), {**result, **stamp("cpu")})


if __name__ == "__main__":
    main()
