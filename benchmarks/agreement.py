"""How often both sides of a path say something within half a nat, and how often wrongly: the rule, and that of before.

``python -m benchmarks.agreement`` makes up log-weights of some hundred or thousand chains a side whose ln Z is 0:
chains that come back from exact samples; from what the forward chains came to, resampled, with modes that do not mix;
and from starts that are no samples, so that what they say is off by some tenths of a nat, either way: one kind of the
two that make the value, both, the kind that is only asked, or all. It writes results/agreement.json: for each, by the
rule of before and by the one of now, the shares of all rounds that are definite and whose range is half a nat at most,
and of those that miss 0 besides; and the mean width.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irbm.evaluation import bridge as both
from irbm.evaluation.bridge import Bridge
from irbm.evaluation.estimate import ERRORS, LEAST_ESS, RELIABLE_WIDTH
from irbm.experiments.results import stamp, write_json


@dataclass(frozen=True)
class Run:
    """All that a bridge asks of an estimate."""

    log_weights: Tensor
    family_B: Tensor | None = None


Made = tuple[Any, list[Any], list[Any]]  # runs: forward; back, from what the forward chains came to; from elsewhere
Case = Callable[[np.random.Generator], Made]


def _run(log_weights: np.ndarray, family: np.ndarray | None = None) -> Run:
    return Run(torch.from_numpy(log_weights), None if family is None else torch.from_numpy(family))


def starts(
    draw: np.random.Generator, spread: float, off: tuple[float, float, float] = (0, 0, 0), chains: int = 400
) -> Made:
    """Normal log-weights that obey p_back(x) = p_forward(x) e^x, but for starts that are ``off``, either way."""
    off = tuple(np.array(off) * draw.choice([-1, 1]))
    ahead = _run(draw.normal(-(spread**2) / 2, spread, chains))
    first, second, third = (_run(-draw.normal(spread**2 / 2 + by, spread, chains)) for by in off)
    return ahead, [first, second], [third]


def modes(draw: np.random.Generator, slow: float, fast: float) -> Made:
    """Log-weights of two parts: of the mode, which chains keep on their way back, and of all that they forget."""
    chains = 400
    mode = draw.normal(-(slow**2) / 2, slow, chains)
    ahead = mode + draw.normal(-(fast**2) / 2, fast, chains)
    share = np.exp(ahead - ahead.max())

    def back() -> Run:
        family = draw.choice(chains, chains, p=share / share.sum())
        return _run(-(mode[family] + draw.normal(fast**2 / 2, fast, chains)), family)

    return _run(ahead), [back(), back()], []


def biased(o: float, *, which: tuple[int, int, int], spread: float = 1.5, chains: int = 400) -> Case:
    return partial(starts, spread=spread, off=tuple(o * one for one in which), chains=chains)


ONE, BOTH, ASKED, ALL = (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)
CASES: dict[str, Case] = {
    "exact samples, spread 1": partial(starts, spread=1),
    "exact samples, spread 2, 3200 chains": partial(starts, spread=2, chains=3200),
    "exact samples, spread 2.5, 6400 chains": partial(starts, spread=2.5, chains=6400),
    "modes of spread 0.5, and 1": partial(modes, slow=0.5, fast=1),
    **{f"one kind off by {o}": biased(o, which=ONE) for o in (0.15, 0.3, 0.6)},
    **{f"both kinds off by {o}": biased(o, which=BOTH) for o in (0.15, 0.3, 0.6)},
    **{f"the kind asked off by {o}": biased(o, which=ASKED) for o in (0.15, 0.3, 0.6)},
    **{f"all off by {o}": biased(o, which=ALL) for o in (0.15, 0.3, 0.6)},
    "both kinds off by 0.1, 3200 chains": biased(0.1, which=BOTH, chains=3200),
    "both kinds off by 0.3, 3200 chains": biased(0.3, which=BOTH, chains=3200),
    "all off by 0.1, 3200 chains": biased(0.1, which=ALL, chains=3200),
    "all off by 0.3, spread 2.5, 6400 chains": biased(0.3, which=ALL, spread=2.5, chains=6400),
}


def now(made: Made) -> Bridge:
    ahead, back, apart = made
    return both.bridge(ahead, back, ERRORS, apart)


def before(made: Made) -> Bridge:
    """Other c within two errors, kinds of start within three, or nothing; the range reaches one beyond."""
    agrees, kept = now(made).shifts_agree, (both.AGREED, both.BEYOND, both.UNEXPLAINED)
    both.AGREED, both.BEYOND, both.UNEXPLAINED = 3.0, 1.0, 1.0
    found = now(made)
    both.AGREED, both.BEYOND, both.UNEXPLAINED = kept
    return found._replace(shifts_agree=agrees and found.starts_agree)


RULES: dict[str, Callable[[Made], Bridge]] = {"before": before, "now": now}


def tried(case: Case, rule: Callable[[Made], Bridge], repeats: int) -> dict[str, float]:
    """The same made-up runs for every rule."""
    found = [rule(case(draw)) for draw in _draws(repeats)]
    definite = [one for one in found if one.ess >= LEAST_ESS and one.shifts_agree]
    narrow = [one for one in definite if one.high - one.low <= RELIABLE_WIDTH]
    return {
        "narrow": len(narrow) / repeats,
        "wrong": sum(not one.low <= 0 <= one.high for one in narrow) / repeats,
        "width": float(np.mean([one.high - one.low for one in narrow])) if narrow else 0.0,
    }


def _draws(repeats: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    cases = {}
    for name, case in CASES.items():
        cases[name] = {rule: tried(case, RULES[rule], repeats) for rule in RULES}
        said = (f"{r['narrow']:.2f}, wrong {r['wrong']:.3f}, {r['width']:.2f} wide" for r in cases[name].values())
        print(f"{name:40}", *said, sep="  ", flush=True)
    write_json(Path("results/agreement.json"), {"repeats": repeats, "cases": cases, **stamp("cpu")})


if __name__ == "__main__":
    main()
