"""The product v W.T of annealing on a GPU: float32's, or as exact a one from bfloat16 parts on tensor cores.

0 and 1 are exact in bfloat16, and three parts of 8 bits and a sign hold every bit of a float32 weight. Their products
are taken one by one and added up, or together: [v v v] times the parts one below the other. ``irbm.ops.parts`` takes
them one by one, each added to those before it as it is written, padded to multiples of 8, with a bias.
Two parts, as in training, leave 2^-16.

``python -m benchmarks.annealing_products`` writes results/annealing_products.json.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from irbm.bench.cases import hardware
from irbm.bench.steps import recorded
from irbm.bench.timing import interleaved
from irbm.experiments.results import stamp, write_json
from irbm.ops.parts import Parts, split

DEVICE, D = "cuda", 784
CHAINS, UNITS = (533, 1600, 6400), (400, 640, 827, 1700)  # a pilot's, the first rounds', the last ones'
SHARE_ON = 0.2


def together(v_BD: Tensor, parts_PK: Tensor, n: int) -> Tensor:
    """One product of n D terms."""
    return torch.mm(v_BD.bfloat16().repeat(1, n), parts_PK, out_dtype=torch.float32)


def one_by_one(v_BD: Tensor, parts_DK: list[Tensor]) -> Tensor:
    """A product for each part, added up in float32."""
    v_BD = v_BD.bfloat16()
    total_BK = torch.mm(v_BD, parts_DK[0], out_dtype=torch.float32)
    for part_DK in parts_DK[1:]:
        total_BK += torch.mm(v_BD, part_DK, out_dtype=torch.float32)
    return total_BK


def candidates(v_BD: Tensor, weights_KD: Tensor) -> dict[str, Callable[[], Tensor]]:
    found: dict[str, Callable[[], Tensor]] = {"float32": partial(torch.mm, v_BD, weights_KD.T)}
    for n in (2, 3):
        parts = split(weights_KD, n)
        below_PK = torch.cat(parts, dim=1).T  # (n D, K)
        found[f"{n} parts, together"] = partial(together, v_BD, below_PK, n)
        found[f"{n} parts, one by one"] = partial(one_by_one, v_BD, [part.T for part in parts])
    bias_K = weights_KD.new_zeros(len(weights_KD))
    found["as annealing takes them"] = partial(Parts(weights_KD.T, bias_K).linear, v_BD)  # three, padded, from a bias
    return found


def compared(B: int, K: int, repetitions: int) -> dict[str, Any]:
    make = torch.Generator(DEVICE).manual_seed(0)
    v_BD = (torch.rand(B, D, device=DEVICE, generator=make) < SHARE_ON).float()
    weights_KD = 0.3 * torch.randn(K, D, device=DEVICE, generator=make)
    exact_BK = v_BD.double() @ weights_KD.double().T
    calls, errors = {}, {}
    for name, call in candidates(v_BD, weights_KD).items():
        try:
            errors[name] = float((call().double() - exact_BK).abs().max() / exact_BK.square().mean().sqrt())
            calls[name] = (recorded(call, DEVICE), 1)  # as annealing takes its steps
        except (RuntimeError, TypeError) as error:  # of torch without it
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    timed = {name: timing._asdict() for name, timing in interleaved(calls, repetitions, DEVICE).items()}
    for name, error in errors.items():
        said = f"{timed[name]['median'] * 1e6:.0f} us, error {error:.1e}" if name in timed else error
        print(f"{B} chains, {K} units, {name}: {said}", flush=True)
    return {"B": B, "K": K, "D": D, "seconds": timed, "largest_error": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=50)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("it needs a GPU")
    rows = [compared(B, K, args.repetitions) for B in CHAINS for K in UNITS]
    about = {"hardware": hardware(torch.device(DEVICE)), **stamp(DEVICE)}
    write_json("results/annealing_products.json", {"rows": rows, **about})


if __name__ == "__main__":
    main()
