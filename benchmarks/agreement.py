"""How often both sides of a path are believed, and how often wrongly, by how closely looks must agree.

``python -m benchmarks.agreement`` makes up log-weights of some hundred or thousand chains a side whose ln Z is 0:
chains that come back from exact samples; from what the forward chains came to, resampled, with modes that do not mix;
and from starts that are no samples, so that what they say is off by some tenths of a nat: one kind of the two that make
the value, both, the kind that is only asked, or all. It writes results/agreement.json: for each, and for each rule, the
shares of all rounds that are believed, their range being half a nat at most, and that are believed and miss 0; and the
mean width of what is believed.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from irbm.evaluation import bridge as both
from irbm.evaluation.estimate import ERRORS, LEAST_ESS, RELIABLE_WIDTH
from irbm.experiments.results import stamp, write_json


@dataclass(frozen=True)
class Rule:
    """How far looks may be off, how far ranges reach beyond them, and how much further where they may not."""

    agreed: float
    beyond: float
    unexplained: float  # 0: a round in which looks do not agree says nothing


RULES = {
    "two errors, one beyond": Rule(2.0, 1.0, 0.0),
    "three errors, two beyond": Rule(3.0, 2.0, 0.0),
    "as it is": Rule(both.AGREED, both.BEYOND, both.UNEXPLAINED),
}


@dataclass(frozen=True)
class Run:
    """All that a bridge asks of an estimate."""

    log_weights: Tensor
    family_B: Tensor | None = None


Made = tuple[Run, list[Run], list[Run]]  # forward; back, from what the forward chains came to; back, from elsewhere


def _run(log_weights: np.ndarray, family: np.ndarray | None = None) -> Run:
    return Run(torch.from_numpy(log_weights), None if family is None else torch.from_numpy(family))


def starts(
    draw: np.random.Generator, spread: float, off: tuple[float, float, float] = (0, 0, 0), chains: int = 400
) -> Made:
    """Normal log-weights that obey p_back(x) = p_forward(x) e^x, but for starts that are ``off``."""
    ahead = _run(draw.normal(-(spread**2) / 2, spread, chains))
    first, second, third = (_run(-draw.normal(spread**2 / 2 + by, spread, chains)) for by in off)
    return ahead, [first, second], [third]


def modes(draw: np.random.Generator, slow: float, fast: float, chains: int = 400) -> Made:
    """Log-weights of two parts: of the mode, which chains keep on their way back, and of all that they forget."""
    mode = draw.normal(-(slow**2) / 2, slow, chains)
    ahead = mode + draw.normal(-(fast**2) / 2, fast, chains)
    share = np.exp(ahead - ahead.max())

    def back() -> Run:
        family = draw.choice(chains, chains, p=share / share.sum())
        return _run(-(mode[family] + draw.normal(fast**2 / 2, fast, chains)), family)

    return _run(ahead), [back(), back()], []


OFF = {
    "one kind": lambda o: (0, o, 0),
    "both kinds": lambda o: (o, o, 0),
    "the kind asked": lambda o: (0, 0, o),
    "all": lambda o: (o, o, o),
}
CASES: dict[str, Callable[[np.random.Generator], Made]] = {
    **{f"exact samples, spread {s}": partial(starts, spread=s) for s in (1, 2, 3)},
    **{f"modes of spread {s}, and {f}": partial(modes, slow=s, fast=f) for s, f in ((0.5, 1), (1, 1), (1, 2))},
    **{
        f"{who} off by {o}": partial(starts, spread=1.5, off=off(o))
        for who, off in OFF.items()
        for o in (0.15, 0.3, 0.6)
    },
    "exact samples, spread 2, 3200 chains": partial(starts, spread=2, chains=3200),
    **{
        f"{who} off by {o}, 3200 chains": partial(starts, spread=1.5, off=off(o), chains=3200)
        for who, off in OFF.items()
        for o in (0.05, 0.1, 0.3)
    },
}


def tried(case: Callable[[np.random.Generator], Made], rule: Rule, repeats: int) -> dict[str, float]:
    """The same made-up runs for every rule."""
    both.AGREED, both.BEYOND, both.UNEXPLAINED = rule.agreed, rule.beyond, rule.unexplained or 1.0
    found = [both.bridge(ahead, back, ERRORS, apart) for ahead, back, apart in map(case, _draws(repeats))]  # type: ignore[arg-type]
    said = [one for one in found if one.ess >= LEAST_ESS and (one.agrees or rule.unexplained)]
    believed = [one for one in said if one.high - one.low <= RELIABLE_WIDTH]
    return {
        "believed": len(believed) / repeats,
        "wrong": sum(not one.low <= 0 <= one.high for one in believed) / repeats,
        "width": float(np.mean([one.high - one.low for one in believed])) if believed else 0.0,
    }


def _draws(repeats: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    repeats = parser.parse_args().repeats
    cases = {}
    for name, case in CASES.items():
        cases[name] = {rule: tried(case, RULES[rule], repeats) for rule in RULES}
        said = (f"{r['believed']:.2f}, wrong {r['wrong']:.3f}, {r['width']:.2f} wide" for r in cases[name].values())
        print(f"{name:36}", *said, sep="  ", flush=True)
    rules = {name: asdict(rule) for name, rule in RULES.items()}
    write_json(Path("results/agreement.json"), {"repeats": repeats, "rules": rules, "cases": cases, **stamp("cpu")})


if __name__ == "__main__":
    main()
