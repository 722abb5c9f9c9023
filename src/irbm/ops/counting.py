"""What a step decides by counting, one launch each: the shuffle of the order, growth, and the sums of likeliest z."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import torch
from torch import Tensor

from irbm.ops.kernels import (
    FOR_VISIBLE,
    Draws,
    check_readable,
    constexpr,
    given,
    jit,
    key_of,
    row_uniforms,
    tl,
    triton,
)

SHUFFLED = 16  # positions that one program of the shuffle places
COMPARED = 512  # keys that it looks at together
BLOCK = 1024  # examples that growth and sums look at together


# -- the shuffle ------------------------------------------------------------------------------------------------


@jit
def _shuffle_keys(u_K, seed, stream, first, K, KEYED: constexpr, BY_POINTER: constexpr, COLUMNS: constexpr):
    """The uniforms of some positions; 1, which no uniform is, beyond the last."""
    at_K = first + tl.arange(0, COLUMNS)
    if KEYED:
        row = first * 0
        keys_K = row_uniforms(key_of(seed, BY_POINTER), stream, row, first, FOR_VISIBLE, COLUMNS)
    else:
        keys_K = tl.load(u_K + at_K, mask=at_K < K, other=1.0)
    return at_K, keys_K


@jit
def _shuffle_kernel(
    order_K, shuffled_K, size, limits, u_K, seed, stream, K,
    KEYED: constexpr, BY_POINTER: constexpr, MINE: constexpr, THEIRS: constexpr,
):  # fmt: skip
    length = tl.minimum(tl.floor(tl.load(size).to(tl.float64) * tl.load(limits)), tl.load(limits + 1)).to(tl.int32)
    mine_I, key_I = _shuffle_keys(u_K, seed, stream, tl.program_id(0) * MINE, K, KEYED, BY_POINTER, MINE)
    before_I = tl.zeros((MINE,), tl.int32)
    for first in range(0, length, THEIRS):
        at_J, key_J = _shuffle_keys(u_K, seed, stream, first, K, KEYED, BY_POINTER, THEIRS)
        # Of two equal keys the first stays first.
        earlier_IJ = (key_J[None, :] == key_I[:, None]) & (at_J[None, :] < mine_I[:, None])
        smaller_IJ = (key_J[None, :] < key_I[:, None]) | earlier_IJ
        before_I += tl.sum((smaller_IJ & (at_J[None, :] < length)).to(tl.int32), 1)
    to_I = tl.where(mine_I < length, before_I, mine_I)
    inside_I = mine_I < K
    tl.store(shuffled_K + to_I, tl.load(order_K + mine_I, mask=inside_I, other=0), mask=inside_I)


def shuffle_(order_K: Tensor, size: Tensor, limits: Tensor, draws: Draws) -> None:
    """Sort the first M positions by their uniforms, in place; M = min(floor(limits[0] * size), limits[1]).

    Every position finds its new place by counting the smaller keys: the same as a stable sort, in one launch.
    """
    u_K, seed, stream = given(draws)
    check_readable(order=order_K, u=u_K)
    K = len(order_K)
    shuffled_K = torch.empty_like(order_K)
    with torch.cuda.device_of(order_K):
        _shuffle_kernel[(triton.cdiv(K, SHUFFLED),)](
            order_K, shuffled_K, size, limits, u_K, seed, stream, K, KEYED=seed is not None,
            BY_POINTER=isinstance(seed, Tensor), MINE=SHUFFLED, THEIRS=COMPARED, num_warps=4,
        )  # fmt: skip
    order_K.copy_(shuffled_K)


# -- growth and sums --------------------------------------------------------------------------------------------


@jit
def _grow_kernel(size, z_pos_B, z_neg_N, limit, B, N, BLOCK: constexpr):
    units = tl.load(size)
    found = units.to(tl.int32) * 0
    for first in range(0, tl.maximum(B, N), BLOCK):
        at_P = first + tl.arange(0, BLOCK)
        inside_P = at_P < tl.maximum(B, N)
        z_pos_P = tl.load(z_pos_B + at_P % B, mask=inside_P, other=0)
        z_neg_P = tl.load(z_neg_N + at_P % N, mask=inside_P, other=0)
        found += tl.sum(((z_pos_P > units) & (z_neg_P > units)).to(tl.int32), 0)
    tl.store(size, units + ((found > 0) & (units < limit)).to(tl.int64))


def grow_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """One unit more where an example and its negative partner both reach beyond l, up to a limit."""
    check_readable(z_pos=z_pos_B, z_neg=z_neg_N)
    with torch.cuda.device_of(size):
        _grow_kernel[(1,)](size, z_pos_B, z_neg_N, limit, len(z_pos_B), len(z_neg_N), BLOCK=BLOCK)


@jit
def _tally_kernel(sums, mode_B, B, BLOCK: constexpr):
    total = tl.load(sums) * 0.0
    largest = total
    for first in range(0, B, BLOCK):
        at_B = first + tl.arange(0, BLOCK)
        mode_of_B = tl.load(mode_B + at_B, mask=at_B < B, other=0).to(tl.float64)
        total += tl.sum(mode_of_B, 0)
        largest = tl.maximum(largest, tl.max(mode_of_B, 0))
    tl.store(sums, tl.load(sums) + total)
    tl.store(sums + 1, tl.load(sums + 1) + largest)


def tally_(sums: Tensor, mode_B: Tensor) -> None:
    """Add a batch's sum of likeliest z, and its maximum, to the two sums (float64)."""
    with torch.cuda.device_of(sums):
        _tally_kernel[(1,)](sums, mode_B, len(mode_B), BLOCK=BLOCK)
