"""ln of the sum over z in float64, one pass over a row: what free energies are made of."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled.elementary import FIXED, INFINITE, KINDS, exp64, log1p64
from irbm.ops.compiled.hidden import depths, largest
from irbm.ops.compiled.loops import Kernel, array, jit, places, prange, reassociated
from irbm.ops.reference import Kind


@jit
def _gains(a_K, beta_K, gain_K):
    """softplus(a) - beta of each unit."""
    for i in range(len(a_K)):
        a = float(a_K[i])
        gain_K[i] = ((0.0 if a < 0.0 else a) + log1p64(exp64(-abs(a)))) - beta_K[i]


@reassociated
def _summed(t_K, peak):
    """sum_k e^(t_k - peak)."""
    total = 0.0
    for k in range(len(t_K)):
        total += exp64(t_K[k] - peak)
    return total


@jit
def _log_sum_z_rows(first, last, a_BK, order_K, beta_K, size, kind, tail, out_B):
    K = a_BK.shape[1]
    double_2K = np.empty((2, K), np.float64)
    gain_K, t_K = double_2K[0], double_2K[1, : K if kind == INFINITE else size]
    for b in range(first, last):
        _gains(a_BK[b], beta_K, gain_K)
        depths(gain_K, order_K, t_K)
        if kind == FIXED:
            out_B[b] = t_K[-1]
            continue
        peak, beyond = largest(t_K), 0.0
        if kind == INFINITE:
            t_tail = t_K[-1] + tail
            peak = peak if t_tail <= peak else t_tail
            beyond = exp64(t_tail - peak)
        out_B[b] = peak if peak == np.inf else peak + np.log(_summed(t_K, peak) + beyond)


def _log_sum_z_parts(n, parts, *rest):
    for p in prange(parts):
        _log_sum_z_rows(n * p // parts, n * (p + 1) // parts, *rest)


_log_sum_z = Kernel(_log_sum_z_rows, _log_sum_z_parts)


def log_sum_z(a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float) -> Tensor:
    """ln sum_z e^{t_z}: (B,), float64. Eqs. 4-5."""
    out_B = torch.empty(len(a_BK), dtype=torch.float64)
    machine = (places(order_K), array(beta_K.double()), int(size), KINDS[kind], tail)
    _log_sum_z(a_BK.numel(), len(a_BK), array(a_BK), *machine, out_B.numpy())
    return out_B
