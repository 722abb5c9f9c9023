"""The visible half-step."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled.elementary import ONE, ZERO, exp
from irbm.ops.compiled.loops import Kernel, array, jit, prange
from irbm.ops.compiled.philox import BITS, NONE_BK, U64, WORD, draw
from irbm.ops.kernels import Draws, Key


@jit
def _switch_row(field_D, u_D, v_D):
    for j in range(len(field_D)):
        small = exp(-abs(field_D[j]))
        v_D[j] = ONE if u_D[j] * (ONE + small) < (small if field_D[j] < ZERO else ONE) else ZERO


@jit
def _sample_bernoulli_rows(first, last, field_BD, u_BD, key, call, v_BD):
    D = field_BD.shape[1]
    u_4Q, k0, k1 = np.empty((4, -(-D // 4)), np.float32), key & WORD, key >> BITS
    u_D = u_4Q.reshape(u_4Q.size)[:D]
    for b in range(first, last):
        if len(u_BD) == 0:
            draw(u_4Q, U64(0), call, U64(b), k0, k1)
        else:
            u_D = u_BD[b]
        _switch_row(field_BD[b], u_D, v_BD[b])


def _sample_bernoulli_parts(n, parts, *rest):
    for p in prange(parts):
        _sample_bernoulli_rows(n * p // parts, n * (p + 1) // parts, *rest)


_sample_bernoulli = Kernel(_sample_bernoulli_rows, _sample_bernoulli_parts)


def sample_bernoulli(field_BD: Tensor, draws: Draws) -> Tensor:
    """v_j = 1 with probability s(field_j): (B, D). Eq. 13. A key stands for its ``row_uniforms`` of the units."""
    field = array(field_BD)
    u_BD, (key, call) = (NONE_BK, draws) if isinstance(draws, Key) else (array(draws), (0, 0))
    v_BD = np.empty_like(field)
    _sample_bernoulli(field.size, len(field), field, u_BD, U64(int(key)), U64(call), v_BD)
    return torch.from_numpy(v_BD)
