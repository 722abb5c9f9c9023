"""What an estimate of ln Z makes of a machine with one state that outweighs the rest, with and without a part for it.

``python -m benchmarks.heaviest CHOSEN.safetensors --dataset NAME`` takes a file as ``benchmarks.starts`` does, and
looks for ln Z from several seeds with a small budget: with no parts of the base for the heaviest states, and with those
there are now. It writes results/heaviest.json: each estimate with the largest forward value of its runs, the
heaviest example, and what the states weigh that have parts.
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
from irbm.ops.noise import uniform_noise

NOW = modes.HEAVIEST


def singles(machine: Machine, X: torch.Tensor, heaviest: int) -> list[float]:
    """What the states weigh that have a part of the base for themselves, in the first round."""
    modes.HEAVIEST = heaviest
    found_BD = modes.hunt(machine, X.mean(0), X, uniform_noise(0, 0))
    states_BD = torch.cat([found_BD, modes.heaviest(machine, found_BD, X)])
    return modes.minus_free_energy(machine, modes._missed(machine, states_BD, *modes._fitted(found_BD, 0))).tolist()


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
    weight_N = modes.minus_free_energy(machine, X)
    result: dict[str, Any] = {
        "dataset": args.dataset,
        "machine": args.file.stem,
        "n_components": int(machine.size),
        "budget": args.budget,
        "heaviest_example": {"row": int(weight_N.argmax()), "weight": float(weight_N.max())},
        "singles": {heaviest: singles(machine, X, heaviest) for heaviest in (0, NOW)},
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
