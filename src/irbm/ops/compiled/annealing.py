"""The hidden half-step of annealing: two sums over z, and a sample of h."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled.elementary import F32, FIXED, INFINITE, KINDS, ONE, exp
from irbm.ops.compiled.hidden import activity, inverted, largest, suffixes, switch, unnormalised
from irbm.ops.compiled.loops import Kernel, array, jit, prange
from irbm.ops.reference import Heat, Kind


@jit
def _heated(a_K, answer_K, tau, heated_K):
    for i in range(len(a_K)):
        heated_K[i] = tau * a_K[i] + (ONE - tau) * answer_K[i]


@jit
def _pulled(gain_K, kappa, t_K):
    """t_k less kappa (l - k), for k = 1..l; returned, t_l."""
    t, K = 0.0, len(gain_K)
    for k in range(K):
        t += gain_K[k]
        t_K[k] = t - kappa * (K - 1 - k)
    return t


@jit
def log_summed(gain_K, kind, tail, kappa, t_K, w_K, deeper_K):
    """ln sum_z e^t, and what is proportional to P(z > l); ``deeper_K`` to P(z >= k)."""
    last = _pulled(gain_K, kappa, t_K)
    if kind == FIXED:
        return last, 0.0
    peak, beyond = largest(t_K), 0.0
    if kind == INFINITE:
        peak = peak if last + tail <= peak else last + tail
        beyond = float(exp(F32(last + tail - peak)))
    unnormalised(t_K, peak, w_K)
    suffixes(w_K, beyond, deeper_K)
    return peak + np.log(deeper_K[0]), beyond


@jit
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
            activity(heated_K, beta_K, small_K, gain_K)
            log_2B[point, b], beyond = log_summed(gain_K, kind, tail, kappa_2B[point, b], t_K, w_K, deeper_K)
        z = K if kind == FIXED else inverted(deeper_K, beyond, u_B[b])
        switch(small_K, heated_K, u_BK[b], position_K, z, h_BK[b])


def _annealed_sample_parts(n, parts, *rest):
    for p in prange(parts):
        _annealed_sample_rows(n * p // parts, n * (p + 1) // parts, *rest)


_annealed_sample = Kernel(_annealed_sample_rows, _annealed_sample_parts)


def annealed_sample(
    a_BK: Tensor, answer_MK: Tensor, part_B: Tensor, beta_K: Tensor, kind: Kind, tail: float, here: Heat, there: Heat,
    u_B: Tensor, u_BK: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ln sum_z e^t at two points of a path, (B,) each, float64, and h (B, K) sampled at the second."""
    a = array(a_BK)
    B, K = a.shape
    tau_2B, kappa_2B = (
        np.stack([np.broadcast_to(first.numpy(), B), np.broadcast_to(second.numpy(), B)])
        for first, second in zip(here, there, strict=True)
    )
    log_2B, h_BK = np.empty((2, B)), np.empty_like(a)
    _annealed_sample(
        4 * a.size, B, a, array(answer_MK), array(part_B), array(beta_K), KINDS[kind], tail, tau_2B, kappa_2B,
        array(u_B), array(u_BK), np.arange(K, dtype=np.int32), log_2B, h_BK,
    )  # fmt: skip
    return torch.from_numpy(log_2B[0]), torch.from_numpy(log_2B[1]), torch.from_numpy(h_BK)
