"""The hot loop on the CPU, compiled by numba: one pass over a row for each half-step, one for each matrix's update.

Every function has a slow twin made of the reference operations, with the same signature. Without numba nothing here
can run, as ``available`` says, and the reference takes over.

Shapes: B examples, K hidden units (padding included), D visible units. A loop over rows is shared among as many threads
as torch has, where there is enough to do; no result depends on it.

Precision: gains are added up in float64, because t reaches thousands while z is decided by its differences; what is
left after subtracting the largest t is float32. ``exp`` and ``log1p`` are polynomials, good to 2e-7, which the compiler
can turn into vector instructions; calls of the C library it cannot.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import importlib
import os
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irbm.ops import reference
from irbm.ops.kernels import Draws, Key, Seed
from irbm.ops.reference import Contrast, Heat, Kind

try:
    numba: Any = importlib.import_module("numba")
except ImportError:  # no kernel can run then, as ``available`` says
    numba = None

KINDS: dict[Kind, int] = {"fixed": 0, "ordered": 1, "infinite": 2}
FIXED, INFINITE = KINDS["fixed"], KINDS["infinite"]
SHARED_FROM = 20_000  # elements from which another thread gains more than it costs to wake
NEGLIGIBLE = 2.0**-50
"""Probabilities below it are written as 0: products of them leave float32's normal range, where the processor is so
slow that the gradient's matrix product took fifteen times as long."""


def available() -> bool:
    """Whether numba is here."""
    return numba is not None


def counts_on(device: torch.device) -> bool:
    """Whether kernels can count on this device."""
    return available() and device.type == "cpu"


def runs_on(tensor: Tensor) -> bool:
    """Whether the kernels can work on this tensor: float32 on the CPU, with no autograd to feed."""
    return available() and tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not tensor.requires_grad


def _jit(function: Any, **options: Any) -> Any:
    """A compiled function, kept on disk where there is a place to write; the bare one where there is no numba."""
    if numba is None:
        return function
    # Fused multiply-adds alone: anything more would let the compiler assume that there is no NaN.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, **options}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # numba found no folder it may write to
        return numba.njit(function, **options)


def _reassociated(function: Any) -> Any:
    """Sums in any order, so that they run in vectors."""
    return _jit(function, fastmath={"contract", "reassoc"})


def _inlined(function: Any) -> Any:
    return function if numba is None else numba.njit(function, inline="always")


prange: Any = range if numba is None else numba.prange


class _Kernel:
    """A loop over rows, for one thread, or in parts that threads share.

    ``rows(first, last, ...)`` does some of them; ``parts(n, parts, ...)`` calls it for all n in so many parts. It is a
    call, not the loop itself, because numba compiles the body of a parallel loop badly: shared by two threads it took
    as long as one thread alone.
    """

    shared = True  # may be, where there is enough to do
    _lock = Lock()  # not every threading layer of numba bears two callers at a time
    _asked = local()  # how many threads numba was last told to use, for each of ours

    def __init__(self, rows: Any, parts: Any) -> None:
        self._rows, self._parts = rows, _jit(parts, parallel=True)

    def __call__(self, elements: int, n: int, *arguments: Any) -> None:
        threads = torch.get_num_threads()
        if threads == 1 or elements < SHARED_FROM or not _Kernel.shared:
            self._rows(0, n, *arguments)
            return
        with _Kernel._lock:
            threads = min(threads, numba.config.NUMBA_NUM_THREADS)
            if getattr(_Kernel._asked, "threads", 0) != threads:
                numba.set_num_threads(threads)
                _Kernel._asked.threads = threads
            self._parts(n, threads, *arguments)

    @classmethod
    def stay_alone(cls) -> None:
        cls.shared = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Kernel.stay_alone)  # OpenMP's threads do not live through a fork


# -- elementary functions -----------------------------------------------------------------------------------------

F32 = np.float32
LOG2_E = F32(1.4426950408889634)
LN2_HIGH, LN2_LOW = F32(0.693359375), F32(-2.12194440e-4)  # the first has few bits: n times it is exact
LARGEST = float(np.finfo(np.float32).max)
LOWEST = F32(-87.0)  # below it exp leaves the normal range
ONE, ZERO, NEGLIGIBLE32 = F32(1.0), F32(0.0), F32(NEGLIGIBLE)


@_inlined
def _exp(x):
    """e^x in float32 for x <= 0, and 0 below -87. NaN stays."""
    x_in = LOWEST if x < LOWEST else x
    n = np.floor(x_in * LOG2_E + F32(0.5))
    r = (x_in - n * LN2_HIGH) - n * LN2_LOW
    p = F32(0.0013941108434) * r + F32(0.00837512639815)
    p = p * r + F32(0.0416663528968)
    p = p * r + F32(0.166664155147)
    p = p * r + F32(0.500000004712)
    p = p * r + ONE
    p = p * r + ONE
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return ZERO if x < LOWEST else p * power


@_inlined
def _log1p(x):
    """ln(1 + x) in float32 for x in 0..1, to a relative error. NaN stays."""
    p = F32(-0.00317605701843) * x + F32(0.019542527261)
    p = p * x + F32(-0.0563736128301)
    p = p * x + F32(0.105436237954)
    p = p * x + F32(-0.152696670744)
    p = p * x + F32(0.196632742572)
    p = p * x + F32(-0.249516162629)
    p = p * x + F32(0.333297104989)
    p = p * x + F32(-0.499998926481)
    p = p * x + ONE
    return p * x


# -- uniforms from a key ------------------------------------------------------------------------------------------
# Philox, four words of 32 bits: a draw is a function of key, call and place alone, so that any number of threads may
# share the work. Seven rounds are the fewest that pass every test of TestU01 (Salmon et al. 2011, "Parallel random
# numbers: as easy as 1, 2, 3"). Words lie in 64-bit lanes, where one instruction multiplies them.

U64 = np.uint64
WORD, BITS, SPARE = U64(0xFFFFFFFF), U64(32), U64(8)
MULTIPLIERS = U64(0xD2511F53), U64(0xCD9E8D57)
WEYL = U64(0x9E3779B9), U64(0xBB67AE85)
RESOLUTION = F32(2.0**-24)
QUARTER = 256  # counters of a block: each gives one draw to each quarter of it
FOR_UNITS, FOR_Z = U64(0), U64(1)  # the last part of the counter


@_inlined
def _round(c0, c1, c2, c3, k0, k1, i):
    p0 = c0 * MULTIPLIERS[0]
    p1 = c2 * MULTIPLIERS[1]
    k0 = (k0 + U64(i) * WEYL[0]) & WORD
    k1 = (k1 + U64(i) * WEYL[1]) & WORD
    return (p1 >> BITS) ^ c1 ^ k0, p1 & WORD, (p0 >> BITS) ^ c3 ^ k1, p0 & WORD


@_inlined
def _as_uniform(word):
    return F32(np.int32(word >> SPARE)) * RESOLUTION


@_inlined
def _philox(c0, c1, c2, c3, k0, k1):
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 0)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 2)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 3)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 4)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1, 5)
    return _round(c0, c1, c2, c3, k0, k1, 6)


@_jit
def _draw(u_4Q, first, call, row, k0, k1):
    """The uniforms of so many counters from the first on: one to each quarter from each."""
    for q in range(u_4Q.shape[1]):
        c0, c1, c2, c3 = _philox(first + U64(q), call, row, FOR_UNITS, k0, k1)
        u_4Q[0, q] = _as_uniform(c0)
        u_4Q[1, q] = _as_uniform(c1)
        u_4Q[2, q] = _as_uniform(c2)
        u_4Q[3, q] = _as_uniform(c3)


@_jit
def _draw_one(call, row, k0, k1):
    """The one uniform that decides a row's z."""
    return _as_uniform(_philox(U64(0), call, row, FOR_Z, k0, k1)[0])


@_jit
def _uniforms_rows(first, last, u_N, key, call):
    block = 4 * QUARTER
    k0, k1 = key & WORD, key >> BITS
    for i in range(first, last):
        here = u_N[i * block : (i + 1) * block]
        if len(here) == block:
            _draw(here.reshape(4, QUARTER), U64(i * QUARTER), call, U64(0), k0, k1)
        else:
            u_4Q = np.empty((4, QUARTER), np.float32)
            _draw(u_4Q, U64(i * QUARTER), call, U64(0), k0, k1)
            here[:] = u_4Q.reshape(block)[: len(here)]


def _uniforms_parts(n, parts, *rest):
    for p in prange(parts):
        _uniforms_rows(n * p // parts, n * (p + 1) // parts, *rest)


_uniforms = _Kernel(_uniforms_rows, _uniforms_parts)


NONE_B, NONE_BK = np.empty(0, np.float32), np.empty((0, 0), np.float32)
"""In place of uniforms, for a kernel that draws them itself."""


@_jit
def _draw_rows(first, last, u_B, u_BK, key, call):
    u_4Q = np.empty((4, -(-u_BK.shape[1] // 4)), np.float32)
    k0, k1 = key & WORD, key >> BITS
    for b in range(first, last):
        _draw(u_4Q, U64(0), call, U64(b), k0, k1)
        u_BK[b] = u_4Q.reshape(u_4Q.size)[: u_BK.shape[1]]
        u_B[b] = _draw_one(call, U64(b), k0, k1)


def row_uniforms(B: int, K: int, key: Seed, call: int) -> tuple[Tensor, Tensor]:
    """What kernels draw themselves from a key for so many rows: (B,) for z, and (B, K) for the units."""
    u_B, u_BK = np.empty(B, np.float32), np.empty((B, K), np.float32)
    _draw_rows(0, B, u_B, u_BK, U64(int(key)), U64(call))
    return torch.from_numpy(u_B), torch.from_numpy(u_BK)


def uniforms(key: Seed, call: int, shape: tuple[int, ...]) -> Tensor:
    """Uniforms in [0, 1) with 24 bits: the ``call``-th draw of a stream with a 64-bit key, both below 2^32 blocks."""
    u = np.empty(shape, np.float32)
    _uniforms(u.size, -(-u.size // (4 * QUARTER)), u.reshape(-1), U64(int(key)), U64(call))
    return torch.from_numpy(u)


# -- the hidden half-step -----------------------------------------------------------------------------------------


@_jit
def _activity(a_K, beta_K, small_K, gain_K):
    """e^-|a| and softplus(a) - beta of each unit."""
    for i in range(len(a_K)):
        a = a_K[i]
        small = _exp(-abs(a))
        small_K[i] = small
        gain_K[i] = ((ZERO if a < ZERO else a) + _log1p(small)) - beta_K[i]


@_jit
def _raise(t_K, by):
    for k in range(len(t_K)):
        t_K[k] += by


@_jit
def _depths(gain_K, order_K, t_K):
    """t_k for each position, eqs. 4-5: in quarters side by side, because a sum must wait for the one before."""
    Q = len(t_K) // 4
    a_Q, b_Q, c_Q, d_Q = order_K[:Q], order_K[Q : 2 * Q], order_K[2 * Q : 3 * Q], order_K[3 * Q : 4 * Q]
    ta_Q, tb_Q, tc_Q, td_Q = t_K[:Q], t_K[Q : 2 * Q], t_K[2 * Q : 3 * Q], t_K[3 * Q : 4 * Q]
    a = b = c = d = 0.0
    for k in range(Q):
        a += gain_K[a_Q[k]]
        b += gain_K[b_Q[k]]
        c += gain_K[c_Q[k]]
        d += gain_K[d_Q[k]]
        ta_Q[k], tb_Q[k], tc_Q[k], td_Q[k] = a, b, c, d
    _raise(tb_Q, a)
    _raise(tc_Q, a + b)
    _raise(td_Q, a + b + c)
    t = a + b + c + d
    for k in range(4 * Q, len(t_K)):
        t += gain_K[order_K[k]]
        t_K[k] = t


@_jit
def _largest(t_K):
    """The largest t that is no NaN; four at a time, because each must wait for the one before."""
    a = b = c = d = -np.inf
    whole = len(t_K) // 4 * 4
    for k in range(0, whole, 4):
        a = t_K[k] if t_K[k] > a else a
        b = t_K[k + 1] if t_K[k + 1] > b else b
        c = t_K[k + 2] if t_K[k + 2] > c else c
        d = t_K[k + 3] if t_K[k + 3] > d else d
    for k in range(whole, len(t_K)):
        a = t_K[k] if t_K[k] > a else a
    a, c = b if b > a else a, d if d > c else c
    return c if c > a else a


@_jit
def _first(t_K, value):
    for k in range(len(t_K)):
        if t_K[k] == value:
            return k
    return 0


@_jit
def _weights(t_K, peak, w_K):
    """e^(t - peak), unnormalised p(z | v). In two loops, because one with both widths in it stays scalar."""
    for k in range(len(t_K)):
        w_K[k] = F32(t_K[k] - peak)
    for k in range(len(w_K)):
        w_K[k] = _exp(w_K[k])


@_jit
def _suffixes(w_K, beyond, deeper_K):
    """Sums of the weights from each position on: the deep end first, so that small probabilities keep their digits."""
    Q = len(w_K) // 4
    a_Q, b_Q, c_Q, d_Q = w_K[:Q], w_K[Q : 2 * Q], w_K[2 * Q : 3 * Q], w_K[3 * Q : 4 * Q]
    sa_Q, sb_Q, sc_Q, sd_Q = deeper_K[:Q], deeper_K[Q : 2 * Q], deeper_K[2 * Q : 3 * Q], deeper_K[3 * Q : 4 * Q]
    a = b = c = 0.0
    d = beyond
    for k in range(len(w_K) - 1, 4 * Q - 1, -1):
        d += w_K[k]
        deeper_K[k] = d
    for k in range(Q - 1, -1, -1):
        a += a_Q[k]
        b += b_Q[k]
        c += c_Q[k]
        d += d_Q[k]
        sa_Q[k], sb_Q[k], sc_Q[k], sd_Q[k] = a, b, c, d
    _raise(sc_Q, d)
    _raise(sb_Q, d + c)
    _raise(sa_Q, d + c + b)


@_jit
def _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K):
    """The z-table over positions, and what is proportional to P(z >= k | v).

    Returned, that of z beyond the table, and the largest t of z <= l.
    """
    _depths(gain_K, order_K, t_K)
    top = _largest(t_K[:size])
    rest = _largest(t_K[size:])
    peak = rest if rest > top else top
    beyond = 0.0
    if kind == INFINITE:
        t_tail = t_K[-1] + tail
        peak = peak if t_tail <= peak else t_tail
        beyond = float(_exp(F32(t_tail - peak)))
    _weights(t_K, peak, w_K)
    _suffixes(w_K, beyond, deeper_K)
    return beyond, top


@_jit
def _inverted(deeper_K, beyond, u):
    """z by inversion of P(z >= k), given what is proportional to it. Eq. 16."""
    threshold = u * deeper_K[0]
    z = 2 if threshold < beyond else 1
    for k in range(1, len(deeper_K)):
        z += 1 if threshold < deeper_K[k] else 0
    return z


@_jit
def _switch(small_K, a_K, u_K, rank_K, z, h_K):
    """h_i = 1 where i is among the first z positions and u < s(a_i). Eq. 12."""
    for i in range(len(a_K)):
        on = u_K[i] * (ONE + small_K[i]) < (small_K[i] if a_K[i] < ZERO else ONE)
        h_K[i] = ONE if on and rank_K[i] < z else ZERO


@_jit
def _ranks(order_K):
    rank_K = np.empty(len(order_K), np.uint32)
    for k in range(len(order_K)):
        rank_K[order_K[k]] = k
    return rank_K


@_jit
def _hidden_sample_rows(first, last, a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK, key, call, z_B, h_BK):
    K = a_BK.shape[1]
    rank_K = _ranks(order_K)
    limit = K if kind == INFINITE else size
    single_3K, double_2K = np.empty((3, K), np.float32), np.empty((2, K), np.float64)
    small_K, gain_K, w_K = single_3K[0], single_3K[1], single_3K[2, :limit]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    u_4Q, k0, k1 = np.empty((4, -(-K // 4)), np.float32), key & WORD, key >> BITS
    u_K = u_4Q.reshape(u_4Q.size)[:K]
    for b in range(first, last):
        if len(u_B) == 0:
            _draw(u_4Q, U64(0), call, U64(b), k0, k1)
        else:
            u_K = u_BK[b]
        _activity(a_BK[b], beta_K, small_K, gain_K)
        z = size
        if kind != FIXED:
            beyond, _ = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z = _inverted(deeper_K, beyond, u_B[b] if len(u_B) else _draw_one(call, U64(b), k0, k1))
        z_B[b] = z
        _switch(small_K, a_BK[b], u_K, rank_K, z, h_BK[b])


def _hidden_sample_parts(n, parts, *rest):
    for p in prange(parts):
        _hidden_sample_rows(n * p // parts, n * (p + 1) // parts, *rest)


_hidden_sample = _Kernel(_hidden_sample_rows, _hidden_sample_parts)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor, u_BK: Tensor
) -> tuple[Tensor, Tensor]:
    """z ~ p(z | v) in 1..K+1, then h ~ p(h | v, z) over units: (B,) int64 and (B, K). Eqs. 12 and 16."""
    return _hidden_sampled(a_BK, order_K, beta_K, size, kind, tail, _array(u_B), _array(u_BK), 0, 0)


def hidden_sample_keyed(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, key: Seed, call: int
) -> tuple[Tensor, Tensor]:
    """``hidden_sample`` with the draws of ``row_uniforms(B, K, key, call)``."""
    return _hidden_sampled(a_BK, order_K, beta_K, size, kind, tail, NONE_B, NONE_BK, key, call)


def _hidden_sampled(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Any, u_BK: Any,
    key: Seed, call: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    a = _array(a_BK)
    z_B, h_BK = np.empty(len(a), np.int64), np.empty_like(a)
    _hidden_sample(
        a.size, len(a), a, _places(order_K), _array(beta_K), int(size), KINDS[kind], tail, u_B, u_BK,
        U64(int(key)), U64(call), z_B, h_BK,
    )  # fmt: skip
    return torch.from_numpy(z_B), torch.from_numpy(h_BK)


@_jit
def _survive(deeper_K, p_K):
    """P(z >= k | v) by position. Eq. 16."""
    share = 1.0 / deeper_K[0]
    for k in range(len(p_K)):
        p = deeper_K[k] * share
        p_K[k] = F32(0.0 if p < NEGLIGIBLE else p)


@_jit
def _placed(p_K, rank_K, reach_K):
    """By unit what is by position."""
    for i in range(len(reach_K)):
        reach_K[i] = p_K[rank_K[i]]


@_jit
def _activate(a_K, small_K, active_K):
    for i in range(len(a_K)):
        p = (small_K[i] if a_K[i] < ZERO else ONE) / (ONE + small_K[i])
        active_K[i] = ZERO if p < NEGLIGIBLE32 else p


@_jit
def _hidden_reach_rows(first, last, a_BK, order_K, beta_K, size, kind, tail, u_B, reach_BK, active_BK, z_B, mode_B):
    K = a_BK.shape[1]
    rank_K = _ranks(order_K)
    limit = K if kind == INFINITE else size
    single_4K, double_2K = np.empty((4, K), np.float32), np.empty((2, K), np.float64)
    small_K, gain_K, w_K, p_K = single_4K[0], single_4K[1], single_4K[2, :limit], single_4K[3]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    p_K[:size], p_K[size:] = ONE, ZERO
    for b in range(first, last):
        _activity(a_BK[b], beta_K, small_K, gain_K)
        _activate(a_BK[b], small_K, active_BK[b])
        z_B[b] = mode_B[b] = size
        if kind != FIXED:
            beyond, top = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z_B[b] = _inverted(deeper_K, beyond, u_B[b])
            mode_B[b] = 1 + _first(t_K[:size], top)
            _survive(deeper_K, p_K[:size])
        _placed(p_K, rank_K, reach_BK[b])


def _hidden_reach_parts(n, parts, *rest):
    for p in prange(parts):
        _hidden_reach_rows(n * p // parts, n * (p + 1) // parts, *rest)


_hidden_reach = _Kernel(_hidden_reach_rows, _hidden_reach_parts)


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the gradients and the growth need of p(z, h | v). Eqs. 15-16, and 33 of sec. 4.1.

    P(z >= position of i | v) for each unit, 0 for padding, and s(a_i): both (B, K); then z ~ p(z | v) in 1..K+1 and
    the first argmax of p(z | v) over z <= l: both (B,), int64. What is below ``NEGLIGIBLE`` reads 0.
    """
    a = _array(a_BK)
    reach_BK, active_BK = np.empty_like(a), np.empty_like(a)
    z_B, mode_B = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    _hidden_reach(
        a.size, len(a), a, _places(order_K), _array(beta_K), int(size), KINDS[kind], tail, _array(u_B),
        reach_BK, active_BK, z_B, mode_B,
    )  # fmt: skip
    return torch.from_numpy(reach_BK), torch.from_numpy(active_BK), torch.from_numpy(z_B), torch.from_numpy(mode_B)


@_jit
def _weigh(p_K, rank_K, active_K, share, on_K):
    for i in range(len(on_K)):
        on_K[i] = p_K[rank_K[i]] * share * active_K[i]


@_jit
def _phase_rows(
    first, last, a_RK, order_K, beta_K, size, kind, tail, u_R, key, call, share_R, sampled, on_RK, reach_RK, z_R, mode_R
):
    K = a_RK.shape[1]
    rank_K = _ranks(order_K)
    limit = K if kind == INFINITE else size
    single_5K, double_2K = np.empty((5, K), np.float32), np.empty((2, K), np.float64)
    small_K, gain_K, w_K, active_K, p_K = single_5K[0], single_5K[1], single_5K[2, :limit], single_5K[3], single_5K[4]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    k0, k1 = key & WORD, key >> BITS
    p_K[:size], p_K[size:] = ONE, ZERO
    for r in range(first, last):
        _activity(a_RK[r], beta_K, small_K, gain_K)
        _activate(a_RK[r], small_K, active_K)
        z = mode = size
        if kind != FIXED:
            beyond, top = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z = _inverted(deeper_K, beyond, u_R[r] if len(u_R) else _draw_one(call, U64(r), k0, k1))
            mode = 1 + _first(t_K[:size], top)
            if sampled:
                p_K[: min(z, size)], p_K[min(z, size) :] = ONE, ZERO
            else:
                _survive(deeper_K, p_K[:size])
        z_R[r], mode_R[r] = z, mode
        _weigh(p_K, rank_K, active_K, share_R[r], on_RK[r])
        if len(reach_RK):
            _placed(p_K, rank_K, reach_RK[r])
            reach_RK[r] *= share_R[r]


def _phase_parts(n, parts, *rest):
    for p in prange(parts):
        _phase_rows(n * p // parts, n * (p + 1) // parts, *rest)


_phase = _Kernel(_phase_rows, _phase_parts)


def phases(
    a_RK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, draws: Draws,
    share_R: Tensor, *, sampled: bool, sloped: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """``hidden_reach`` weighed as the gradient wants it, by unit, in one pass.

    First P(z >= position of i | v) s(a_i) times the row's share, (R, K); with the sampled z in place of the
    probability where ``sampled``. Then the same without s(a_i) where penalties have a slope. Then z and mode, (R,).
    """
    a = _array(a_RK)
    u_R, (key, call) = (NONE_B, draws) if isinstance(draws, Key) else (_array(draws), (0, 0))
    on_RK, reach_RK = np.empty_like(a), np.empty_like(a) if sloped else NONE_BK
    z_R, mode_R = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    _phase(
        a.size, len(a), a, _places(order_K), _array(beta_K), int(size), KINDS[kind], tail, u_R,
        U64(int(key)), U64(call), _array(share_R), sampled, on_RK, reach_RK, z_R, mode_R,
    )  # fmt: skip
    reach = torch.from_numpy(reach_RK) if sloped else None
    return torch.from_numpy(on_RK), reach, torch.from_numpy(z_R), torch.from_numpy(mode_R)


# -- all labels at once -------------------------------------------------------------------------------------------


@_jit
def _shifted(a_K, shift_K, sum_K):
    for k in range(len(a_K)):
        sum_K[k] = a_K[k] + shift_K[k]


@_jit
def _shares(deeper_K, active_K, size, reach_K, on_K):
    """P(z >= k | v, y) by position, and the same times s(a) for the trained units."""
    share = 1.0 / deeper_K[0]
    for k in range(len(deeper_K)):
        p = deeper_K[k] * share
        reach_K[k] = F32(0.0 if p < NEGLIGIBLE else p)
    for k in range(size):
        on_K[k] = reach_K[k] * active_K[k]


@_jit
def _label_tables_rows(
    first, last, a_BK, shift_CK, bias_C, beta_K, size, kind, tail, y_B, u_B, score_BC, reach_BCK, beyond_BC, on_BCK,
    z_B, mode_B,
):  # fmt: skip
    K, C = a_BK.shape[1], len(bias_C)
    limit = K if kind == INFINITE else size
    single_5K, double_2K = np.empty((5, K), np.float32), np.empty((2, K), np.float64)
    a_K, small_K, gain_K, active_K, w_K = single_5K[0], single_5K[1], single_5K[2], single_5K[3], single_5K[4]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    for b in range(first, last):
        for c in range(C):
            _shifted(a_BK[b], shift_CK[c], a_K)
            _activity(a_K, beta_K, small_K, gain_K)
            _activate(a_K, small_K, active_K)
            log_sum, beyond = _log_sum(gain_K[:limit], kind, tail, 0.0, t_K, w_K[:limit], deeper_K)
            score_BC[b, c] = log_sum + bias_C[c]
            reach_BCK[b, c], on_BCK[b, c] = ZERO, ZERO
            if kind == FIXED:
                reach_BCK[b, c, :size], on_BCK[b, c, :size] = ONE, active_K[:size]
                z_B[b] = mode_B[b] = size
            else:
                beyond_BC[b, c] = beyond / deeper_K[0]
                _shares(deeper_K, active_K, size, reach_BCK[b, c], on_BCK[b, c])
                if c == y_B[b]:
                    z_B[b] = _inverted(deeper_K, beyond, u_B[b])
                    mode_B[b] = 1 + _first(t_K[:size], _largest(t_K[:size]))


def _label_tables_parts(n, parts, *rest):
    for p in prange(parts):
        _label_tables_rows(n * p // parts, n * (p + 1) // parts, *rest)


_label_tables = _Kernel(_label_tables_rows, _label_tables_parts)


def label_contrast(
    a_BK: Tensor, label_weights_KC: Tensor, label_bias_C: Tensor, y_B: Tensor, order_K: Tensor, beta_K: Tensor,
    size: Tensor, kind: Kind, tail: float, u_pos_B: Tensor, u_neg_B: Tensor,
) -> Contrast:  # fmt: skip
    """Every label's hidden side at once, from activations without a label. Eqs. 30 and 43-46."""
    (B, K), C = a_BK.shape, len(label_bias_C)
    score_BC, beyond_BC = torch.empty(B, C, dtype=torch.float64), a_BK.new_zeros(B, C)
    reach_BCK, on_BCK = (a_BK.new_empty(B, C, K) for _ in range(2))
    z_pos_B, mode_B = (torch.empty(B, dtype=torch.int64) for _ in range(2))
    written = (score_BC, reach_BCK, beyond_BC, on_BCK, z_pos_B, mode_B)
    _label_tables(
        on_BCK.numel(), B, _array(a_BK[:, order_K]), _array(label_weights_KC.T[:, order_K]), _array(label_bias_C),
        _array(beta_K[order_K]), int(size), KINDS[kind], tail, _array(y_B), _array(u_pos_B), *map(_array, written),
    )  # fmt: skip
    return reference.summed_contrast(*written, y_B, order_K, size, u_neg_B)


# -- the visible half-step ----------------------------------------------------------------------------------------


@_jit
def _switch_row(field_D, u_D, v_D):
    for j in range(len(field_D)):
        small = _exp(-abs(field_D[j]))
        v_D[j] = ONE if u_D[j] * (ONE + small) < (small if field_D[j] < ZERO else ONE) else ZERO


@_jit
def _sample_bernoulli_rows(first, last, field_BD, u_BD, key, call, v_BD):
    D = field_BD.shape[1]
    u_4Q, k0, k1 = np.empty((4, -(-D // 4)), np.float32), key & WORD, key >> BITS
    u_D = u_4Q.reshape(u_4Q.size)[:D]
    for b in range(first, last):
        if len(u_BD) == 0:
            _draw(u_4Q, U64(0), call, U64(b), k0, k1)
        else:
            u_D = u_BD[b]
        _switch_row(field_BD[b], u_D, v_BD[b])


def _sample_bernoulli_parts(n, parts, *rest):
    for p in prange(parts):
        _sample_bernoulli_rows(n * p // parts, n * (p + 1) // parts, *rest)


_sample_bernoulli = _Kernel(_sample_bernoulli_rows, _sample_bernoulli_parts)


def sample_bernoulli(field_BD: Tensor, draws: Draws) -> Tensor:
    """v_j = 1 with probability s(field_j): (B, D). Eq. 13. A key stands for its ``row_uniforms`` of the units."""
    field = _array(field_BD)
    u_BD, (key, call) = (NONE_BK, draws) if isinstance(draws, Key) else (_array(draws), (0, 0))
    v_BD = np.empty_like(field)
    _sample_bernoulli(field.size, len(field), field, u_BD, U64(int(key)), U64(call), v_BD)
    return torch.from_numpy(v_BD)


# -- annealing ----------------------------------------------------------------------------------------------------


@_jit
def _heated(a_K, answer_K, tau, heated_K):
    for i in range(len(a_K)):
        heated_K[i] = tau * a_K[i] + (ONE - tau) * answer_K[i]


@_jit
def _pulled(gain_K, kappa, t_K):
    """t_k less kappa (l - k), for k = 1..l; returned, t_l."""
    t, K = 0.0, len(gain_K)
    for k in range(K):
        t += gain_K[k]
        t_K[k] = t - kappa * (K - 1 - k)
    return t


@_jit
def _log_sum(gain_K, kind, tail, kappa, t_K, w_K, deeper_K):
    """ln sum_z e^t, and what is proportional to P(z > l); ``deeper_K`` to P(z >= k)."""
    last = _pulled(gain_K, kappa, t_K)
    if kind == FIXED:
        return last, 0.0
    peak, beyond = _largest(t_K), 0.0
    if kind == INFINITE:
        peak = peak if last + tail <= peak else last + tail
        beyond = float(_exp(F32(last + tail - peak)))
    _weights(t_K, peak, w_K)
    _suffixes(w_K, beyond, deeper_K)
    return peak + np.log(deeper_K[0]), beyond


@_jit
def _annealed_sample_rows(
    first, last, a_BK, answer_MK, part_B, beta_K, kind, tail, tau_2B, kappa_2B, u_B, u_BK, position_K, log_2B, h_BK
):  # fmt: skip
    K = a_BK.shape[1]
    single_4K, double_2K = np.empty((4, K), np.float32), np.empty((2, K), np.float64)
    heated_K, small_K, gain_K, w_K = single_4K[0], single_4K[1], single_4K[2], single_4K[3]
    t_K, deeper_K = double_2K[0], double_2K[1]
    for b in range(first, last):
        beyond = 0.0
        for point in range(2):
            _heated(a_BK[b], answer_MK[part_B[b]], F32(tau_2B[point, b]), heated_K)
            _activity(heated_K, beta_K, small_K, gain_K)
            log_2B[point, b], beyond = _log_sum(gain_K, kind, tail, kappa_2B[point, b], t_K, w_K, deeper_K)
        z = K if kind == FIXED else _inverted(deeper_K, beyond, u_B[b])
        _switch(small_K, heated_K, u_BK[b], position_K, z, h_BK[b])


def _annealed_sample_parts(n, parts, *rest):
    for p in prange(parts):
        _annealed_sample_rows(n * p // parts, n * (p + 1) // parts, *rest)


_annealed_sample = _Kernel(_annealed_sample_rows, _annealed_sample_parts)


def annealed_sample(
    a_BK: Tensor, answer_MK: Tensor, part_B: Tensor, beta_K: Tensor, kind: Kind, tail: float, here: Heat, there: Heat,
    u_B: Tensor, u_BK: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ln sum_z e^t at two points of a path, (B,) each, float64, and h (B, K) sampled at the second."""
    a = _array(a_BK)
    B, K = a.shape
    tau_2B, kappa_2B = (
        np.stack([np.broadcast_to(first.numpy(), B), np.broadcast_to(second.numpy(), B)])
        for first, second in zip(here, there, strict=True)
    )
    log_2B, h_BK = np.empty((2, B)), np.empty_like(a)
    _annealed_sample(
        4 * a.size, B, a, _array(answer_MK), _array(part_B), _array(beta_K), KINDS[kind], tail, tau_2B, kappa_2B,
        _array(u_B), _array(u_BK), np.arange(K, dtype=np.int32), log_2B, h_BK,
    )  # fmt: skip
    return torch.from_numpy(log_2B[0]), torch.from_numpy(log_2B[1]), torch.from_numpy(h_BK)


# -- the update ---------------------------------------------------------------------------------------------------


@_inlined
def _descended(weight, slope, squares, young, rate, epsilon):
    """A parameter after one AdaGrad step, at the plain rate while it is young."""
    return weight - rate * slope / (ONE if young else np.sqrt(squares) + epsilon)


@_jit
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


@_reassociated
def _squared_norm(weight_D):
    total = ZERO
    for j in range(len(weight_D)):
        total += weight_D[j] * weight_D[j]
    return total


@_jit
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


_update = _Kernel(_update_rows, _update_parts)


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
    warm_up: int = 10,
    epsilon: float = 1e-8,
) -> None:
    """One AdaGrad step of a matrix whose rows belong to hidden units, with L2, the L1 threshold and the row norm.

    Changes the parameter and its sum of squares. Rows younger than ``warm_up`` move at the plain rate.
    """
    rate = _rate(lr)
    threshold = F32(rate * F32(l1)) if l1 else ZERO  # an infinite rate is no factor of 0
    _update(
        parameter_KD.numel(), parameter_KD.shape[0], parameter_KD.numpy(), _array(gradient_KD), squares_KD.numpy(),
        _array(age_K), warm_up,
        rate, threshold, F32(l2), F32(np.inf if max_norm is None else max_norm), F32(epsilon),
    )  # fmt: skip


def _rate(lr: float) -> np.float32:
    """Infinite beyond float32: the trainer finds parameters that ran away, and no warning comes before it."""
    return F32(lr if lr <= LARGEST else np.inf)


@_jit
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


# -- what a step decides by counting ------------------------------------------------------------------------------


@_jit
def _by_size(u_M):
    """Places of uniforms from the smallest on, of equal ones the first first.

    Counted into M bins, where they are nearly in order, and then moved past larger neighbours.
    """
    M = len(u_M)
    start_M = np.zeros(M + 1, np.int64)
    for m in range(M):
        start_M[int(u_M[m] * M) + 1] += 1
    for m in range(M):
        start_M[m + 1] += start_M[m]
    place_M = np.empty(M, np.int64)
    for m in range(M):
        bin_ = int(u_M[m] * M)
        place_M[start_M[bin_]] = m
        start_M[bin_] += 1
    for i in range(1, M):
        place, j = place_M[i], i
        while j > 0 and u_M[place_M[j - 1]] > u_M[place]:
            place_M[j] = place_M[j - 1]
            j -= 1
        place_M[j] = place
    return place_M


@_jit
def _shuffle(order_K, length, u_K):
    order_K[:length] = order_K[:length][_by_size(u_K[:length])]


def shuffle_(order_K: Tensor, length: int, u_K: Tensor) -> None:
    """Sort the first ``length`` positions by their uniforms, in place; of two equal ones the first stays first."""
    _shuffle(order_K.numpy(), length, _array(u_K))


@_jit
def _pair_beyond(z_pos_B, z_neg_N, size):
    B, N = len(z_pos_B), len(z_neg_N)
    found = False
    for p in range(max(B, N)):
        found = found or (z_pos_B[p % B] > size and z_neg_N[p % N] > size)
    return found


def grow_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """One unit more where an example and its negative partner both reach beyond l, up to a limit."""
    units = int(size)
    if units < limit and _pair_beyond(_array(z_pos_B), _array(z_neg_N), units):
        size.add_(1)


@_jit
def _tally(sums, mode_B):
    total, largest = 0, 0
    for b in range(len(mode_B)):
        total += mode_B[b]
        largest = max(largest, mode_B[b])
    sums[0] += total
    sums[1] += largest


def tally_(sums: Tensor, mode_B: Tensor) -> None:
    """Add a batch's sum of likeliest z, and its maximum, to the two sums (float64)."""
    _tally(sums.numpy(), _array(mode_B))


def _places(order_K: Tensor) -> Any:
    """The order as unsigned numbers, which an index can be without a look at its sign."""
    return _array(order_K).view(np.uint64)


def _array(tensor: Tensor) -> Any:
    """The tensor's own memory, or a copy where it is a view with gaps."""
    return tensor.contiguous().numpy()
