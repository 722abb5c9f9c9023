"""The hot loop in fused Triton kernels: one launch for each half-step, and one for each matrix's update.

Every function has a slow twin made of the reference operations, with the same signature. The ``*_keyed`` forms take a
key instead of uniforms and draw them inside the kernel; ``hidden_uniforms`` and ``visible_uniforms`` write out exactly
these draws, so that both forms can be compared decision by decision.

Shapes: B examples, K hidden units (padding included), D visible units. Inside a kernel names end in the axis that one
program holds: a program owns one row. K runs over positions there, and rows are read and written through ``order``.

Precision: gains are added up in float64, because t reaches thousands while z is decided by its differences; what is
left after subtracting the largest t is float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import importlib
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

try:
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")
except ImportError:  # no kernel can run then, as ``available`` says
    triton = tl = None

if TYPE_CHECKING:
    constexpr = Any  # marks what a kernel is compiled for; Triton's own types are unknown to the type checker
else:
    constexpr = getattr(tl, "constexpr", None)

Kind = Literal["fixed", "ordered", "infinite"]
Seed = int | Tensor
"""A Python int, or a 0-dimensional int64 tensor that the kernel reads itself: a captured graph can be replayed with
another seed in it."""

FEWEST_COLUMNS = 128  # a warp with four columns to a thread: scans never see replicated elements
MOST_WARPS = 16
QUARTER = 128  # visible columns that share a counter lie this far apart


def available(device: torch.device | str) -> bool:
    """Whether the kernels run on this device: on CUDA, or on the CPU under ``TRITON_INTERPRET=1``."""
    if triton is None:
        return False
    interpreted = not isinstance(_update_kernel, triton.JITFunction)
    return torch.device(device).type == ("cpu" if interpreted else "cuda")


def _jit(kernel: Any) -> Any:
    """A Triton kernel, compiled once for all seeds and streams; the bare function where there is no Triton."""
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=["seed", "stream"])


# -- uniforms from a key ----------------------------------------------------------------------------------------
# Philox with the counter (column, row, stream, purpose): no draw depends on B, K or D, and no two purposes meet.


@_jit
def _seed(seed, BY_POINTER: constexpr):
    if BY_POINTER:
        seed = tl.load(seed)
    return seed.to(tl.int64)


@_jit
def _bits(seed, stream, row, column, PURPOSE: constexpr):
    column = column.to(tl.uint32)
    zero = column * 0
    return tl.philox(seed, column, zero + row.to(tl.uint32), zero + stream.to(tl.uint32), zero + PURPOSE)


@_jit
def _z_uniform(seed, stream, row):
    bits, _, _, _ = _bits(seed, stream, row, row * 0, 0)
    return tl.uint_to_uniform_float(bits)


@_jit
def _unit_uniforms(seed, stream, row, unit_K):
    bits_K, _, _, _ = _bits(seed, stream, row, unit_K, 1)
    return tl.uint_to_uniform_float(bits_K)


@_jit
def _visible_uniforms(seed, stream, row, counter_Q):
    """Uniforms of four columns, a quarter of a block apart from each other."""
    a_Q, b_Q, c_Q, d_Q = _bits(seed, stream, row, counter_Q, 2)
    return (
        tl.uint_to_uniform_float(a_Q),
        tl.uint_to_uniform_float(b_Q),
        tl.uint_to_uniform_float(c_Q),
        tl.uint_to_uniform_float(d_Q),
    )


@_jit
def _hidden_uniforms_kernel(u_B, u_BK, seed, stream, K, BY_POINTER: constexpr, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    unit_K = tl.arange(0, BLOCK)
    key = _seed(seed, BY_POINTER)
    tl.store(u_B + row, _z_uniform(key, stream, row))
    tl.store(u_BK + row * K + unit_K, _unit_uniforms(key, stream, row, unit_K), mask=unit_K < K)


@_jit
def _visible_uniforms_kernel(u_BD, seed, stream, D, BY_POINTER: constexpr, QUARTER: constexpr):
    row = tl.program_id(0).to(tl.int64)
    at_Q = tl.arange(0, QUARTER)
    u0_Q, u1_Q, u2_Q, u3_Q = _visible_uniforms(_seed(seed, BY_POINTER), stream, row, tl.program_id(1) * QUARTER + at_Q)
    column_Q = tl.program_id(1) * 4 * QUARTER + at_Q
    u_BD += row * D
    tl.store(u_BD + column_Q, u0_Q, mask=column_Q < D)
    tl.store(u_BD + column_Q + QUARTER, u1_Q, mask=column_Q + QUARTER < D)
    tl.store(u_BD + column_Q + 2 * QUARTER, u2_Q, mask=column_Q + 2 * QUARTER < D)
    tl.store(u_BD + column_Q + 3 * QUARTER, u3_Q, mask=column_Q + 3 * QUARTER < D)


# -- the hidden half-step ---------------------------------------------------------------------------------------


@_jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@_jit
def _gains(a_K, beta_K, inside_K):
    """softplus(a) - beta in float64, 0 outside: only the part below ln 2 has passed through float32."""
    rest_K = tl.log(1.0 + tl.exp(-tl.abs(a_K)))
    gain_K = tl.maximum(a_K, 0.0).to(tl.float64) + rest_K.to(tl.float64) - beta_K.to(tl.float64)
    return tl.where(inside_K, gain_K, 0.0)


@_jit
def _depth(a_K, beta_K, at_K, inside_K, size, tail, KIND: constexpr):
    """P(z >= k) at each position, P(z > K), and the likeliest z <= l. Eqs. 4-5 and 16."""
    if KIND == "fixed":
        reach_K = tl.where(at_K < size, 1.0, 0.0)
        beyond = size.to(tl.float32) * 0.0
        mode = size
    else:
        gain_K = _gains(a_K, beta_K, inside_K)
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
        total = tl.sum(weight_K, 0) + beyond
        # Summed from the deep end, so that small probabilities keep their digits.
        reach_K = (tl.cumsum(weight_K, 0, reverse=True) + beyond) / total
        reach_K = tl.where(reach_K > 1.0, 1.0, reach_K)
        beyond = beyond / total
    return reach_K, beyond, mode


@_jit
def _inverted(reach_K, beyond, at_K, inside_K, u):
    """z in 1..K+1 by inversion of P(z >= k), as ``sample_z`` does it."""
    deeper_K = (u < reach_K) & (at_K > 0) & inside_K
    return 1 + tl.sum(deeper_K.to(tl.int64), 0) + (u < beyond).to(tl.int64)


@_jit
def _hidden_sample_kernel(
    a_BK, order_K, beta_K, size, tail, u_B, u_BK, seed, stream, z_B, h_BK, K,
    KIND: constexpr, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = tl.load(order_K + at_K, mask=inside_K, other=0)
    a_K = tl.load(a_BK + row * K + unit_K, mask=inside_K, other=0.0).to(tl.float32)
    penalty_K = tl.load(beta_K + unit_K, mask=inside_K, other=0.0)
    if KEYED:
        key = _seed(seed, BY_POINTER)
        u = _z_uniform(key, stream, row)
        u_K = _unit_uniforms(key, stream, row, unit_K)
    else:
        u = tl.load(u_B + row)
        u_K = tl.load(u_BK + row * K + unit_K, mask=inside_K, other=1.0)
    reach_K, beyond, _ = _depth(a_K, penalty_K, at_K, inside_K, tl.load(size), tail, KIND)
    z = _inverted(reach_K, beyond, at_K, inside_K, u)
    on_K = (u_K < _sigmoid(a_K)) & (at_K < z)
    tl.store(z_B + row, z)
    tl.store(h_BK + row * K + unit_K, on_K.to(tl.float32), mask=inside_K)


@_jit
def _hidden_reach_kernel(
    a_BK, order_K, beta_K, size, tail, u_B, seed, stream, reach_BK, active_BK, z_B, mode_B, K,
    KIND: constexpr, KEYED: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = tl.load(order_K + at_K, mask=inside_K, other=0)
    a_K = tl.load(a_BK + row * K + unit_K, mask=inside_K, other=0.0).to(tl.float32)
    penalty_K = tl.load(beta_K + unit_K, mask=inside_K, other=0.0)
    u = _z_uniform(_seed(seed, BY_POINTER), stream, row) if KEYED else tl.load(u_B + row)
    units = tl.load(size)
    reach_K, beyond, mode = _depth(a_K, penalty_K, at_K, inside_K, units, tail, KIND)
    tl.store(z_B + row, _inverted(reach_K, beyond, at_K, inside_K, u))
    tl.store(mode_B + row, mode)
    tl.store(reach_BK + row * K + unit_K, tl.where(unit_K < units, reach_K, 0.0), mask=inside_K)
    tl.store(active_BK + row * K + unit_K, _sigmoid(a_K), mask=inside_K)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor, u_BK: Tensor
) -> tuple[Tensor, Tensor]:
    """z ~ p(z | v) in 1..K+1, then h ~ p(h | v, z) over units: (B,) int64 and (B, K). Eqs. 12 and 16.

    ``a`` and ``beta`` run over units, ``order`` maps position to unit, ``size`` is l on the device. Padding stands
    behind the l trained units in ``order``, which is why ``kind`` can mask by position.
    """
    return _hidden_sample(a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK, None, 0)


def hidden_sample_keyed(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, seed: Seed, stream: int
) -> tuple[Tensor, Tensor]:
    """``hidden_sample`` with the draws of ``hidden_uniforms(B, K, seed, stream)``."""
    return _hidden_sample(a_BK, order_K, beta_K, size, kind, tail, None, None, seed, stream)


def _hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    u_B: Tensor | None, u_BK: Tensor | None, seed: Seed | None, stream: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    B, K = _hidden_shape(a_BK, kind, order=order_K, beta=beta_K, u_B=u_B, u_BK=u_BK)
    z_B = torch.empty(B, dtype=torch.int64, device=a_BK.device)
    h_BK = torch.empty_like(a_BK)
    with torch.cuda.device_of(a_BK):
        _hidden_sample_kernel[(B,)](
            a_BK, order_K, beta_K, size, tail, u_B, u_BK, seed, stream, z_B, h_BK, K,
            KIND=kind, KEYED=seed is not None, BY_POINTER=isinstance(seed, Tensor), **_row_launch(K),
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
            KIND=kind, KEYED=seed is not None, BY_POINTER=isinstance(seed, Tensor), **_row_launch(K),
        )  # fmt: skip
    return reach_BK, active_BK, z_B, mode_B


def hidden_uniforms(
    B: int, K: int, seed: Seed, stream: int, device: torch.device | str = "cuda"
) -> tuple[Tensor, Tensor]:
    """The draws behind a key: (B,) for z and (B, K) over units. A unit's draw is the same for every B and K."""
    u_B = torch.empty(B, device=device)
    u_BK = torch.empty(B, K, device=device)
    with torch.cuda.device_of(u_B):
        _hidden_uniforms_kernel[(B,)](u_B, u_BK, seed, stream, K, isinstance(seed, Tensor), **_row_launch(K))
    return u_B, u_BK


# -- the visible half-step --------------------------------------------------------------------------------------


@_jit
def _store_visible(field_BD, u_Q, v_BD, at_Q, D):
    field_Q = tl.load(field_BD + at_Q, mask=at_Q < D, other=0.0).to(tl.float32)
    tl.store(v_BD + at_Q, (u_Q < _sigmoid(field_Q)).to(tl.float32), mask=at_Q < D)


@_jit
def _visible_sample_kernel(
    field_BD, u_BD, seed, stream, v_BD, D, KEYED: constexpr, BY_POINTER: constexpr, QUARTER: constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at_Q = tl.arange(0, QUARTER)
    column_Q = tl.program_id(1) * 4 * QUARTER + at_Q
    field_BD += row * D
    v_BD += row * D
    if KEYED:
        u0_Q, u1_Q, u2_Q, u3_Q = _visible_uniforms(
            _seed(seed, BY_POINTER), stream, row, tl.program_id(1) * QUARTER + at_Q
        )
    else:
        u_BD += row * D
        u0_Q = tl.load(u_BD + column_Q, mask=column_Q < D, other=1.0)
        u1_Q = tl.load(u_BD + column_Q + QUARTER, mask=column_Q + QUARTER < D, other=1.0)
        u2_Q = tl.load(u_BD + column_Q + 2 * QUARTER, mask=column_Q + 2 * QUARTER < D, other=1.0)
        u3_Q = tl.load(u_BD + column_Q + 3 * QUARTER, mask=column_Q + 3 * QUARTER < D, other=1.0)
    _store_visible(field_BD, u0_Q, v_BD, column_Q, D)
    _store_visible(field_BD, u1_Q, v_BD, column_Q + QUARTER, D)
    _store_visible(field_BD, u2_Q, v_BD, column_Q + 2 * QUARTER, D)
    _store_visible(field_BD, u3_Q, v_BD, column_Q + 3 * QUARTER, D)


def visible_sample(field_BD: Tensor, u_BD: Tensor) -> Tensor:
    """v_j = 1 with probability s(field_j): (B, D), in the dtype of the field. Eq. 13."""
    return _visible_sample(field_BD, u_BD, None, 0)


def visible_sample_keyed(field_BD: Tensor, seed: Seed, stream: int) -> Tensor:
    """``visible_sample`` with the draws of ``visible_uniforms(B, D, seed, stream)``."""
    return _visible_sample(field_BD, None, seed, stream)


def _visible_sample(field_BD: Tensor, u_BD: Tensor | None, seed: Seed | None, stream: int) -> Tensor:
    _check_readable(field=field_BD, u_BD=u_BD)
    B, D = field_BD.shape
    v_BD = torch.empty_like(field_BD)
    with torch.cuda.device_of(field_BD):
        _visible_sample_kernel[_visible_grid(B, D)](
            field_BD, u_BD, seed, stream, v_BD, D, seed is not None, isinstance(seed, Tensor), QUARTER
        )
    return v_BD


def visible_uniforms(B: int, D: int, seed: Seed, stream: int, device: torch.device | str = "cuda") -> Tensor:
    """The draws behind a key: (B, D)."""
    u_BD = torch.empty(B, D, device=device)
    with torch.cuda.device_of(u_BD):
        _visible_uniforms_kernel[_visible_grid(B, D)](u_BD, seed, stream, D, isinstance(seed, Tensor), QUARTER)
    return u_BD


# -- the update -------------------------------------------------------------------------------------------------


@_jit
def _update_kernel(
    parameter_KD, gradient_KD, squares_KD, age_K, lr, l1, l2, max_norm, warm_up, epsilon, D,
    BOUNDED: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_D = tl.arange(0, BLOCK)
    inside_D = at_D < D
    place_D = row * D + at_D
    rate = tl.load(lr).to(tl.float32)
    weight_D = tl.load(parameter_KD + place_D, mask=inside_D, other=0.0)
    slope_D = tl.load(gradient_KD + place_D, mask=inside_D, other=0.0) + l2 * weight_D
    sum_D = tl.load(squares_KD + place_D, mask=inside_D, other=0.0) + slope_D * slope_D
    move_D = rate * slope_D
    move_D = tl.where(tl.load(age_K + row) < warm_up, move_D, move_D / (tl.sqrt(sum_D) + epsilon))
    weight_D -= move_D
    # Comparisons, not tl.maximum: that would turn a NaN into a sound weight.
    shrunk_D = tl.abs(weight_D) - rate * l1
    shrunk_D = tl.where(shrunk_D < 0.0, 0.0, shrunk_D)
    weight_D = tl.where(weight_D < 0.0, -shrunk_D, shrunk_D)
    if BOUNDED:
        norm = tl.sqrt(tl.sum(weight_D * weight_D, 0))
        weight_D *= tl.where(norm > max_norm, max_norm / norm, 1.0)
    tl.store(squares_KD + place_D, sum_D, mask=inside_D)
    tl.store(parameter_KD + place_D, weight_D, mask=inside_D)


def update_weights_(
    parameter_KD: Tensor,
    gradient_KD: Tensor,
    squares_KD: Tensor,
    age_K: Tensor,
    lr: Tensor,
    l1: float,
    l2: float,
    max_norm: float | None,
    *,
    warm_up: int = 10,
    epsilon: float = 1e-8,
) -> None:
    """One AdaGrad step of a matrix whose rows belong to hidden units, with L2, the L1 threshold and the row norm.

    Changes the parameter and its sum of squares. Rows younger than ``warm_up`` move at the plain rate. ``lr`` is
    read on the device.
    """
    _check_readable(parameter=parameter_KD, gradient=gradient_KD, squares=squares_KD, age=age_K)
    K, D = parameter_KD.shape
    bound = 0.0 if max_norm is None else float(max_norm)
    with torch.cuda.device_of(parameter_KD):
        _update_kernel[(K,)](
            parameter_KD, gradient_KD, squares_KD, age_K, lr, float(l1), float(l2), bound, warm_up, epsilon, D,
            BOUNDED=max_norm is not None, **_row_launch(D),
        )  # fmt: skip


# -- launches ---------------------------------------------------------------------------------------------------


def _row_launch(columns: int) -> dict[str, int]:
    """One program for a whole row, with four columns to a thread as long as there are warps."""
    block = max(triton.next_power_of_2(columns), FEWEST_COLUMNS)
    return {"BLOCK": block, "num_warps": min(block // FEWEST_COLUMNS, MOST_WARPS)}


def _visible_grid(B: int, D: int) -> tuple[int, int]:
    return B, triton.cdiv(D, 4 * QUARTER)


def _hidden_shape(a_BK: Tensor, kind: Kind, **others: Tensor | None) -> tuple[int, int]:
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
    _check_readable(a=a_BK, **others)
    B, K = a_BK.shape
    return B, K


def _check_readable(**tensors: Tensor | None) -> None:
    """A kernel refuses nothing: it would misread the memory of a view, and round float64 on the way in."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}; call .contiguous()")
        if tensor is not None and tensor.dtype == torch.float64:
            raise ValueError(f"{name} must be float32, got float64; the reference operations take it")
