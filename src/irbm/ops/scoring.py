"""ln of the sum over z in one fused Triton kernel, in float64 from end to end: a program owns one row.

The slow twin is ``reference.log_sum_z``. Free energies are made of it, and are right to the last digits of float64.

Shapes: B rows, K hidden units (padding included). Tables over K run over positions.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import torch
from torch import Tensor

from irbm.ops.fused import gains, hidden_launch, units_at
from irbm.ops.kernels import constexpr, jit, tl
from irbm.ops.reference import Kind


@jit
def _log_sum_z_kernel(a_BK, order_K, beta_K, size, tail_1, out_B, K, KIND: constexpr, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = units_at(order_K, at_K, inside_K)
    a_K = tl.load(a_BK + row * K + unit_K, mask=inside_K, other=0.0).to(tl.float64)
    gain_K = gains(a_K, tl.load(beta_K + unit_K, mask=inside_K, other=0.0), inside_K)
    units = tl.load(size)
    if KIND == "fixed":
        log_sum = tl.sum(tl.where(at_K < units, gain_K, 0.0), 0)
    else:
        possible_K = inside_K if KIND == "infinite" else at_K < units
        t_K = tl.where(possible_K, tl.cumsum(gain_K, 0), float("-inf"))
        peak = tl.max(t_K, 0)
        if KIND == "infinite":
            t_tail = tl.sum(gain_K, 0) + tl.load(tail_1)
            peak = tl.maximum(peak, t_tail)
        shift = tl.where(peak == float("inf"), 0.0, peak)  # less itself that would be no number
        total = tl.sum(tl.exp(t_K - shift), 0)
        if KIND == "infinite":
            total += tl.exp(t_tail - shift)
        log_sum = shift + tl.log(total)
    tl.store(out_B + row, log_sum)


def log_sum_z(a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float) -> Tensor:
    """ln sum_z e^{t_z}: (B,), float64. Eqs. 4-5."""
    (B, K), out_B = a_BK.shape, torch.empty(len(a_BK), dtype=torch.float64, device=a_BK.device)
    if not B:  # a launch of no program is an error
        return out_B
    tail_1 = torch.full((1,), tail, dtype=torch.float64, device=a_BK.device)  # a number would come as float32
    with torch.cuda.device_of(a_BK):
        _log_sum_z_kernel[(B,)](
            a_BK.contiguous(), order_K.contiguous(), beta_K.contiguous(), size, tail_1, out_B, K,
            KIND=kind, **hidden_launch(B, K),
        )  # fmt: skip
    return out_B
