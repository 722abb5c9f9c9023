"""The hidden half-step of annealing in one fused Triton kernel: two sums over z, and a sample of h, in one launch.

The slow twin is ``reference.annealed_sample``. As in ``fused``, a program owns one row, and gains are added up in
float64; here the weights of z are, too. Where float32 made P(z >= k) of a certainty 0.9999999, one draw in ten million
took z back to 1, a step of next to no probability, and a chain's weight was lost to it by tens of nats.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import torch
from torch import Tensor

from irbm.ops.fused import gains, inverted, sigmoid
from irbm.ops.kernels import (
    FOR_HIDDEN,
    Key,
    check_readable,
    constexpr,
    jit,
    key_of,
    row_launch,
    row_uniforms,
    tl,
    z_uniform,
)
from irbm.ops.reference import Heat, Kind


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
    with torch.cuda.device_of(a_BK):
        _annealed_kernel[(B,)](
            a_BK, answer_MK, part_B, beta_K, tail, here.tau, here.kappa, there.tau, there.kappa, here.tau.dim(), *key,
            log_here_B, log_there_B, h_BK, K,
            KIND=kind, BY_POINTER=isinstance(key.seed, Tensor), **row_launch(K),
        )  # fmt: skip
    return log_here_B, log_there_B, h_BK
