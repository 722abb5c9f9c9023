"""Update rules: the rate, the momentum, what keeps weights small, averages. All state is per unit and padded.

Parameters are visited by name; rows of ``ROWS`` belong to hidden units and follow the units' own ages.
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from irbm.models import Gradients, Machine
from irbm.ops import dispatch
from irbm.training.settings import Settings

ROWS = ("weights", "hidden_bias", "label_weights")
WEIGHTS = ("weights", "label_weights")
# Updates of a new unit at the plain rate, before AdaGrad's sum of squares means anything. Growth runs away with fewer
# where chains decide it; labels hold it back, and classifiers learn sooner with fewer.
WARM_UP = {"generative": 20, "discriminative": 10, "hybrid": 10}
DECAY_STEPS = 1000  # the decaying rate has halved after so many steps
MOMENTUM_STEPS = 1000  # updates over which a unit's momentum rises
FIRST_MOMENTUM, LAST_MOMENTUM = 0.5, 0.9
EPSILON = 1e-8


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """Sums of squared gradients, velocities, averages, ages of units, and the step count: all on the device."""

    squares: dict[str, Tensor]
    velocity: dict[str, Tensor]
    means: dict[str, Tensor]  # of the parameters over their last updates; none where nothing is averaged
    averaged: Tensor  # updates since the averages began, 0-dimensional int64
    age_K: Tensor  # updates each unit has had, int64
    step: Tensor  # updates altogether, 0-dimensional int64

    def tensors(self) -> dict[str, Tensor]:
        named = {f"squares.{n}": t for n, t in self.squares.items()}
        named |= {f"velocity.{n}": t for n, t in self.velocity.items()}
        if self.means:
            named |= {f"means.{n}": t for n, t in self.means.items()} | {"averaged": self.averaged}
        return named | {"age": self.age_K, "step": self.step}

    def with_capacity(self, capacity: int) -> "OptimizerState":
        """The same state padded, or cut back to a capacity that holds every unit ever trained."""

        def resized(sums: dict[str, Tensor]) -> dict[str, Tensor]:
            return {n: _resized(t, capacity) if n in ROWS else t for n, t in sums.items()}

        return replace(
            self,
            squares=resized(self.squares),
            velocity=resized(self.velocity),
            means=resized(self.means),
            age_K=_resized(self.age_K, capacity),
        )


def initial_state(machine: Machine, settings: Settings) -> OptimizerState:
    """Nothing learned yet."""
    none = torch.zeros_like(machine.size)
    empty = OptimizerState({}, {}, {}, none, age_K=torch.zeros_like(machine.order), step=none.clone())
    return suited(empty, machine, settings)


def suited(state: OptimizerState, machine: Machine, settings: Settings) -> OptimizerState:
    """The state with the sums that these settings need: kept where they are there, else begun."""
    parameters = {n: t for n, t in machine.tensors().items() if t.is_floating_point()}

    def zeros() -> dict[str, Tensor]:
        return {n: torch.zeros_like(t) for n, t in parameters.items()}

    return replace(
        state,
        squares=(state.squares or zeros()) if settings.optimizer == "adagrad" else {},
        velocity=(state.velocity or zeros()) if settings.momentum else {},
        means=(state.means or {n: t.clone() for n, t in parameters.items()}) if settings.averaging else {},
        averaged=state.averaged if state.means and settings.averaging else torch.zeros_like(state.step),
    )


def rate(settings: Settings, step: Tensor) -> Tensor:
    """The global rate at a step: constant, or proportional to 1 / t."""
    full = torch.full_like(step, settings.learning_rate, dtype=torch.float64)
    return full / (1 + step.double() / DECAY_STEPS) if settings.optimizer == "decay" else full


def update_(machine: Machine, state: OptimizerState, gradients: Gradients, settings: Settings) -> None:
    """One descent step along the gradients, in place, within the constraints on weights."""
    kernels = dispatch.updates(machine.weights)
    if kernels is not None and state.squares and not state.velocity:
        _update_by_(kernels, machine, state, gradients, settings)
    else:
        _update_each_(machine, state, gradients, settings)
    if settings.averaging:
        _average_(machine, state, settings.averaging)


def averaged(machine: Machine, state: OptimizerState) -> Machine:
    """The machine that is kept: with the averages of its parameters where there are some, else as it is."""
    kept: dict[str, Any] = dict(state.means)
    return replace(machine, **kept)


def _average_(machine: Machine, state: OptimizerState, updates: int) -> None:
    """Move the averages by 1 / updates of the way to the parameters.

    What is younger, a unit or the averages themselves, has an average over its whole life.
    """
    state.averaged.add_(1)
    weight = 1 / state.averaged.clamp(max=updates).to(machine.weights.dtype)
    weight_K = torch.maximum(weight, 1 / state.age_K.clamp(min=1).to(machine.weights.dtype))
    for name, mean in state.means.items():
        mean.lerp_(getattr(machine, name), _by_row(weight_K, mean) if name in ROWS else weight)


def _update_each_(machine: Machine, state: OptimizerState, gradients: Gradients, settings: Settings) -> None:
    """The update in plain torch, parameter by parameter."""
    lr = rate(settings, state.step).to(machine.weights.dtype)
    for name, gradient in gradients._asdict().items():
        if gradient is None:
            continue
        if name in WEIGHTS:
            _update_weights_(name, getattr(machine, name), gradient, lr, state, settings)
        else:
            getattr(machine, name).sub_(_descent(name, gradient, lr, state, settings))  # no bias is kept small
    state.age_K.add_(machine.trained.long())
    state.step.add_(1)


def _update_weights_(
    name: str, weights: Tensor, gradient: Tensor, lr: Tensor, state: OptimizerState, settings: Settings
) -> None:
    """Descent with L2; then L1 by soft threshold at the global rate, so that weights reach zero; then the row norms."""
    bound = _bound(name, settings)
    if settings.l2:
        gradient = gradient + settings.l2 * weights
    weights.sub_(_descent(name, gradient, lr, state, settings))
    if settings.l1:
        weights.copy_(torch.sign(weights) * (weights.abs() - lr * settings.l1).clamp(min=0))
    if bound is not None:
        weights.mul_(bound / weights.norm(dim=1, keepdim=True).clamp(min=bound))


def _bound(name: str, settings: Settings) -> float | None:
    """The largest norm a row may have."""
    return settings.max_norm if name == "weights" else settings.label_max_norm


def _update_by_(
    kernels: ModuleType, machine: Machine, state: OptimizerState, gradients: Gradients, settings: Settings
) -> None:
    """The same for AdaGrad by one kernel for each matrix and one for both biases."""
    lr = settings.learning_rate

    def of(name: str) -> tuple[Tensor, Tensor, Tensor]:
        return getattr(machine, name), getattr(gradients, name).contiguous(), state.squares[name]

    for name in WEIGHTS:
        if getattr(gradients, name) is not None:
            kernels.update_weights_(
                *of(name), state.age_K, lr, settings.l1, settings.l2, _bound(name, settings),
                warm_up=WARM_UP[settings.objective], epsilon=EPSILON,
            )  # fmt: skip
    if gradients.label_bias is not None and machine.label_bias is not None:
        machine.label_bias.sub_(_descent("label_bias", gradients.label_bias, lr, state, settings))
    kernels.update_biases_(
        of("hidden_bias"), of("visible_bias"), state.age_K, machine.size, state.step, lr,
        warm_up=WARM_UP[settings.objective], epsilon=EPSILON,
    )  # fmt: skip


def _descent(name: str, gradient: Tensor, lr: Tensor | float, state: OptimizerState, settings: Settings) -> Tensor:
    """What one update subtracts from a parameter."""
    move = lr * gradient
    if state.squares:
        squares = state.squares[name].addcmul_(gradient, gradient)
        adapted = move / (squares.sqrt() + EPSILON)
        if name in ROWS:
            young_K = state.age_K < WARM_UP[settings.objective]
            adapted = torch.where(_by_row(young_K, move), move, adapted)
        move = adapted
    if state.velocity:
        age = _by_row(state.age_K, move) if name in ROWS else state.step
        move = state.velocity[name].mul_(momentum(age).to(move.dtype)).add_(move)
    return move


def momentum(age: Tensor) -> Tensor:
    """From 0.5 for a new unit to 0.9 for one of a thousand updates, in a straight line. Sec. 4.3."""
    grown = (age.double() / MOMENTUM_STEPS).clamp(max=1.0)
    return FIRST_MOMENTUM + (LAST_MOMENTUM - FIRST_MOMENTUM) * grown


def _by_row(values_K: Tensor, like: Tensor) -> Tensor:
    """(K,) shaped to broadcast against the rows of a parameter."""
    return values_K.view(-1, *[1] * (like.dim() - 1))


def _resized(old: Tensor, capacity: int) -> Tensor:
    new = old.new_zeros((capacity, *old.shape[1:]))
    rows = min(capacity, len(old))
    new[:rows] = old[:rows]
    return new
