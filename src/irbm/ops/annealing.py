"""Both half-steps of annealing, each in one fused Triton kernel: two sums over z and a sample of h; a part and v.

The slow twins are ``reference.annealed_sample``, and ``annealed_field`` with ``sample_bernoulli``. As in ``fused``, a
program owns one row, and gains are added up in float64; here the weights of z are, too. Where float32 made P(z >= k) of
a certainty 0.9999999, one draw in ten million took z back to 1, a step of next to no probability, and a chain's weight
was lost to it by tens of nats.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import torch
from torch import Tensor

from irbm.ops.fused import gains, inverted, sigmoid
from irbm.ops.kernels import (
    FOR_HIDDEN,
    FOR_VISIBLE,
    Key,
    check_readable,
    constexpr,
    jit,
    key_of,
    row_launch,
    row_uniforms,
    tl,
    triton,
    z_uniform,
)
from irbm.ops.reference import Heat, Kind

MOST_IN_BASE = 64  # parts, whose weights are all added up with each other at once
FEWEST_IN_BASE = 16  # that a kernel is compiled for, so that it is for few numbers


@jit
def _heated(a_K, answer_K, beta_K, at_K, inside_K, K, tail, tau, kappa, KIND: constexpr):
    """The activations at a point of a path, ln sum_z e^t (float64), P(z >= k) at each position, P(z > K)."""
    share = tau.to(tl.float32)
    a_K = share * a_K + (1.0 - share) * answer_K
    gain_K = gains(a_K, beta_K, inside_K)
    total = tl.sum(gain_K, 0)
    if KIND == "fixed":
        reach_K = tl.where(inside_K, 1.0, 0.0)
        log_sum = total
        beyond = total * 0.0
    else:
        t_K = tl.cumsum(gain_K, 0) - kappa * (K - 1 - at_K).to(tl.float64)
        t_K = tl.where(inside_K, t_K, float("-inf"))
        peak = tl.max(t_K, 0)
        if KIND == "infinite":
            peak = tl.maximum(peak, total + tail)
            beyond = tl.exp((total + tail - peak).to(tl.float32)).to(tl.float64)
        else:
            beyond = total * 0.0
        weight_K = tl.exp((t_K - peak).to(tl.float32)).to(tl.float64)
        sum_of = tl.sum(weight_K, 0) + beyond
        reach_K = (tl.cumsum(weight_K, 0, reverse=True) + beyond) / sum_of
        beyond = beyond / sum_of
        log_sum = peak + tl.log(sum_of)
    return a_K, log_sum, reach_K, beyond


@jit
def _annealed_kernel(
    a_BK, answer_MK, part_B, beta_K, tail, tau_here, kappa_here, tau_there, kappa_there, heat_stride, seed, stream,
    log_here_B, log_there_B, h_BK, K,
    KIND: constexpr, BY_POINTER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    a_K = tl.load(a_BK + row * K + at_K, mask=inside_K, other=0.0)
    answer_K = tl.load(answer_MK + tl.load(part_B + row) * K + at_K, mask=inside_K, other=0.0)
    penalty_K = tl.load(beta_K + at_K, mask=inside_K, other=0.0)
    heat = row * heat_stride
    tau, kappa = tl.load(tau_here + heat), tl.load(kappa_here + heat)
    _, here, _, _ = _heated(a_K, answer_K, penalty_K, at_K, inside_K, K, tail, tau, kappa, KIND)
    tau, kappa = tl.load(tau_there + heat), tl.load(kappa_there + heat)
    a_K, there, reach_K, beyond = _heated(a_K, answer_K, penalty_K, at_K, inside_K, K, tail, tau, kappa, KIND)
    key = key_of(seed, BY_POINTER)
    z = inverted(reach_K, beyond, at_K, inside_K, z_uniform(key, stream, row))
    u_K = row_uniforms(key, stream, row, 0, FOR_HIDDEN, BLOCK)
    on_K = (u_K < sigmoid(a_K)) & (at_K < z)
    tl.store(log_here_B + row, here)
    tl.store(log_there_B + row, there)
    tl.store(h_BK + row * K + at_K, on_K.to(tl.float32), mask=inside_K)


def annealed_sample(
    a_BK: Tensor, answer_MK: Tensor, part_B: Tensor, beta_K: Tensor, kind: Kind, tail: float, here: Heat, there: Heat,
    key: Key,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ln sum_z e^t at two points of a path, (B,) each, float64, and h (B, K) sampled at the second.

    The draws are those of ``fused.hidden_uniforms(B, K, *key)``.
    """
    check_readable(a=a_BK, answer=answer_MK, part=part_B, beta=beta_K)
    B, K = a_BK.shape
    log_here_B, log_there_B = (torch.empty(B, dtype=torch.float64, device=a_BK.device) for _ in range(2))
    h_BK = torch.empty_like(a_BK)
    heats = (t.contiguous() for t in (*here, *there))
    with torch.cuda.device_of(a_BK):
        _annealed_kernel[(B,)](
            a_BK, answer_MK, part_B, beta_K, tail, *heats, here.tau.dim(), *key,
            log_here_B, log_there_B, h_BK, K,
            KIND=kind, BY_POINTER=isinstance(key.seed, Tensor), **row_launch(K),
        )  # fmt: skip
    return log_here_B, log_there_B, h_BK


@jit
def _chosen(score_M, at_M, M, u):
    """A part by inversion of its weights e^score. Sums by pairs, as scans of fewer numbers than threads go wrong."""
    weight_M = tl.exp((score_M - tl.max(score_M, 0)).to(tl.float32)).to(tl.float64)
    up_to_M = tl.sum(tl.where(at_M[None, :] <= at_M[:, None], weight_M[None, :], 0.0), 1)
    threshold = u.to(tl.float64) * tl.sum(weight_M, 0)
    return tl.sum(((threshold >= up_to_M) & (at_M < M - 1)).to(tl.int64), 0)


@jit
def _visible_kernel(
    field_BD, bias_MD, log_share_M, base_BM, answer_BM, tau, tau_stride, seed, stream, part_B, v_BD, D, M,
    BY_POINTER: constexpr, PARTS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    key = key_of(seed, BY_POINTER)
    share = tl.load(tau + row * tau_stride)
    at_M = tl.arange(0, PARTS)
    is_part_M = at_M < M
    base_M = tl.load(base_BM + row * M + at_M, mask=is_part_M, other=0.0)
    answer_M = tl.load(answer_BM + row * M + at_M, mask=is_part_M, other=0.0)
    pi_M = tl.load(log_share_M + at_M, mask=is_part_M, other=float("-inf"))
    part = _chosen((1.0 - share) * (base_M + answer_M) + pi_M, at_M, M, z_uniform(key, stream, row))
    at_D = tl.arange(0, BLOCK)
    inside_D = at_D < D
    share = share.to(tl.float32)
    field_D = tl.load(field_BD + row * D + at_D, mask=inside_D, other=0.0)
    bias_D = tl.load(bias_MD + part * D + at_D, mask=inside_D, other=0.0)
    u_D = row_uniforms(key, stream, row, 0, FOR_VISIBLE, BLOCK)
    on_D = u_D < sigmoid(share * field_D + (1.0 - share) * bias_D)
    tl.store(part_B + row, part)
    tl.store(v_BD + row * D + at_D, on_D.to(tl.float32), mask=inside_D)


def annealed_visible(
    field_BD: Tensor, bias_MD: Tensor, log_share_M: Tensor, base_BM: Tensor, answer_BM: Tensor, tau: Tensor, key: Key
) -> tuple[Tensor, Tensor]:
    """A part of the base, of at most ``MOST_IN_BASE``, then v at a point of a path: (B,) int64 and (B, D).

    The draws are the first of ``fused.hidden_uniforms(B, 1, *key)`` and ``fused.visible_uniforms(B, D, *key)``.
    """
    check_readable(field=field_BD, bias=bias_MD, answer=answer_BM)
    (B, D), M = field_BD.shape, len(bias_MD)
    part_B, v_BD = torch.empty(B, dtype=torch.int64, device=field_BD.device), torch.empty_like(field_BD)
    with torch.cuda.device_of(field_BD):
        _visible_kernel[(B,)](
            field_BD, bias_MD, log_share_M.contiguous(), base_BM.contiguous(), answer_BM, tau.contiguous(), tau.dim(),
            *key, part_B, v_BD, D, M,
            BY_POINTER=isinstance(key.seed, Tensor), PARTS=max(triton.next_power_of_2(M), FEWEST_IN_BASE),
            **row_launch(D),
        )  # fmt: skip
    return part_B, v_BD
