"""How often both sides of a path are definite, and how often their range misses ln Z, by how closely looks must agree.

``python -m benchmarks.agreement`` makes up log-weights of 400 chains a side whose ln Z is 0: chains that come back
from exact samples; from what the forward chains came to, resampled, with modes that do not mix; and from starts that
are no samples, so that what they say is off by some tenths of a nat: one kind of the two that make the value, both,
or the kind that is only asked. It writes results/agreement.json: for each, and for each pair of AGREED and BEYOND of
``irbm.evaluation.bridge``, the share of rounds that are definite, of these the share whose range misses 0, and the
range's mean width.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from irbm.evaluation import bridge as both
from irbm.evaluation.estimate import ERRORS, LEAST_ESS
from irbm.experiments.results import stamp, write_json

CHAINS = 400
RULES = [(2.0, 1.0), (3.0, 1.0), (both.AGREED, both.BEYOND)]


@dataclass(frozen=True)
class Run:
    """All that a bridge asks of an estimate."""

    log_weights: Tensor
    family_B: Tensor | None = None


Made = tuple[Run, list[Run], list[Run]]  # forward; back, from what the forward chains came to; back, from elsewhere


def _run(log_weights: np.ndarray, family: np.ndarray | None = None) -> Run:
    return Run(torch.from_numpy(log_weights), None if family is None else torch.from_numpy(family))


def starts(draw: np.random.Generator, spread: float, off: tuple[float, float, float] = (0, 0, 0)) -> Made:
    """Normal log-weights that obey p_back(x) = p_forward(x) e^x, but for starts that are ``off``."""
    ahead = _run(draw.normal(-(spread**2) / 2, spread, CHAINS))
    first, second, third = (_run(-draw.normal(spread**2 / 2 + by, spread, CHAINS)) for by in off)
    return ahead, [first, second], [third]


def modes(draw: np.random.Generator, slow: float, fast: float) -> Made:
    """Log-weights of two parts: of the mode, which chains keep on their way back, and of all that they forget."""
    mode = draw.normal(-(slow**2) / 2, slow, CHAINS)
    ahead = mode + draw.normal(-(fast**2) / 2, fast, CHAINS)
    share = np.exp(ahead - ahead.max())

    def back() -> Run:
        family = draw.choice(CHAINS, CHAINS, p=share / share.sum())
        return _run(-(mode[family] + draw.normal(fast**2 / 2, fast, CHAINS)), family)

    return _run(ahead), [back(), back()], []


CASES: dict[str, Callable[[np.random.Generator], Made]] = {
    **{f"exact samples, spread {s}": partial(starts, spread=s) for s in (1, 2, 3)},
    **{f"modes of spread {s}, and {f}": partial(modes, slow=s, fast=f) for s, f in ((0.5, 1), (1, 1), (1, 2))},
    **{f"one kind off by {o}": partial(starts, spread=1.5, off=(0, o, 0)) for o in (0.15, 0.3, 0.6)},
    **{f"both kinds off by {o}": partial(starts, spread=1.5, off=(o, o, 0)) for o in (0.15, 0.3, 0.6)},
    **{f"all off by {o}": partial(starts, spread=1.5, off=(o, o, o)) for o in (0.15, 0.3, 0.6)},
}


def tried(case: Callable[[np.random.Generator], Made], rule: tuple[float, float], repeats: int) -> dict[str, float]:
    """The same made-up runs for every rule."""
    both.AGREED, both.BEYOND = rule
    found = [both.bridge(ahead, back, ERRORS, apart) for ahead, back, apart in map(case, _draws(repeats))]  # type: ignore[arg-type]
    definite = [one for one in found if one.agrees and one.ess >= LEAST_ESS]
    return {
        "agreed": rule[0],
        "beyond": rule[1],
        "definite": len(definite) / repeats,
        "missed": float(np.mean([not one.low <= 0 <= one.high for one in definite])) if definite else 0.0,
        "width": float(np.mean([one.high - one.low for one in definite])) if definite else 0.0,
    }


def _draws(repeats: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    repeats = parser.parse_args().repeats
    cases = {name: [tried(case, rule, repeats) for rule in RULES] for name, case in CASES.items()}
    for name, rows in cases.items():
        said = (f"{r['definite']:.2f} definite, {r['missed']:.3f} missed, {r['width']:.2f} wide" for r in rows)
        print(f"{name:28}", *said, sep="  ")
    write_json(Path("results/agreement.json"), {"chains": CHAINS, "repeats": repeats, "cases": cases, **stamp("cpu")})


if __name__ == "__main__":
    main()
