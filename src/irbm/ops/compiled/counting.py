"""What a step decides by counting: the shuffle of the order, growth, and the sums of likeliest z."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np
from torch import Tensor

from irbm.ops.compiled.loops import array, jit


@jit
def _by_size(u_M):
    """Places of uniforms from the smallest on, of equal ones the first first.

    Counted into M bins, where they are nearly in order, and then moved past larger neighbours.
    """
    M = len(u_M)
    start_M = np.zeros(M + 1, np.int64)
    for m in range(M):
        start_M[int(u_M[m] * M) + 1] += 1
    for m in range(M):
        start_M[m + 1] += start_M[m]
    place_M = np.empty(M, np.int64)
    for m in range(M):
        bin_ = int(u_M[m] * M)
        place_M[start_M[bin_]] = m
        start_M[bin_] += 1
    for i in range(1, M):
        place, j = place_M[i], i
        while j > 0 and u_M[place_M[j - 1]] > u_M[place]:
            place_M[j] = place_M[j - 1]
            j -= 1
        place_M[j] = place
    return place_M


@jit
def _shuffle(order_K, length, u_K):
    order_K[:length] = order_K[:length][_by_size(u_K[:length])]


def shuffle_(order_K: Tensor, length: int, u_K: Tensor) -> None:
    """Sort the first ``length`` positions by their uniforms, in place; of two equal ones the first stays first."""
    _shuffle(order_K.numpy(), length, array(u_K))


@jit
def _pair_beyond(z_pos_B, z_neg_N, size):
    B, N = len(z_pos_B), len(z_neg_N)
    found = False
    for p in range(max(B, N)):
        found = found or (z_pos_B[p % B] > size and z_neg_N[p % N] > size)
    return found


def grow_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """One unit more where an example and its negative partner both reach beyond l, up to a limit."""
    units = int(size)
    if units < limit and _pair_beyond(array(z_pos_B), array(z_neg_N), units):
        size.add_(1)


@jit
def _tally(sums, mode_B):
    total, largest = 0, 0
    for b in range(len(mode_B)):
        total += mode_B[b]
        largest = max(largest, mode_B[b])
    sums[0] += total
    sums[1] += largest


def tally_(sums: Tensor, mode_B: Tensor) -> None:
    """Add a batch's sum of likeliest z, and its maximum, to the two sums (float64)."""
    _tally(sums.numpy(), array(mode_B))
