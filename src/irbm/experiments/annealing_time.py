"""How long annealing takes: 1,000 chains, on a GPU along 10,000 temperatures at 640 hidden units.

``python -m irbm.experiments.annealing_time --device cuda`` writes results/annealing_time_cuda.json; ``cpu`` does the
same for 1,000 temperatures at 200 units on two threads. Time does not depend on what the weights are.
"""

import argparse
import time
from typing import Any

import torch

from irbm.experiments.results import place, stamp, write_json
from irbm.experiments.trust import naive
from irbm.models import Infinite, Machine

VISIBLE, CHAINS = 784, 1000
UNITS = {"cpu": 200, "cuda": 640}
POINTS = {"cpu": 1_000, "cuda": 10_000}
LIMIT = {"cpu": 60.0, "cuda": 5.0}  # seconds
CPU_THREADS = 2


def measure(device: str, n_points: int, repeats: int, seed: int) -> dict[str, Any]:
    """Seconds of whole forward runs, after a short one that compiles what is to be compiled."""
    machine = _machine(UNITS[device], seed).to(device=device)
    naive(machine, machine.visible_bias, 20, CHAINS, seed)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        naive(machine, machine.visible_bias, n_points, CHAINS, seed)  # its value is on the host: the device has ended
        seconds.append(time.perf_counter() - began)
    return {
        "n_visible": VISIBLE,
        "n_hidden": UNITS[device],
        "n_chains": CHAINS,
        "n_points": n_points,
        "seconds": seconds,
        "limit": LIMIT[device],
        "within": max(seconds) <= LIMIT[device],
    }


def _machine(n_hidden: int, seed: int) -> Machine:
    generator = torch.Generator().manual_seed(seed)
    return Machine(
        weights=0.05 * torch.randn(n_hidden, VISIBLE, generator=generator),
        hidden_bias=torch.zeros(n_hidden),
        visible_bias=torch.zeros(VISIBLE),
        order=torch.arange(n_hidden),
        size=torch.tensor(n_hidden),
        depth=Infinite(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(UNITS), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--points", type=int, help="temperatures, to try things out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.device == "cpu":
        torch.set_num_threads(CPU_THREADS)
    found = measure(args.device, args.points or POINTS[args.device], args.repeats, args.seed)
    out = args.out or place(f"annealing_time_{args.device}", tried=args.points is not None)
    write_json(out, {**found, "seed": args.seed, **stamp(args.device)})
    print(found)


if __name__ == "__main__":
    main()
