"""Products with rows of 0 and 1 on a CPU: BLAS's, or those by look-up of ``irbm.ops.compiled.tables``.

Upward (v W.T), downward (h W) and the gradient of the weights, at several sizes, whether tables are taken there or not;
with the largest errors against float64, as shares of the results' root mean square. Upward products need the weights
transposed, in training once a step: without that and with it.

``python -m benchmarks.table_products`` writes results/table_products.json.
"""

import argparse
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from irbm.bench.cases import hardware
from irbm.bench.timing import interleaved
from irbm.experiments.results import stamp, write_json
from irbm.ops.compiled import Tables, outer, tables

SIZES = ((784, 500), (784, 2000), (256, 200), (64, 100))  # visible and hidden units
ROWS = (32, 100, 200, 1000)
SEED, SHARE_ON = 0, 0.2
AT_ONCE = 4e9  # multiplications, or so, timed together: the first of them wake threads


def compared(D: int, K: int, B: int, repetitions: int) -> list[dict[str, Any]]:
    make = torch.Generator().manual_seed(SEED)
    v_BD, h_BK = ((torch.rand(B, n, generator=make) < SHARE_ON).float() for n in (D, K))
    on_BK, W_KD = torch.rand(B, K, generator=make), 0.3 * torch.randn(K, D, generator=make)
    up, down = Tables(W_KD.T, torch.zeros(K)), Tables(W_KD, torch.zeros(D))
    products: dict[str, tuple[Tensor, Tensor, Callable[[], Tensor], bool]] = {
        "upward": (v_BD, W_KD.T, lambda: up.linear(v_BD), tables.gain(B, W_KD.T)),
        "upward, transposed first": (
            v_BD, W_KD.T, lambda: Tables(W_KD.T, torch.zeros(K)).linear(v_BD), tables.gain(B, W_KD.T)
        ),
        "downward": (h_BK, W_KD, lambda: down.linear(h_BK), tables.gain(B, W_KD)),
        "gradient": (on_BK.T, v_BD, lambda: outer(on_BK, v_BD), tables.gain(D, on_BK)),
    }  # fmt: skip
    return [
        {"name": name, "D": D, "K": K, "B": B, "taken": taken, **_timed(one, other, ours, repetitions)}
        for name, (one, other, ours, taken) in products.items()
    ]


def _timed(one: Tensor, other: Tensor, ours: Callable[[], Tensor], repetitions: int) -> dict[str, Any]:
    exact = one.double() @ other.double()
    calls = {"tables": ours, "BLAS": partial(torch.mm, one, other)}
    with patch.object(tables, "gain", lambda rows, matrix: True):
        errors = {
            who: float((call() - exact).abs().max() / exact.square().mean().sqrt()) for who, call in calls.items()
        }
        n = max(1, min(2000, int(AT_ONCE / (one.numel() * other.shape[1]))))
        repeated = {who: (partial(_again, call, n), n) for who, call in calls.items()}
        timed = interleaved(repeated, repetitions, torch.device("cpu"))
    return {"seconds": {who: timing._asdict() for who, timing in timed.items()}, "largest_error": errors}


def _again(call: Callable[[], Tensor], n: int) -> None:
    for _ in range(n):
        call()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    args = parser.parse_args()
    rows = []
    for D, K in SIZES:
        for B in ROWS:
            for row in compared(D, K, B, args.repetitions):
                seconds, error = row["seconds"], row["largest_error"]
                ratio = seconds["tables"]["median"] / seconds["BLAS"]["median"]
                print(
                    f"{D} x {K}, {B} rows, {row['name']}: {seconds['tables']['median'] * 1e6:.0f} us, {ratio:.2f} of "
                    f"BLAS's; errors {error['tables']:.1e} and {error['BLAS']:.1e}",
                    "" if row["taken"] else "(not taken)",
                    flush=True,
                )
                rows.append(row)
    about: dict[str, Any] = {"seed": SEED, "hardware": hardware(torch.device("cpu")), **stamp("cpu")}
    about["versions"]["numba"] = version("numba")
    write_json("results/table_products.json", {"rows": rows, **about})


if __name__ == "__main__":
    main()
