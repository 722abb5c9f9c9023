"""The hot loop in fused Triton kernels: one launch for each half-step, and one for each matrix's update.

Every function has a slow twin made of the reference operations, with the same signature. The ``*_keyed`` forms take a
key instead of uniforms and draw them inside the kernel; ``hidden_uniforms`` and ``visible_uniforms`` write out exactly
these draws, so that both forms can be compared decision by decision.

Shapes: B examples, R rows of both phases, K hidden units (padding included), D visible units. Inside a kernel names end
in the axis that one program holds: a program owns one row. K runs over positions there, and rows are read and written
through ``order``; where that is None they lie in the order of positions already.

Precision: gains are added up in float64, because t reaches thousands while z is decided by its differences; what is
left after subtracting the largest t is float32, and added up in float32 but where h is sampled: there float64 keeps a
certainty of z from becoming 0.9999999, by which one draw in ten million takes a step that has no probability.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

from typing import get_args

import torch
from torch import Tensor

from irbm.ops.kernels import (
    FOR_HIDDEN,
    FOR_VISIBLE,
    Draws,
    Seed,
    check_readable,
    constexpr,
    given,
    jit,
    key_of,
    row_launch,
    row_uniforms,
    tl,
    triton,
    z_uniform,
)
from irbm.ops.reference import Kind

VISIBLE_BLOCK = 512  # visible columns of one program
BIAS_BLOCK = 256  # biases of one program
FEW_ROWS = 256  # up to here each row has a multiprocessor for itself, or nearly so
HIDDEN_WARPS = {"few rows": 8, "many rows": 4}  # most warps for a row of the hidden half-step


# -- the hidden half-step ---------------------------------------------------------------------------------------


@jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@jit
def phase_share(row, n_positive, n_negative):
    """What a row counts in the gradient to be descended: data are to become likelier, samples of the model less so."""
    return tl.where(row < n_positive, -1.0 / n_positive, 1.0 / n_negative)


@jit
def gains(a_K, beta_K, inside_K):
    """softplus(a) - beta in float64, 0 outside: only the part below ln 2 has passed through float32."""
    rest_K = tl.log(1.0 + tl.exp(-tl.abs(a_K)))
    gain_K = tl.maximum(a_K, 0.0).to(tl.float64) + rest_K.to(tl.float64) - beta_K.to(tl.float64)
    return tl.where(inside_K, gain_K, 0.0)


@jit
def depth(a_K, beta_K, at_K, inside_K, size, tail, KIND: constexpr, CERTAIN: constexpr = False):
    """P(z >= k) at each position, P(z > K), the likeliest z <= l, and ln sum_z e^t in float64. Eqs. 4-5 and 16.

    The first two are float32, or float64 where what is CERTAIN of z is to be certain to the last digit of a uniform.
    """
    gain_K = gains(a_K, beta_K, inside_K)
    if KIND == "fixed":
        reach_K = tl.where(at_K < size, 1.0, 0.0)
        beyond = size.to(tl.float32) * 0.0
        mode = size
        log_sum = tl.sum(tl.where(at_K < size, gain_K, 0.0), 0)
    else:
        t_K = tl.where(inside_K, tl.cumsum(gain_K, 0), float("-inf"))
        trained_K = tl.where(at_K < size, t_K, float("-inf"))
        mode = tl.argmax(trained_K, 0).to(tl.int64) + 1
        if KIND == "infinite":
            t_tail = tl.sum(gain_K, 0) + tail
            peak = tl.maximum(tl.max(t_K, 0), t_tail)
            beyond = tl.exp((t_tail - peak).to(tl.float32))
        else:
            t_K = trained_K
            peak = tl.max(t_K, 0)
            beyond = size.to(tl.float32) * 0.0
        weight_K = tl.exp((t_K - peak).to(tl.float32))
        if CERTAIN:
            weight_K, beyond = weight_K.to(tl.float64), beyond.to(tl.float64)
        total = tl.sum(weight_K, 0) + beyond
        # Summed from the deep end, so that small probabilities keep their digits.
        reach_K = (tl.cumsum(weight_K, 0, reverse=True) + beyond) / total
        reach_K = tl.where(reach_K > 1.0, 1.0, reach_K)
        beyond = beyond / total
        log_sum = peak + tl.log(total).to(tl.float64)
    return reach_K, beyond, mode, log_sum


@jit
def inverted(reach_K, beyond, at_K, inside_K, u):
    """z in 1..K+1 by inversion of P(z >= k), as ``sample_z`` does it."""
    deeper_K = (u < reach_K) & (at_K > 0) & inside_K
    return (1 + tl.sum(deeper_K.to(tl.int32), 0) + (u < beyond).to(tl.int32)).to(tl.int64)


@jit
def units_at(order_K, at_K, inside_K):
    """The unit at each position."""
    unit_K = at_K
    if order_K is not None:
        unit_K = tl.load(order_K + at_K, mask=inside_K, other=0)
    return unit_K


@jit
def _hidden_sample_kernel(
    a_BK, order_K, beta_K, size, tail, u_B, u_BK, seed, stream, z_B, h_BK, K,
    KIND: constexpr, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = units_at(order_K, at_K, inside_K)
    a_K = tl.load(a_BK + row * K + unit_K, mask=inside_K, other=0.0).to(tl.float32)
    penalty_K = tl.load(beta_K + unit_K, mask=inside_K, other=0.0)
    if KEYED:
        key = key_of(seed, BY_POINTER)
        u = z_uniform(key, stream, row)
        u_K = row_uniforms(key, stream, row, 0, FOR_HIDDEN, BLOCK)
    else:
        u = tl.load(u_B + row)
        u_K = tl.load(u_BK + row * K + unit_K, mask=inside_K, other=1.0)
    reach_K, beyond, _, _ = depth(a_K, penalty_K, at_K, inside_K, tl.load(size), tail, KIND, True)
    z = inverted(reach_K, beyond, at_K, inside_K, u)
    on_K = (u_K < sigmoid(a_K)) & (at_K < z)
    tl.store(z_B + row, z)
    tl.store(h_BK + row * K + unit_K, on_K.to(tl.float32).to(h_BK.dtype.element_ty), mask=inside_K)


@jit
def _hidden_reach_kernel(
    a_BK, order_K, beta_K, size, tail, u_B, seed, stream, reach_BK, active_BK, z_B, mode_B, K,
    KIND: constexpr, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = units_at(order_K, at_K, inside_K)
    a_K = tl.load(a_BK + row * K + unit_K, mask=inside_K, other=0.0).to(tl.float32)
    penalty_K = tl.load(beta_K + unit_K, mask=inside_K, other=0.0)
    u = z_uniform(key_of(seed, BY_POINTER), stream, row) if KEYED else tl.load(u_B + row)
    units = tl.load(size)
    reach_K, beyond, mode, _ = depth(a_K, penalty_K, at_K, inside_K, units, tail, KIND)
    tl.store(z_B + row, inverted(reach_K, beyond, at_K, inside_K, u))
    tl.store(mode_B + row, mode)
    tl.store(reach_BK + row * K + unit_K, tl.where(unit_K < units, reach_K, 0.0), mask=inside_K)
    tl.store(active_BK + row * K + unit_K, sigmoid(a_K), mask=inside_K)


@jit
def _hidden_uniforms_kernel(u_B, u_BK, seed, stream, K, BY_POINTER: constexpr, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    key = key_of(seed, BY_POINTER)
    tl.store(u_B + row, z_uniform(key, stream, row))
    tl.store(u_BK + row * K + at_K, row_uniforms(key, stream, row, 0, FOR_HIDDEN, BLOCK), mask=at_K < K)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor | None, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    u_B: Tensor, u_BK: Tensor, dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """z ~ p(z | v) in 1..K+1, then h ~ p(h | v, z) over units: (B,) int64 and (B, K). Eqs. 12 and 16.

    ``a`` and ``beta`` run over units, ``order`` maps position to unit, ``size`` is l on the device. Padding stands
    behind the l trained units in ``order``, which is why ``kind`` can mask by position. ``dtype`` is that of h, and
    bfloat16 is for training's sweeps.
    """
    return _hidden_sample(a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK, None, 0, dtype)


def hidden_sample_keyed(
    a_BK: Tensor, order_K: Tensor | None, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    seed: Seed, stream: int, dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``hidden_sample`` with the draws of ``hidden_uniforms(B, K, seed, stream)``."""
    return _hidden_sample(a_BK, order_K, beta_K, size, kind, tail, None, None, seed, stream, dtype)


def _hidden_sample(
    a_BK: Tensor, order_K: Tensor | None, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    u_B: Tensor | None, u_BK: Tensor | None, seed: Seed | None, stream: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    B, K = _hidden_shape(a_BK, kind, order=order_K, beta=beta_K, u_B=u_B, u_BK=u_BK)
    z_B = torch.empty(B, dtype=torch.int64, device=a_BK.device)
    h_BK = torch.empty_like(a_BK, dtype=dtype)
    with torch.cuda.device_of(a_BK):
        _hidden_sample_kernel[(B,)](
            a_BK, order_K, beta_K, size, tail, u_B, u_BK, seed, stream, z_B, h_BK, K,
            KIND=kind, KEYED=seed is not None, BY_POINTER=isinstance(seed, Tensor), **hidden_launch(B, K),
        )  # fmt: skip
    return z_B, h_BK


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the gradients and the growth need of p(z, h | v). Eqs. 15-16, and 33 of sec. 4.1.

    P(z >= position of i | v) for each unit, 0 for padding, and s(a_i): both (B, K), float32; then z ~ p(z | v) in
    1..K+1 and the first argmax of p(z | v) over z <= l: both (B,), int64.
    """
    return _hidden_reach(a_BK, order_K, beta_K, size, kind, tail, u_B, None, 0)


def hidden_reach_keyed(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, seed: Seed, stream: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``hidden_reach`` with the first draws, those of z, of ``hidden_uniforms(B, K, seed, stream)``."""
    return _hidden_reach(a_BK, order_K, beta_K, size, kind, tail, None, seed, stream)


def _hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    u_B: Tensor | None, seed: Seed | None, stream: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    B, K = _hidden_shape(a_BK, kind, order=order_K, beta=beta_K, u_B=u_B)
    reach_BK, active_BK = (torch.empty(B, K, device=a_BK.device) for _ in range(2))
    z_B, mode_B = (torch.empty(B, dtype=torch.int64, device=a_BK.device) for _ in range(2))
    with torch.cuda.device_of(a_BK):
        _hidden_reach_kernel[(B,)](
            a_BK, order_K, beta_K, size, tail, u_B, seed, stream, reach_BK, active_BK, z_B, mode_B, K,
            KIND=kind, KEYED=seed is not None, BY_POINTER=isinstance(seed, Tensor), **hidden_launch(B, K),
        )  # fmt: skip
    return reach_BK, active_BK, z_B, mode_B


def hidden_uniforms(
    B: int, K: int, seed: Seed, stream: int, device: torch.device | str = "cuda"
) -> tuple[Tensor, Tensor]:
    """The draws behind a key: (B,) for z and (B, K) over positions. No draw depends on B or K."""
    u_B = torch.empty(B, device=device)
    u_BK = torch.empty(B, K, device=device)
    with torch.cuda.device_of(u_B):
        _hidden_uniforms_kernel[(B,)](u_B, u_BK, seed, stream, K, isinstance(seed, Tensor), **row_launch(K))
    return u_B, u_BK


# -- both phases of a step --------------------------------------------------------------------------------------


@jit
def _phase_kernel(
    a_RK, beta_K, size, tail, u_R, seed, stream, hi_RK, lo_RK, reach_RK, z_R, mode_R, K, n_positive, n_negative,
    KIND: constexpr, SAMPLED: constexpr, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    place_K = row * K + at_K
    a_K = tl.load(a_RK + place_K, mask=inside_K, other=0.0)
    penalty_K = tl.load(beta_K + at_K, mask=inside_K, other=0.0)
    u = z_uniform(key_of(seed, BY_POINTER), stream, row) if KEYED else tl.load(u_R + row)
    units = tl.load(size)
    reach_K, beyond, mode, _ = depth(a_K, penalty_K, at_K, inside_K, units, tail, KIND)
    z = inverted(reach_K, beyond, at_K, inside_K, u)
    if SAMPLED:
        reach_K = tl.where(at_K < z, 1.0, 0.0)
    share_K = tl.where(at_K < units, reach_K, 0.0) * phase_share(row, n_positive, n_negative)
    on_K = share_K * sigmoid(a_K)
    hi_K = on_K.to(tl.bfloat16)
    tl.store(hi_RK + place_K, hi_K, mask=inside_K)
    tl.store(lo_RK + place_K, (on_K - hi_K.to(tl.float32)).to(tl.bfloat16), mask=inside_K)
    if reach_RK is not None:
        tl.store(reach_RK + place_K, share_K, mask=inside_K)
    tl.store(z_R + row, z)
    tl.store(mode_R + row, mode)


def phases(
    a_RK: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, draws: Draws,
    n_positive: int, *, sampled: bool, sloped: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """``hidden_reach`` for the rows of the data, then those of the model, weighted as the gradient wants them.

    All by position. First P(z >= k | v) s(a_k), or with the sampled z in place of the probability, times the row's
    share in the gradient (``phase_share``): hi and lo, whose sum it is, (R, K) bfloat16. Then P(z >= k | v) times the
    share, float32, where penalties have a slope. Then z and the likeliest z, (R,) int64.
    """
    u_R, seed, stream = given(draws)
    R, K = _hidden_shape(a_RK, kind, beta=beta_K, u=u_R)
    hi_RK, lo_RK = (torch.empty_like(a_RK, dtype=torch.bfloat16) for _ in range(2))
    reach_RK = torch.empty_like(a_RK) if sloped else None
    z_R, mode_R = (torch.empty(R, dtype=torch.int64, device=a_RK.device) for _ in range(2))
    with torch.cuda.device_of(a_RK):
        _phase_kernel[(R,)](
            a_RK, beta_K, size, tail, u_R, seed, stream, hi_RK, lo_RK, reach_RK, z_R, mode_R, K,
            n_positive, R - n_positive, KIND=kind, SAMPLED=sampled, KEYED=seed is not None,
            BY_POINTER=isinstance(seed, Tensor), **hidden_launch(R, K),
        )  # fmt: skip
    return hi_RK, lo_RK, reach_RK, z_R, mode_R


# -- the visible half-step --------------------------------------------------------------------------------------


@jit
def _visible_sample_kernel(
    field_BD, u_BD, seed, stream, v_BD, D, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr
):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    at_D = first + tl.arange(0, BLOCK)
    inside_D = at_D < D
    if KEYED:
        u_D = row_uniforms(key_of(seed, BY_POINTER), stream, row, first, FOR_VISIBLE, BLOCK)
    else:
        u_D = tl.load(u_BD + row * D + at_D, mask=inside_D, other=1.0)
    field_D = tl.load(field_BD + row * D + at_D, mask=inside_D, other=0.0).to(tl.float32)
    tl.store(v_BD + row * D + at_D, (u_D < sigmoid(field_D)).to(tl.float32), mask=inside_D)


@jit
def _visible_uniforms_kernel(u_BD, seed, stream, D, BY_POINTER: constexpr, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    at_D = first + tl.arange(0, BLOCK)
    u_D = row_uniforms(key_of(seed, BY_POINTER), stream, row, first, FOR_VISIBLE, BLOCK)
    tl.store(u_BD + row * D + at_D, u_D, mask=at_D < D)


def visible_sample(field_BD: Tensor, u_BD: Tensor) -> Tensor:
    """v_j = 1 with probability s(field_j): (B, D), in the dtype of the field. Eq. 13."""
    return _visible_sample(field_BD, u_BD, None, 0)


def visible_sample_keyed(field_BD: Tensor, seed: Seed, stream: int) -> Tensor:
    """``visible_sample`` with the draws of ``visible_uniforms(B, D, seed, stream)``."""
    return _visible_sample(field_BD, None, seed, stream)


def _visible_sample(field_BD: Tensor, u_BD: Tensor | None, seed: Seed | None, stream: int) -> Tensor:
    check_readable(field=field_BD, u_BD=u_BD)
    B, D = field_BD.shape
    v_BD = torch.empty_like(field_BD)
    with torch.cuda.device_of(field_BD):
        _visible_sample_kernel[_visible_grid(B, D)](
            field_BD, u_BD, seed, stream, v_BD, D, seed is not None, isinstance(seed, Tensor), VISIBLE_BLOCK
        )
    return v_BD


def visible_uniforms(B: int, D: int, seed: Seed, stream: int, device: torch.device | str = "cuda") -> Tensor:
    """The draws behind a key: (B, D)."""
    u_BD = torch.empty(B, D, device=device)
    with torch.cuda.device_of(u_BD):
        _visible_uniforms_kernel[_visible_grid(B, D)](u_BD, seed, stream, D, isinstance(seed, Tensor), VISIBLE_BLOCK)
    return u_BD


# -- the update -------------------------------------------------------------------------------------------------


@jit
def _adagrad(slope, total, young, rate, epsilon):
    """What AdaGrad subtracts from a parameter; what is young moves at the plain rate."""
    move = rate * slope
    return tl.where(young, move, move / (tl.sqrt(total) + epsilon))


@jit
def _update_kernel(
    parameter_KD, gradient_KD, squares_KD, age_K, rate, l1, l2, max_norm, warm_up, epsilon, D,
    BOUNDED: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_D = tl.arange(0, BLOCK)
    inside_D = at_D < D
    place_D = row * D + at_D
    weight_D = tl.load(parameter_KD + place_D, mask=inside_D, other=0.0)
    slope_D = tl.load(gradient_KD + place_D, mask=inside_D, other=0.0) + l2 * weight_D
    sum_D = tl.load(squares_KD + place_D, mask=inside_D, other=0.0) + slope_D * slope_D
    weight_D -= _adagrad(slope_D, sum_D, tl.load(age_K + row) < warm_up, rate, epsilon)
    # Comparisons, not tl.maximum: that would turn a NaN into a sound weight.
    shrunk_D = tl.abs(weight_D) - rate * l1
    shrunk_D = tl.where(shrunk_D < 0.0, 0.0, shrunk_D)
    weight_D = tl.where(weight_D < 0.0, -shrunk_D, shrunk_D)
    if BOUNDED:
        norm = tl.sqrt(tl.sum(weight_D * weight_D, 0))
        weight_D *= max_norm / tl.maximum(norm, max_norm)
    tl.store(squares_KD + place_D, sum_D, mask=inside_D)
    tl.store(parameter_KD + place_D, weight_D, mask=inside_D)


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
    check_readable(parameter=parameter_KD, gradient=gradient_KD, squares=squares_KD, age=age_K)
    K, D = parameter_KD.shape
    bound = 0.0 if max_norm is None else float(max_norm)
    with torch.cuda.device_of(parameter_KD):
        _update_kernel[(K,)](
            parameter_KD, gradient_KD, squares_KD, age_K, float(lr), float(l1), float(l2), bound, warm_up, epsilon, D,
            BOUNDED=max_norm is not None, **row_launch(D),
        )  # fmt: skip


@jit
def _update_biases_kernel(
    hidden_K, hidden_gradient_K, hidden_squares_K, visible_D, visible_gradient_D, visible_squares_D,
    age_K, size, step, rate, warm_up, epsilon, K, D, BLOCK: constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    blocks_of_units = tl.cdiv(K, BLOCK)
    if block < blocks_of_units:
        at_K = block * BLOCK + tl.arange(0, BLOCK)
        inside_K = at_K < K
        age = tl.load(age_K + at_K, mask=inside_K, other=0)
        slope_K = tl.load(hidden_gradient_K + at_K, mask=inside_K, other=0.0)
        sum_K = tl.load(hidden_squares_K + at_K, mask=inside_K, other=0.0) + slope_K * slope_K
        bias_K = tl.load(hidden_K + at_K, mask=inside_K, other=0.0)
        tl.store(hidden_K + at_K, bias_K - _adagrad(slope_K, sum_K, age < warm_up, rate, epsilon), mask=inside_K)
        tl.store(hidden_squares_K + at_K, sum_K, mask=inside_K)
        tl.store(age_K + at_K, age + (at_K < tl.load(size)).to(tl.int64), mask=inside_K)
    else:
        at_D = (block - blocks_of_units) * BLOCK + tl.arange(0, BLOCK)
        inside_D = at_D < D
        slope_D = tl.load(visible_gradient_D + at_D, mask=inside_D, other=0.0)
        sum_D = tl.load(visible_squares_D + at_D, mask=inside_D, other=0.0) + slope_D * slope_D
        bias_D = tl.load(visible_D + at_D, mask=inside_D, other=0.0)
        tl.store(visible_D + at_D, bias_D - _adagrad(slope_D, sum_D, at_D < 0, rate, epsilon), mask=inside_D)
        tl.store(visible_squares_D + at_D, sum_D, mask=inside_D)
        if block == blocks_of_units:
            tl.store(step, tl.load(step) + 1)


def update_biases_(
    hidden: tuple[Tensor, Tensor, Tensor], visible: tuple[Tensor, Tensor, Tensor],
    age_K: Tensor, size: Tensor, step: Tensor, lr: float, *, warm_up: int, epsilon: float,
) -> None:  # fmt: skip
    """One AdaGrad step of both biases, each given with its gradient and sum of squares; then all count as a step older.

    Hidden biases follow the ages of their units as weights do, so these must have had their turn already.
    """
    for name, three in (("hidden", hidden), ("visible", visible)):
        check_readable(**{f"{name} {part}": t for part, t in zip(("bias", "gradient", "squares"), three, strict=True)})
    K, D = len(hidden[0]), len(visible[0])
    with torch.cuda.device_of(age_K):
        _update_biases_kernel[(triton.cdiv(K, BIAS_BLOCK) + triton.cdiv(D, BIAS_BLOCK),)](
            *hidden, *visible, age_K, size, step, float(lr), warm_up, epsilon, K, D, BLOCK=BIAS_BLOCK
        )


# -- launches ---------------------------------------------------------------------------------------------------


def hidden_launch(rows: int, columns: int) -> dict[str, int]:
    """As for any row, but no more warps than ``HIDDEN_WARPS`` allows where the rows alone fill the device."""
    launch = row_launch(columns)
    most = HIDDEN_WARPS["few rows" if rows <= FEW_ROWS else "many rows"]
    return launch | {"num_warps": min(launch["num_warps"], most)}


def _visible_grid(B: int, D: int) -> tuple[int, int]:
    return B, triton.cdiv(D, VISIBLE_BLOCK)


def _hidden_shape(a_BK: Tensor, kind: Kind, **others: Tensor | None) -> tuple[int, int]:
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
    check_readable(a=a_BK, **others)
    B, K = a_BK.shape
    return B, K
