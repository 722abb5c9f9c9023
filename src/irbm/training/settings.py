"""What a user may choose about training, with every check on it."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

Rule = tuple[Callable[[Any], bool], str]


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and _finite(value)


COUNT: Rule = (_is_count, "a whole number >= 1")
COUNT_OR_NONE: Rule = (lambda v: v is None or _is_count(v), "None or a whole number >= 1")
POSITIVE: Rule = (lambda v: _is_number(v) and v > 0, "a finite number > 0")
POSITIVE_OR_NONE: Rule = (lambda v: v is None or (_is_number(v) and v > 0), "None or a finite number > 0")
NOT_NEGATIVE: Rule = (lambda v: _is_number(v) and v >= 0, "a finite number >= 0")
FLAG: Rule = (lambda v: isinstance(v, bool), "True or False")
REGROUP: Rule = (
    lambda v: v is None or (isinstance(v, str) and v == "adaptive") or (_is_number(v) and 0 <= v <= 1),
    "'adaptive', a fraction in 0..1, or None",
)


def one_of(*names: str) -> Rule:
    return (lambda v: isinstance(v, str) and v in names, "one of " + ", ".join(map(repr, names)))


RULES: dict[str, Rule] = {
    "n_iter": COUNT,
    "batch_size": COUNT,
    "learning_rate": POSITIVE,
    "optimizer": one_of("adagrad", "constant", "decay"),
    "momentum": FLAG,
    "averaging": COUNT_OR_NONE,
    "l1": NOT_NEGATIVE,
    "l2": NOT_NEGATIVE,
    "max_norm": POSITIVE_OR_NONE,
    "label_max_norm": POSITIVE_OR_NONE,
    "gibbs_steps": COUNT,
    "persistent": FLAG,
    "n_chains": COUNT_OR_NONE,
    "gradient": one_of("expected", "sampled"),
    "regroup": REGROUP,
    "max_components": COUNT_OR_NONE,
    "objective": one_of("generative", "discriminative", "hybrid"),
    "alpha": NOT_NEGATIVE,
}


def check_fields(settings: Any, rules: dict[str, Rule]) -> None:
    """Every field of a frozen dataclass against its rule."""
    for field in fields(settings):
        accepts, words = rules[field.name]
        value = getattr(settings, field.name)
        if isinstance(value, np.generic):  # as a search over an array gives them
            value = value.item()
            object.__setattr__(settings, field.name, value)
        if not accepts(value):
            raise ValueError(f"{field.name} must be {words}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. The estimators' documentation says what each name means."""

    n_iter: int = 50
    batch_size: int = 100
    learning_rate: float = 0.05
    optimizer: str = "adagrad"
    momentum: bool = False
    averaging: int | None = None
    l1: float = 1e-4
    l2: float = 0.0
    max_norm: float | None = 10.0
    label_max_norm: float | None = 5.0
    gibbs_steps: int = 10
    persistent: bool = True
    n_chains: int | None = None
    gradient: str = "expected"
    regroup: str | float | None = "adaptive"
    max_components: int | None = None
    objective: str = "generative"
    alpha: float = 0.005

    def __post_init__(self) -> None:
        check_fields(self, RULES)
        if self.n_chains is not None and not self.persistent:
            raise ValueError(f"n_chains={self.n_chains} needs persistent=True: CD starts one chain at each example")
