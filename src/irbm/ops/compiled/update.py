"""One AdaGrad step: a pass over each matrix, and one over both biases."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
from torch import Tensor

from irbm.ops.compiled.elementary import F32, LARGEST, ONE, ZERO
from irbm.ops.compiled.loops import Kernel, array, inlined, jit, prange, reassociated


@inlined
def _descended(weight, slope, squares, young, rate, epsilon):
    """A parameter after one AdaGrad step, at the plain rate while it is young."""
    return weight - rate * slope / (ONE if young else np.sqrt(squares) + epsilon)


@jit
def _descend(weight_D, gradient_D, squares_D, young, rate, threshold, l2, epsilon):
    """One row of an AdaGrad step; then the soft threshold of L1."""
    for j in range(len(weight_D)):
        slope = gradient_D[j] + l2 * weight_D[j]
        squares = squares_D[j] + slope * slope
        moved = _descended(weight_D[j], slope, squares, young, rate, epsilon)
        # Comparisons that are false for NaN keep it.
        shrunk = abs(moved) - threshold
        shrunk = ZERO if shrunk < ZERO else shrunk
        weight_D[j] = -shrunk if moved < ZERO else shrunk
        squares_D[j] = squares


@reassociated
def _squared_norm(weight_D):
    total = ZERO
    for j in range(len(weight_D)):
        total += weight_D[j] * weight_D[j]
    return total


@jit
def _update_rows(
    first, last, weight_KD, gradient_KD, squares_KD, age_K, warm_up, rate, threshold, l2, max_norm, epsilon
):
    for i in range(first, last):
        young = age_K[i] < warm_up
        _descend(weight_KD[i], gradient_KD[i], squares_KD[i], young, rate, threshold, l2, epsilon)
        norm = np.sqrt(_squared_norm(weight_KD[i]))
        if norm > max_norm:
            factor = max_norm / norm
            for j in range(weight_KD.shape[1]):
                weight_KD[i, j] *= factor


def _update_parts(n, parts, *rest):
    for p in prange(parts):
        _update_rows(n * p // parts, n * (p + 1) // parts, *rest)


_update = Kernel(_update_rows, _update_parts)


def update_weights_(
    parameter_KD: Tensor,
    gradient_KD: Tensor,
    squares_KD: Tensor,
    age_K: Tensor,
    lr: float,
    l1: float,
    l2: float,
    max_norm: float | None,
    *,
    warm_up: int,
    epsilon: float,
) -> None:
    """One AdaGrad step of a matrix whose rows belong to hidden units, with L2, the L1 threshold and the row norm.

    Changes the parameter and its sum of squares. Rows younger than ``warm_up`` move at the plain rate.
    """
    rate = _rate(lr)
    threshold = F32(rate * F32(l1)) if l1 else ZERO  # an infinite rate is no factor of 0
    _update(
        parameter_KD.numel(), parameter_KD.shape[0], parameter_KD.numpy(), array(gradient_KD), squares_KD.numpy(),
        array(age_K), warm_up,
        rate, threshold, F32(l2), F32(np.inf if max_norm is None else max_norm), F32(epsilon),
    )  # fmt: skip


def _rate(lr: float) -> np.float32:
    """Infinite beyond float32: the trainer finds parameters that ran away, and no warning comes before it."""
    return F32(lr if lr <= LARGEST else np.inf)


@jit
def _update_biases(
    hidden_K, hidden_gradient_K, hidden_squares_K, visible_D, visible_gradient_D, visible_squares_D,
    age_K, size, step, rate, warm_up, epsilon,
):  # fmt: skip
    for i in range(len(hidden_K)):
        slope = hidden_gradient_K[i]
        hidden_squares_K[i] += slope * slope
        hidden_K[i] = _descended(hidden_K[i], slope, hidden_squares_K[i], age_K[i] < warm_up, rate, epsilon)
    _descend(visible_D, visible_gradient_D, visible_squares_D, False, rate, ZERO, ZERO, epsilon)
    age_K[:size] += 1
    step[0] += 1


def update_biases_(
    hidden: tuple[Tensor, Tensor, Tensor], visible: tuple[Tensor, Tensor, Tensor],
    age_K: Tensor, size: Tensor, step: Tensor, lr: float, *, warm_up: int, epsilon: float,
) -> None:  # fmt: skip
    """One AdaGrad step of both biases, each given with its gradient and sum of squares; then all count as a step older.

    Hidden biases follow the ages of their units as weights do, so these must have had their turn already.
    """
    _update_biases(
        *(t.numpy() for t in (*hidden, *visible, age_K)), int(size), step.numpy().reshape(1), _rate(lr), warm_up,
        F32(epsilon),
    )  # fmt: skip
