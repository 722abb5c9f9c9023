"""Uniforms from a key: Philox, four words of 32 bits.

A draw is a function of key, call and place alone, so that any number of threads may share the work. Seven rounds are
the fewest that pass every test of TestU01 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Words
lie in 64-bit lanes, where one instruction multiplies them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled.elementary import F32
from irbm.ops.compiled.loops import Kernel, inlined, jit, prange
from irbm.ops.kernels import Seed

U64 = np.uint64
WORD, BITS, SPARE = U64(0xFFFFFFFF), U64(32), U64(8)
MULTIPLIERS = U64(0xD2511F53), U64(0xCD9E8D57)
WEYL = U64(0x9E3779B9), U64(0xBB67AE85)
RESOLUTION = F32(2.0**-24)
LEAST = F32(2.0**-25)  # no uniform is 0, as in ``kernels.LEAST``
QUARTER = 256  # counters of a block: each gives one draw to each quarter of it
FOR_UNITS, FOR_Z = U64(0), U64(1)  # the last part of the counter


@inlined
def _round(c0, c1, c2, c3, k0, k1, i):
    p0 = c0 * MULTIPLIERS[0]
    p1 = c2 * MULTIPLIERS[1]
    k0 = (k0 + U64(i) * WEYL[0]) & WORD
    k1 = (k1 + U64(i) * WEYL[1]) & WORD
    return (p1 >> BITS) ^ c1 ^ k0, p1 & WORD, (p0 >> BITS) ^ c3 ^ k1, p0 & WORD


@inlined
def _as_uniform(word):
    return max(F32(np.int32(word >> SPARE)) * RESOLUTION, LEAST)


@inlined
def _philox(c0, c1, c2, c3, k0, k1):
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 0)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 2)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 3)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 4)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 5)
    return _round(c0, c1, c2, c3, k0, k1, 6)


@jit
def draw(u_4Q, first, call, row, k0, k1):
    """The uniforms of so many counters from the first on: one to each quarter from each."""
    for q in range(u_4Q.shape[1]):
        c0, c1, c2, c3 = _philox(first + U64(q), call, row, FOR_UNITS, k0, k1)
        u_4Q[0, q] = _as_uniform(c0)
        u_4Q[1, q] = _as_uniform(c1)
        u_4Q[2, q] = _as_uniform(c2)
        u_4Q[3, q] = _as_uniform(c3)


@jit
def draw_one(call, row, k0, k1):
    """The one uniform that decides a row's z."""
    return _as_uniform(_philox(U64(0), call, row, FOR_Z, k0, k1)[0])


@jit
def _uniforms_rows(first, last, u_N, key, call):
    block = 4 * QUARTER
    k0, k1 = key & WORD, key >> BITS
    for i in range(first, last):
        here = u_N[i * block : (i + 1) * block]
        if len(here) == block:
            draw(here.reshape(4, QUARTER), U64(i * QUARTER), call, U64(0), k0, k1)
        else:
            u_4Q = np.empty((4, QUARTER), np.float32)
            draw(u_4Q, U64(i * QUARTER), call, U64(0), k0, k1)
            here[:] = u_4Q.reshape(block)[: len(here)]


def _uniforms_parts(n, parts, *rest):
    for p in prange(parts):
        _uniforms_rows(n * p // parts, n * (p + 1) // parts, *rest)


_uniforms = Kernel(_uniforms_rows, _uniforms_parts)


NONE_B, NONE_BK = np.empty(0, np.float32), np.empty((0, 0), np.float32)
"""In place of uniforms, for a kernel that draws them itself."""


@jit
def _draw_rows(first, last, u_B, u_BK, key, call):
    u_4Q = np.empty((4, -(-u_BK.shape[1] // 4)), np.float32)
    k0, k1 = key & WORD, key >> BITS
    for b in range(first, last):
        draw(u_4Q, U64(0), call, U64(b), k0, k1)
        u_BK[b] = u_4Q.reshape(u_4Q.size)[: u_BK.shape[1]]
        u_B[b] = draw_one(call, U64(b), k0, k1)


def row_uniforms(B: int, K: int, key: Seed, call: int) -> tuple[Tensor, Tensor]:
    """What kernels draw themselves from a key for so many rows: (B,) for z, and (B, K) for the units."""
    u_B, u_BK = np.empty(B, np.float32), np.empty((B, K), np.float32)
    _draw_rows(0, B, u_B, u_BK, U64(int(key)), U64(call))
    return torch.from_numpy(u_B), torch.from_numpy(u_BK)


def uniforms(key: Seed, call: int, shape: tuple[int, ...]) -> Tensor:
    """Uniforms in (0, 1) with 24 bits: the ``call``-th draw of a stream with a 64-bit key, both below 2^32 blocks."""
    u = np.empty(shape, np.float32)
    _uniforms(u.size, -(-u.size // (4 * QUARTER)), u.reshape(-1), U64(int(key)), U64(call))
    return torch.from_numpy(u)
