"""What the search for modes needs, on a machine that has a mode which few starts lead to: a training example.

``python -m benchmarks.starts CHOSEN.safetensors --dataset NAME`` takes a file of ``OUT/chosen`` that ``irbm reproduce
table1`` left, searches from several seeds with few starts, with few that are swept for longer, with many, and with
units that are asked for their filters several times, all these without the data; then with them, and as the search
is now. It writes results/starts.json: the largest -F(v) of what each finds, beside the largest ones of the examples.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from irbm.evaluation import modes
from irbm.experiments.lab import load
from irbm.experiments.results import stamp, write_json
from irbm.files import read_tensors
from irbm.models import Machine
from irbm.models.build import restore
from irbm.ops.noise import uniform_noise

WAYS = {  # starts, sweeps, how often each unit is asked, whether the data are given
    "512 starts": (512, 100, 1, False),
    "512 starts, 1000 sweeps": (512, 1000, 1, False),
    "4096 starts": (4096, 100, 1, False),
    "1024 starts, units asked 8 times": (1024, 100, 8, False),
    "512 starts, the heaviest examples among them": (512, 100, 1, True),
    "1024 starts, units asked 8 times, examples": (1024, 100, 8, True),
}
LARGEST = 5  # of the examples' that are written down


def chosen(file: Path, dataset: str) -> tuple[Machine, torch.Tensor]:
    """The machine of a file, its units by position, and the training examples."""
    tensors, about = read_tensors(file, "chosen")
    whole = restore(tensors, about["machine"], "cpu")
    return whole.selected(whole.order[: int(whole.size)]), torch.from_numpy(load(dataset).train.X).float()


def searched(machine: Machine, examples: torch.Tensor, way: str, seed: int) -> dict[str, Any]:
    modes.STARTS, modes.SWEEPS, modes.ASKED, with_data = WAYS[way]
    data = (examples.mean(0), examples) if with_data else (None, None)
    began = time.perf_counter()
    found_BD = modes.hunt(machine, *data, uniform_noise(seed, 0))
    seconds = time.perf_counter() - began
    return {"seed": seed, "largest": float((-machine.free_energy(found_BD)).max()), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args()
    machine, X = chosen(args.file, args.dataset)
    largest = torch.topk(modes.minus_free_energy(machine, X), LARGEST)
    result: dict[str, Any] = {
        "dataset": args.dataset,
        "machine": args.file.stem,
        "n_components": int(machine.size),
        "largest_of_examples": dict(zip(largest.indices.tolist(), largest.values.tolist(), strict=True)),  # by row
        "searches": {},
    }
    for way in WAYS:
        rows = [searched(machine, X, way, seed) for seed in range(args.seeds)]
        result["searches"][way] = rows
        print(way, *(f"{row['largest']:.1f}" for row in rows), f"{rows[-1]['seconds']:.1f} s", flush=True)
    write_json(Path("results/starts.json"), {**result, **stamp("cpu")})


if __name__ == "__main__":
    main()
