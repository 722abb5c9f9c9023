"""Matrix products of binary rows on tensor cores, for training alone: weights in two bfloat16 parts.

0 and 1 are exact in bfloat16, and W = hi + lo up to 2^-16 of each weight; products are added up in float32: close to
float32's, at the speed of half precision. Evaluation never comes here (``docs/decisions/006-gpu-products.md``).

Everything lies in the order of positions, not units: the copy of the weights that a step needs anyway is made in
that order, so that no kernel after it has to look the order up. Padding stands behind the l units in use with weights
of 0: no product has terms or columns for it, so that a machine may have room for twice its units at little cost.

Shapes: B examples, R rows of both phases, K positions (padding included), D visible units.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.ops.fused import phase_share, sigmoid
from irbm.ops.kernels import (
    FOR_VISIBLE,
    INTERPRETED,
    Draws,
    check_readable,
    constexpr,
    given,
    jit,
    key_of,
    row_launch,
    tile_uniforms,
    tl,
    triton,
)

# Triton's interpreter multiplies the bits of bfloat16 numbers; their values are the same in float32.
WIDENED = INTERPRETED if triton is None else constexpr(INTERPRETED)


class Tile(NamedTuple):
    """What one program of a product computes: rows x columns, with so many terms of the sum at a time."""

    rows: int
    columns: int
    terms: int
    warps: int
    stages: int  # loads in flight


# The first entry whose bound holds the number of rows (of examples; of terms for the gradient).
Tiles = list[tuple[float, Tile]]
ACTIVATION_TILES: Tiles = [(256, Tile(64, 16, 128, 4, 4)), (float("inf"), Tile(128, 64, 64, 8, 3))]
VISIBLE_TILES: Tiles = [(256, Tile(64, 16, 128, 4, 4)), (float("inf"), Tile(128, 64, 64, 8, 3))]
GRADIENT_TILES: Tiles = [(float("inf"), Tile(64, 64, 128, 4, 3))]


def _tile(tiles: Tiles, rows: int) -> Tile:
    return next(tile for bound, tile in tiles if rows <= bound)


def _launch(tile: Tile) -> dict[str, int]:
    return {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "TERMS": tile.terms,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


@jit
def _plus_product(x, y, total):
    """total + x y, from bfloat16."""
    if WIDENED:
        return tl.dot(x.to(tl.float32), y.to(tl.float32), total)
    else:
        return tl.dot(x, y, total)


# -- the copy of the parameters ---------------------------------------------------------------------------------


class Arranged(NamedTuple):
    """The parameters of the hidden side in the order of their positions, weights in two parts."""

    hi_KD: Tensor  # bfloat16, W = hi + lo; anything from row l on
    lo_KD: Tensor
    bias_K: Tensor
    penalty_K: Tensor
    size: Tensor  # l, on the device


@jit
def _arrange_kernel(
    weights_KD, bias_K, penalty_K, order_K, hi_KD, lo_KD, new_bias_K, new_penalty_K, size, D, BLOCK: constexpr
):
    position = tl.program_id(0).to(tl.int64)
    unit = tl.load(order_K + position)
    at_D = tl.arange(0, BLOCK)
    inside_D = (at_D < D) & (position < tl.load(size))
    weight_D = tl.load(weights_KD + unit * D + at_D, mask=inside_D, other=0.0)
    hi_D = weight_D.to(tl.bfloat16)
    tl.store(hi_KD + position * D + at_D, hi_D, mask=inside_D)
    tl.store(lo_KD + position * D + at_D, (weight_D - hi_D.to(tl.float32)).to(tl.bfloat16), mask=inside_D)
    tl.store(new_bias_K + position, tl.load(bias_K + unit))
    tl.store(new_penalty_K + position, tl.load(penalty_K + unit))


def arrange(weights_KD: Tensor, bias_K: Tensor, penalty_K: Tensor, order_K: Tensor, size: Tensor) -> Arranged:
    """A copy for the sweeps of one step: W to 2^-16 of each weight, c and the penalties as they are."""
    check_readable(weights=weights_KD, bias=bias_K, penalty=penalty_K, order=order_K)
    K, D = weights_KD.shape
    hi_KD, lo_KD = (torch.empty_like(weights_KD, dtype=torch.bfloat16) for _ in range(2))
    arranged = Arranged(hi_KD, lo_KD, torch.empty_like(bias_K), torch.empty_like(penalty_K), size)
    with torch.cuda.device_of(weights_KD):
        _arrange_kernel[(K,)](weights_KD, bias_K, penalty_K, order_K, *arranged, D, **row_launch(D))
    return arranged


# -- activations ------------------------------------------------------------------------------------------------


@jit
def _activations_kernel(
    v_BD, hi_KD, lo_KD, bias_K, size, a_BK, B, K, D, ROWS: constexpr, COLUMNS: constexpr, TERMS: constexpr
):
    row_B = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at_K = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    units = tl.load(size).to(tl.int32)
    a = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, tl.where(tl.program_id(1) * COLUMNS < units, D, 0), TERMS):
        at_D = first + tl.arange(0, TERMS)
        inside_BD = (row_B[:, None] < B) & (at_D[None, :] < D)
        inside_DK = (at_D[:, None] < D) & (at_K[None, :] < units)
        place_DK = at_K[None, :] * D + at_D[:, None]
        v = tl.load(v_BD + row_B[:, None] * D + at_D[None, :], mask=inside_BD, other=0.0).to(tl.bfloat16)
        a = _plus_product(v, tl.load(hi_KD + place_DK, mask=inside_DK, other=0.0), a)
        a = _plus_product(v, tl.load(lo_KD + place_DK, mask=inside_DK, other=0.0), a)
    a += tl.load(bias_K + at_K, mask=at_K < K, other=0.0)[None, :]
    tl.store(a_BK + row_B[:, None] * K + at_K[None, :], a, mask=(row_B[:, None] < B) & (at_K[None, :] < K))


def activations(v_BD: Tensor, arranged: Arranged) -> Tensor:
    """a_k = W_k.v + c_k by position, for binary v in float32 or bfloat16: (B, K), float32."""
    check_readable(v=v_BD)
    B, D = v_BD.shape
    K = len(arranged.bias_K)
    a_BK = torch.empty(B, K, device=v_BD.device)
    tile = _tile(ACTIVATION_TILES, B)
    with torch.cuda.device_of(v_BD):
        _activations_kernel[(triton.cdiv(B, tile.rows), triton.cdiv(K, tile.columns))](
            v_BD, arranged.hi_KD, arranged.lo_KD, arranged.bias_K, arranged.size, a_BK, B, K, D, **_launch(tile)
        )
    return a_BK


# -- the visible half-step --------------------------------------------------------------------------------------


@jit
def _visible_kernel(
    h_BK, hi_KD, lo_KD, size, bias_D, u_BD, seed, stream, v_BD, copy_BD, B, K, D,
    KEYED: constexpr, BY_POINTER: constexpr, ROWS: constexpr, COLUMNS: constexpr, TERMS: constexpr,
):  # fmt: skip
    row_B = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first_column = tl.program_id(1) * COLUMNS
    at_D = first_column + tl.arange(0, COLUMNS)
    units = tl.load(size).to(tl.int32)
    field = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, units, TERMS):
        at_K = first + tl.arange(0, TERMS)
        inside_BK = (row_B[:, None] < B) & (at_K[None, :] < K)  # not l, which would keep loads from being wide
        inside_KD = (at_K[:, None] < units) & (at_D[None, :] < D)
        place_KD = at_K[:, None] * D + at_D[None, :]
        h = tl.load(h_BK + row_B[:, None] * K + at_K[None, :], mask=inside_BK, other=0.0)
        field = _plus_product(h, tl.load(hi_KD + place_KD, mask=inside_KD, other=0.0), field)
        field = _plus_product(h, tl.load(lo_KD + place_KD, mask=inside_KD, other=0.0), field)
    field += tl.load(bias_D + at_D, mask=at_D < D, other=0.0)[None, :]
    place_BD = row_B[:, None] * D + at_D[None, :]
    inside_BD = (row_B[:, None] < B) & (at_D[None, :] < D)
    if KEYED:
        u = tile_uniforms(key_of(seed, BY_POINTER), stream, row_B, first_column, FOR_VISIBLE, COLUMNS)
    else:
        u = tl.load(u_BD + place_BD, mask=inside_BD, other=1.0)
    v = (u < sigmoid(field)).to(tl.float32)
    tl.store(v_BD + place_BD, v.to(tl.bfloat16), mask=inside_BD)
    if copy_BD is not None:
        tl.store(copy_BD + place_BD, v, mask=inside_BD)


def visible_sample(
    h_BK: Tensor, arranged: Arranged, bias_D: Tensor, draws: Draws, *, out: Tensor, copy: Tensor | None = None
) -> None:
    """v_j ~ Bernoulli(s(b_j + sum_k h_k W_kj)) into ``out`` (B, D), bfloat16, and ``copy``, float32. Eq. 13.

    ``h`` is bfloat16. A key draws what ``fused.visible_uniforms`` writes out.
    """
    u_BD, seed, stream = given(draws)
    check_readable(h=h_BK, bias=bias_D, u=u_BD, out=out, copy=copy)
    (B, K), D = h_BK.shape, len(bias_D)
    tile = _tile(VISIBLE_TILES, B)
    with torch.cuda.device_of(h_BK):
        _visible_kernel[(triton.cdiv(B, tile.rows), triton.cdiv(D, tile.columns))](
            h_BK, arranged.hi_KD, arranged.lo_KD, arranged.size, bias_D, u_BD, seed, stream, out, copy, B, K, D,
            KEYED=seed is not None, BY_POINTER=isinstance(seed, Tensor), **_launch(tile),
        )  # fmt: skip


# -- the gradient -----------------------------------------------------------------------------------------------


@jit
def _column_sum(x_RN, at_N, N, R, n_positive, SHARED: constexpr, TERMS: constexpr):
    """The sum over rows of some columns, each row counted by its share where it does not hold that already."""
    total_N = tl.zeros(at_N.shape, tl.float32)
    for first in range(0, R, TERMS):
        row_R = first + tl.arange(0, TERMS)
        inside = (row_R[:, None] < R) & (at_N[None, :] < N)
        x = tl.load(x_RN + row_R[:, None] * N + at_N[None, :], mask=inside, other=0.0).to(tl.float32)
        if not SHARED:
            x = x * phase_share(row_R, n_positive, R - n_positive)[:, None]
        total_N += tl.sum(x, 0)
    return total_N


@jit
def _gradient_kernel(
    hi_RK, lo_RK, reach_RK, v_RD, order_K, size, slope_K, weights_KD, hidden_K, visible_D, R, K, D, n_positive,
    ROWS: constexpr, COLUMNS: constexpr, TERMS: constexpr,
):  # fmt: skip
    """A tile of the weights' gradient; the last programs along either axis take the biases' instead."""
    last_K, last_D = tl.cdiv(K, ROWS), tl.cdiv(D, COLUMNS)
    at_K = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at_D = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    unit_K = tl.load(order_K + at_K, mask=at_K < K, other=0)
    if (tl.program_id(0) < last_K) & (tl.program_id(1) < last_D):
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in range(0, tl.where(tl.program_id(0) * ROWS < tl.load(size), R, 0), TERMS):
            row_R = first + tl.arange(0, TERMS)
            inside_KR = (at_K[:, None] < K) & (row_R[None, :] < R)
            inside_RD = (row_R[:, None] < R) & (at_D[None, :] < D)
            place_KR = row_R[None, :] * K + at_K[:, None]
            v = tl.load(v_RD + row_R[:, None] * D + at_D[None, :], mask=inside_RD, other=0.0)
            total = _plus_product(tl.load(hi_RK + place_KR, mask=inside_KR, other=0.0), v, total)
            total = _plus_product(tl.load(lo_RK + place_KR, mask=inside_KR, other=0.0), v, total)
        inside_KD = (at_K[:, None] < K) & (at_D[None, :] < D)
        tl.store(weights_KD + unit_K[:, None] * D + at_D[None, :], total, mask=inside_KD)
    elif tl.program_id(0) < last_K:
        total_K = _column_sum(hi_RK, at_K, K, R, n_positive, True, TERMS)
        total_K += _column_sum(lo_RK, at_K, K, R, n_positive, True, TERMS)
        if reach_RK is not None:
            slope = tl.load(slope_K + unit_K, mask=at_K < K, other=0.0)
            total_K -= slope * _column_sum(reach_RK, at_K, K, R, n_positive, True, TERMS)
        tl.store(hidden_K + unit_K, total_K, mask=at_K < K)
    elif tl.program_id(1) < last_D:
        total_D = _column_sum(v_RD, at_D, D, R, n_positive, False, TERMS)
        tl.store(visible_D + at_D, total_D, mask=at_D < D)


def gradients(
    hi_RK: Tensor, lo_RK: Tensor, reach_RK: Tensor | None, v_RD: Tensor, order_K: Tensor, size: Tensor,
    slope_K: Tensor | None, n_positive: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of weights, hidden and visible biases by unit, from what ``fused.phases`` says by position.

    ``v`` is bfloat16, the data's rows before the model's; ``hi`` and ``lo`` are 0 from position l = ``size`` on;
    ``slope`` is d beta / d c by unit, given with ``reach``.
    """
    check_readable(hi=hi_RK, lo=lo_RK, reach=reach_RK, v=v_RD, order=order_K, slope=slope_K)
    (R, K), D = hi_RK.shape, v_RD.shape[1]
    weights_KD, hidden_K, visible_D = (torch.empty(s, device=v_RD.device) for s in ((K, D), (K,), (D,)))
    tile = _tile(GRADIENT_TILES, R)
    with torch.cuda.device_of(v_RD):
        _gradient_kernel[(triton.cdiv(K, tile.rows) + 1, triton.cdiv(D, tile.columns) + 1)](
            hi_RK, lo_RK, reach_RK, v_RD, order_K, size, slope_K, weights_KD, hidden_K, visible_D, R, K, D, n_positive,
            **_launch(tile),
        )  # fmt: skip
    return weights_KD, hidden_K, visible_D
