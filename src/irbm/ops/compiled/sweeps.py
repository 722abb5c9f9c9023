"""Whole Gibbs sweeps, in memory that is asked for once: between two products there is little to do besides."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

from collections.abc import Callable

import numpy as np
from torch import Tensor

from irbm.ops.compiled.elementary import KINDS
from irbm.ops.compiled.hidden import sample_hidden
from irbm.ops.compiled.loops import array, places
from irbm.ops.compiled.philox import NONE_B, NONE_BK, U64
from irbm.ops.compiled.tables import Tables
from irbm.ops.compiled.visible import sample_visible
from irbm.ops.kernels import Key
from irbm.ops.reference import Kind


def gibbs(
    v_BD: Tensor, upward: Tables, downward: Tables, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind,
    tail: float, next_key: Callable[[], Key], n_steps: int,
) -> Tensor:  # fmt: skip
    """v after ``n_steps`` sweeps z -> h -> v: those of ``hidden_sample_keyed`` and ``sample_bernoulli``, a key each."""
    (B, D), K = v_BD.shape, len(order_K)
    a_BK, h_BK, field_BD, new_BD = (v_BD.new_empty(B, n) for n in (K, K, D, D))
    a, h, field, new = a_BK.numpy(), h_BK.numpy(), field_BD.numpy(), new_BD.numpy()
    hidden = (places(order_K), array(beta_K), int(size), KINDS[kind], tail, NONE_B, NONE_BK)
    z_B = np.empty(B, np.int64)
    for _ in range(n_steps):
        upward.linear(v_BD, a_BK)
        key, call = next_key()
        sample_hidden(B * K, B, a, *hidden, U64(key), U64(call), z_B, h)
        downward.linear(h_BK, field_BD)
        key, call = next_key()
        sample_visible(B * D, B, field, NONE_BK, U64(key), U64(call), new)
        v_BD = new_BD
    return v_BD
