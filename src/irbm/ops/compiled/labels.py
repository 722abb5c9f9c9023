"""Every label of an example at once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
import torch
from torch import Tensor

from irbm.ops import reference
from irbm.ops.compiled.annealing import log_summed
from irbm.ops.compiled.elementary import F32, FIXED, INFINITE, KINDS, NEGLIGIBLE, ONE, ZERO
from irbm.ops.compiled.hidden import activate, activity, inverted, largest, place_of
from irbm.ops.compiled.loops import Kernel, array, jit, prange
from irbm.ops.reference import Contrast, Labelled


@jit
def _shifted(a_K, shift_K, sum_K):
    for k in range(len(a_K)):
        sum_K[k] = a_K[k] + shift_K[k]


@jit
def _shares(deeper_K, active_K, size, reach_K, on_K):
    """P(z >= k | v, y) by position, and the same times s(a) for the trained units."""
    share = 1.0 / deeper_K[0]
    for k in range(len(deeper_K)):
        p = deeper_K[k] * share
        reach_K[k] = F32(0.0 if p < NEGLIGIBLE else p)
    for k in range(size):
        on_K[k] = reach_K[k] * active_K[k]


@jit
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
            activity(a_K, beta_K, small_K, gain_K)
            activate(a_K, small_K, active_K)
            log_sum, beyond = log_summed(gain_K[:limit], kind, tail, 0.0, t_K, w_K[:limit], deeper_K)
            score_BC[b, c] = log_sum + bias_C[c]
            reach_BCK[b, c], on_BCK[b, c] = ZERO, ZERO
            if kind == FIXED:
                reach_BCK[b, c, :size], on_BCK[b, c, :size] = ONE, active_K[:size]
                z_B[b] = mode_B[b] = size
            else:
                beyond_BC[b, c] = beyond / deeper_K[0]
                _shares(deeper_K, active_K, size, reach_BCK[b, c], on_BCK[b, c])
                if c == y_B[b]:
                    z_B[b] = inverted(deeper_K, beyond, u_B[b])
                    mode_B[b] = 1 + place_of(t_K[:size], largest(t_K[:size]))


def _label_tables_parts(n, parts, *rest):
    for p in prange(parts):
        _label_tables_rows(n * p // parts, n * (p + 1) // parts, *rest)


_label_tables = Kernel(_label_tables_rows, _label_tables_parts)


def label_contrast(a_BK: Tensor, y_B: Tensor, machine: Labelled, u_pos_B: Tensor, u_neg_B: Tensor) -> Contrast:
    """Every label's hidden side at once, from activations without a label. Eqs. 30 and 43-46."""
    (B, K), C, order_K = a_BK.shape, len(machine.bias_C), machine.order_K
    score_BC, beyond_BC = torch.empty(B, C, dtype=torch.float64), a_BK.new_zeros(B, C)
    reach_BCK, on_BCK = (a_BK.new_empty(B, C, K) for _ in range(2))
    z_pos_B, mode_B = (torch.empty(B, dtype=torch.int64) for _ in range(2))
    written = (score_BC, reach_BCK, beyond_BC, on_BCK, z_pos_B, mode_B)
    _label_tables(
        on_BCK.numel(), B, array(a_BK[:, order_K]), array(machine.weights_KC.T[:, order_K]), array(machine.bias_C),
        array(machine.beta_K[order_K]), int(machine.size), KINDS[machine.kind], machine.tail, array(y_B),
        array(u_pos_B), *map(array, written),
    )  # fmt: skip
    return reference.summed_contrast(*written, y_B, order_K, machine.size, u_neg_B)


@jit
def _label_scores_rows(first, last, a_BK, shift_CK, bias_C, beta_K, size, kind, tail, score_BC):
    K = a_BK.shape[1]
    limit = K if kind == INFINITE else size
    single_4K, double_2K = np.empty((4, K), np.float32), np.empty((2, K), np.float64)
    a_K, small_K, gain_K, w_K = single_4K[0], single_4K[1], single_4K[2], single_4K[3]
    t_K, deeper_K = double_2K[0, :limit], double_2K[1, :limit]
    for b in range(first, last):
        for c in range(len(bias_C)):
            _shifted(a_BK[b], shift_CK[c], a_K)
            activity(a_K, beta_K, small_K, gain_K)
            log_sum, _ = log_summed(gain_K[:limit], kind, tail, 0.0, t_K, w_K[:limit], deeper_K)
            score_BC[b, c] = log_sum + bias_C[c]


def _label_scores_parts(n, parts, *rest):
    for p in prange(parts):
        _label_scores_rows(n * p // parts, n * (p + 1) // parts, *rest)


_label_scores = Kernel(_label_scores_rows, _label_scores_parts)


def label_scores(a_BK: Tensor, machine: Labelled) -> Tensor:
    """d_y + ln sum_z e^{t_z(v, y)} of every label, from activations without one: (B, C), float64. Eq. 31."""
    (B, K), C, order_K = a_BK.shape, len(machine.bias_C), machine.order_K
    score_BC = torch.empty(B, C, dtype=torch.float64)
    _label_scores(
        B * C * K, B, array(a_BK[:, order_K]), array(machine.weights_KC.T[:, order_K]), array(machine.bias_C),
        array(machine.beta_K[order_K]), int(machine.size), KINDS[machine.kind], machine.tail, score_BC.numpy(),
    )  # fmt: skip
    return score_BC
