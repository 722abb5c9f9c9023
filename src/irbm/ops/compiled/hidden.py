"""The hidden side of rows: the z-table, a sample of h, and what the gradient needs. One pass over a row each."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

from typing import Any

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled.elementary import F32, FIXED, INFINITE, KINDS, NEGLIGIBLE, NEGLIGIBLE32, ONE, ZERO, exp, log1p
from irbm.ops.compiled.loops import Kernel, array, jit, places, prange
from irbm.ops.compiled.philox import BITS, NONE_B, NONE_BK, U64, WORD, draw, draw_one
from irbm.ops.kernels import Draws, Key, Seed
from irbm.ops.reference import Kind


@jit
def activity(a_K, beta_K, small_K, gain_K):
    """e^-|a| and softplus(a) - beta of each unit."""
    for i in range(len(a_K)):
        a = a_K[i]
        small = exp(-abs(a))
        small_K[i] = small
        gain_K[i] = ((ZERO if a < ZERO else a) + log1p(small)) - beta_K[i]


@jit
def _raise(t_K, by):
    for k in range(len(t_K)):
        t_K[k] += by


@jit
def depths(gain_K, order_K, t_K):
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


@jit
def largest(t_K):
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


@jit
def place_of(t_K, value):
    for k in range(len(t_K)):
        if t_K[k] == value:
            return k
    return 0


@jit
def unnormalised(t_K, peak, w_K):
    """e^(t - peak), unnormalised p(z | v). In two loops, because one with both widths in it stays scalar."""
    for k in range(len(t_K)):
        w_K[k] = F32(t_K[k] - peak)
    for k in range(len(w_K)):
        w_K[k] = exp(w_K[k])


@jit
def suffixes(w_K, beyond, deeper_K):
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


@jit
def _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K):
    """The z-table over positions, and what is proportional to P(z >= k | v).

    Returned, that of z beyond the table, and the largest t of z <= l.
    """
    depths(gain_K, order_K, t_K)
    top = largest(t_K[:size])
    rest = largest(t_K[size:])
    peak = rest if rest > top else top
    beyond = 0.0
    if kind == INFINITE:
        t_tail = t_K[-1] + tail
        peak = peak if t_tail <= peak else t_tail
        beyond = float(exp(F32(t_tail - peak)))
    unnormalised(t_K, peak, w_K)
    suffixes(w_K, beyond, deeper_K)
    return beyond, top


@jit
def inverted(deeper_K, beyond, u):
    """z by inversion of P(z >= k), given what is proportional to it. Eq. 16."""
    threshold = u * deeper_K[0]
    z = 2 if threshold < beyond else 1
    for k in range(1, len(deeper_K)):
        z += 1 if threshold < deeper_K[k] else 0
    return z


@jit
def switch(small_K, a_K, u_K, rank_K, z, h_K):
    """h_i = 1 where i is among the first z positions and u < s(a_i). Eq. 12."""
    for i in range(len(a_K)):
        on = u_K[i] * (ONE + small_K[i]) < (small_K[i] if a_K[i] < ZERO else ONE)
        h_K[i] = ONE if on and rank_K[i] < z else ZERO


@jit
def _ranks(order_K):
    rank_K = np.empty(len(order_K), np.uint32)
    for k in range(len(order_K)):
        rank_K[order_K[k]] = k
    return rank_K


@jit
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
            draw(u_4Q, U64(0), call, U64(b), k0, k1)
        else:
            u_K = u_BK[b]
        activity(a_BK[b], beta_K, small_K, gain_K)
        z = size
        if kind != FIXED:
            beyond, _ = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z = inverted(deeper_K, beyond, u_B[b] if len(u_B) else draw_one(call, U64(b), k0, k1))
        z_B[b] = z
        switch(small_K, a_BK[b], u_K, rank_K, z, h_BK[b])


def _hidden_sample_parts(n, parts, *rest):
    for p in prange(parts):
        _hidden_sample_rows(n * p // parts, n * (p + 1) // parts, *rest)


sample_hidden = Kernel(_hidden_sample_rows, _hidden_sample_parts)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor, u_BK: Tensor
) -> tuple[Tensor, Tensor]:
    """z ~ p(z | v) in 1..K+1, then h ~ p(h | v, z) over units: (B,) int64 and (B, K). Eqs. 12 and 16."""
    return _hidden_sampled(a_BK, order_K, beta_K, size, kind, tail, array(u_B), array(u_BK), 0, 0)


def hidden_sample_keyed(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, key: Seed, call: int
) -> tuple[Tensor, Tensor]:
    """``hidden_sample`` with the draws of ``row_uniforms(B, K, key, call)``."""
    return _hidden_sampled(a_BK, order_K, beta_K, size, kind, tail, NONE_B, NONE_BK, key, call)


def _hidden_sampled(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Any, u_BK: Any,
    key: Seed, call: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    a = array(a_BK)
    z_B, h_BK = np.empty(len(a), np.int64), np.empty_like(a)
    sample_hidden(
        a.size, len(a), a, places(order_K), array(beta_K), int(size), KINDS[kind], tail, u_B, u_BK,
        U64(int(key)), U64(call), z_B, h_BK,
    )  # fmt: skip
    return torch.from_numpy(z_B), torch.from_numpy(h_BK)


@jit
def _survive(deeper_K, p_K):
    """P(z >= k | v) by position. Eq. 16."""
    share = 1.0 / deeper_K[0]
    for k in range(len(p_K)):
        p = deeper_K[k] * share
        p_K[k] = F32(0.0 if p < NEGLIGIBLE else p)


@jit
def _placed(p_K, rank_K, reach_K):
    """By unit what is by position."""
    for i in range(len(reach_K)):
        reach_K[i] = p_K[rank_K[i]]


@jit
def activate(a_K, small_K, active_K):
    for i in range(len(a_K)):
        p = (small_K[i] if a_K[i] < ZERO else ONE) / (ONE + small_K[i])
        active_K[i] = ZERO if p < NEGLIGIBLE32 else p


@jit
def _hidden_reach_rows(first, last, a_BK, order_K, beta_K, size, kind, tail, u_B, reach_BK, active_BK, z_B, mode_B):
    K = a_BK.shape[1]
    rank_K = _ranks(order_K)
    limit = K if kind == INFINITE else size
    single_4K, double_2K = np.empty((4, K), np.float32), np.empty((2, K), np.float64)
    small_K, gain_K, w_K, p_K = single_4K[0], single_4K[1], single_4K[2, :limit], single_4K[3]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    p_K[:size], p_K[size:] = ONE, ZERO
    for b in range(first, last):
        activity(a_BK[b], beta_K, small_K, gain_K)
        activate(a_BK[b], small_K, active_BK[b])
        z_B[b] = mode_B[b] = size
        if kind != FIXED:
            beyond, top = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z_B[b] = inverted(deeper_K, beyond, u_B[b])
            mode_B[b] = 1 + place_of(t_K[:size], top)
            _survive(deeper_K, p_K[:size])
        _placed(p_K, rank_K, reach_BK[b])


def _hidden_reach_parts(n, parts, *rest):
    for p in prange(parts):
        _hidden_reach_rows(n * p // parts, n * (p + 1) // parts, *rest)


_hidden_reach = Kernel(_hidden_reach_rows, _hidden_reach_parts)


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the gradients and the growth need of p(z, h | v). Eqs. 15-16, and 33 of sec. 4.1.

    P(z >= position of i | v) for each unit, 0 for padding, and s(a_i): both (B, K); then z ~ p(z | v) in 1..K+1 and
    the first argmax of p(z | v) over z <= l: both (B,), int64. What is below ``NEGLIGIBLE`` reads 0.
    """
    a = array(a_BK)
    reach_BK, active_BK = np.empty_like(a), np.empty_like(a)
    z_B, mode_B = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    _hidden_reach(
        a.size, len(a), a, places(order_K), array(beta_K), int(size), KINDS[kind], tail, array(u_B),
        reach_BK, active_BK, z_B, mode_B,
    )  # fmt: skip
    return torch.from_numpy(reach_BK), torch.from_numpy(active_BK), torch.from_numpy(z_B), torch.from_numpy(mode_B)


@jit
def _weigh(p_K, rank_K, active_K, share, on_K):
    for i in range(len(on_K)):
        on_K[i] = p_K[rank_K[i]] * share * active_K[i]


@jit
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
        activity(a_RK[r], beta_K, small_K, gain_K)
        activate(a_RK[r], small_K, active_K)
        z = mode = size
        if kind != FIXED:
            beyond, top = _table(gain_K, order_K, size, kind, tail, t_K, w_K, deeper_K)
            z = inverted(deeper_K, beyond, u_R[r] if len(u_R) else draw_one(call, U64(r), k0, k1))
            mode = 1 + place_of(t_K[:size], top)
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


_phase = Kernel(_phase_rows, _phase_parts)


def phases(
    a_RK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, draws: Draws,
    share_R: Tensor, *, sampled: bool, sloped: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """``hidden_reach`` weighed as the gradient wants it, by unit, in one pass.

    First P(z >= position of i | v) s(a_i) times the row's share, (R, K); with the sampled z in place of the
    probability where ``sampled``. Then the same without s(a_i) where penalties have a slope. Then z and mode, (R,).
    """
    a = array(a_RK)
    u_R, (key, call) = (NONE_B, draws) if isinstance(draws, Key) else (array(draws), (0, 0))
    on_RK, reach_RK = np.empty_like(a), np.empty_like(a) if sloped else NONE_BK
    z_R, mode_R = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    _phase(
        a.size, len(a), a, places(order_K), array(beta_K), int(size), KINDS[kind], tail, u_R,
        U64(int(key)), U64(call), array(share_R), sampled, on_RK, reach_RK, z_R, mode_R,
    )  # fmt: skip
    reach = torch.from_numpy(reach_RK) if sloped else None
    return torch.from_numpy(on_RK), reach, torch.from_numpy(z_R), torch.from_numpy(mode_R)
