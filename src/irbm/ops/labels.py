"""Every label of an example at once in one fused Triton kernel: a program owns one example and one label.

The slow twins are ``reference.log_sum_z`` and ``reference.label_contrast``. As in ``fused``, gains are added up in
float64, and what is left after subtracting the largest t is float32.

Shapes: B examples, C classes, K hidden units (padding included). Tables over K run over positions.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

from collections.abc import Sequence

import torch
from torch import Tensor

from irbm.ops import reference as ops
from irbm.ops.fused import depth, hidden_launch, inverted, sigmoid, units_at
from irbm.ops.kernels import check_readable, constexpr, jit, tl
from irbm.ops.reference import Contrast, Labelled


@jit
def _label_kernel(
    a_BK, shift_CK, bias_C, order_K, beta_K, size, tail, y_B, u_B,
    score_BC, reach_BCK, beyond_BC, on_BCK, z_B, mode_B, C, K,
    KIND: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    example, label = row // C, row % C
    at_K = tl.arange(0, BLOCK)
    inside_K = at_K < K
    unit_K = units_at(order_K, at_K, inside_K)
    a_K = tl.load(a_BK + example * K + unit_K, mask=inside_K, other=0.0)
    a_K += tl.load(shift_CK + label * K + unit_K, mask=inside_K, other=0.0)
    penalty_K = tl.load(beta_K + unit_K, mask=inside_K, other=0.0)
    units = tl.load(size)
    reach_K, beyond, mode, log_sum = depth(a_K, penalty_K, at_K, inside_K, units, tail, KIND)
    tl.store(score_BC + row, log_sum + tl.load(bias_C + label).to(tl.float64))
    if reach_BCK is not None:
        tl.store(reach_BCK + row * K + at_K, reach_K, mask=inside_K)
        tl.store(beyond_BC + row, beyond)
        tl.store(on_BCK + row * K + at_K, tl.where(at_K < units, reach_K, 0.0) * sigmoid(a_K), mask=inside_K)
        given = label == tl.load(y_B + example)
        tl.store(z_B + example, inverted(reach_K, beyond, at_K, inside_K, tl.load(u_B + example)), mask=given)
        tl.store(mode_B + example, mode, mask=given)


def label_scores(a_BK: Tensor, machine: Labelled) -> Tensor:
    """d_y + ln sum_z e^{t_z(v, y)}: (B, C), float64. Eq. 31."""
    return _launched(a_BK, machine, [None] * 7)


def _launched(a_BK: Tensor, machine: Labelled, rest: Sequence[Tensor | None]) -> Tensor:
    """The scores. ``rest``: labels, uniforms, and what the kernel is to write beside scores; or seven times None."""
    check_readable(a=a_BK, label_bias=machine.bias_C, order=machine.order_K, beta=machine.beta_K)
    (B, K), C = a_BK.shape, len(machine.bias_C)
    score_BC = torch.empty(B, C, dtype=torch.float64, device=a_BK.device)
    with torch.cuda.device_of(a_BK):
        _label_kernel[(B * C,)](
            a_BK, machine.weights_KC.T.contiguous(), machine.bias_C, machine.order_K, machine.beta_K, machine.size,
            machine.tail, *rest[:2], score_BC, *rest[2:], C, K, KIND=machine.kind, **hidden_launch(B * C, K),
        )  # fmt: skip
    return score_BC


def label_contrast(a_BK: Tensor, y_B: Tensor, machine: Labelled, u_pos_B: Tensor, u_neg_B: Tensor) -> Contrast:
    """Every label's hidden side at once, from activations without a label. Eqs. 30 and 43-46."""
    (B, K), C = a_BK.shape, len(machine.bias_C)
    reach_BCK, on_BCK = (a_BK.new_empty(B, C, K) for _ in range(2))
    beyond_BC = a_BK.new_empty(B, C)
    z_pos_B, mode_B = (torch.empty(B, dtype=torch.int64, device=a_BK.device) for _ in range(2))
    written = (reach_BCK, beyond_BC, on_BCK, z_pos_B, mode_B)
    score_BC = _launched(a_BK, machine, (y_B, u_pos_B, *written))
    return ops.summed_contrast(score_BC, *written, y_B, machine.order_K, machine.size, u_neg_B)
