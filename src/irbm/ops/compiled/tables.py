"""Products with rows of 0 and 1 by look-up, in less time than BLAS takes where there is enough to multiply.

Four bits choose one of sixteen sums of four rows of the matrix. These are written down once, and one addition does the
work of four multiplications for every row that looks them up: the method of the four Russians (Arlazarov, Dinic,
Kronrod and Faradzhev 1970). Sums are in float32, in an order of their own; no result depends on the number of threads.

Shapes: B rows of bits, N bits a row, W words a row, R columns of the matrix.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irbm.ops.compiled import vectors
from irbm.ops.compiled.elementary import ONE, ZERO
from irbm.ops.compiled.loops import Kernel, array, jit, prange, runs_on
from irbm.ops.compiled.philox import U64, WORD
from irbm.ops.compiled.vectors import BITS, TABLE, TABLES, TILE, WIDTH

WORD_BITS = 32
LEAST_ROWS = 64  # that pay for the tables, and for a transposition
LEAST_SIDE = 96  # of the matrix: words and blocks of columns are to be filled
LEAST_WORK = 20_000_000  # multiplications; what is less is done before threads have woken
AT_ONCE = 1024  # rows whose sums stay near the processor
TRANSPOSED = 64  # rows, the same
U32, WIDTH64, HALF = np.uint32, U64(WIDTH), U64(32)


def gain(rows: int, matrix_NR: Tensor) -> bool:
    """Whether so many rows gain by tables of such a matrix."""
    return rows >= LEAST_ROWS and min(matrix_NR.shape) >= LEAST_SIDE and rows * matrix_NR.numel() >= LEAST_WORK


# -- bits -------------------------------------------------------------------------------------------------------


@jit
def _words_of_rows(first, last, x_BN, word_BW, other):
    N = x_BN.shape[1]
    whole = N // WORD_BITS
    x, rest = x_BN.reshape(x_BN.size), np.zeros(WORD_BITS, np.float32)
    differ = U64(0)
    for b in range(first, last):
        for w in range(word_BW.shape[1]):
            if w < whole:
                words = vectors.words_of(x, U64(b * N + w * WORD_BITS))
            else:
                rest[: N - whole * WORD_BITS] = x_BN[b, whole * WORD_BITS :]
                words = vectors.words_of(rest, U64(0))
            word_BW[b, w] = U32(words & WORD)
            differ |= (words >> HALF) ^ (words & WORD)
    if differ:
        other[0] = True


def _words_of_rows_parts(n, parts, *rest):
    for p in prange(parts):
        _words_of_rows(n * p // parts, n * (p + 1) // parts, *rest)


_pack_rows = Kernel(_words_of_rows, _words_of_rows_parts)


@jit
def _words_of_columns(first, last, x_NB, word_BW, other):
    N, B = x_NB.shape
    word_B, differ = np.empty(B, np.uint32), U32(0)
    for w in range(first, last):
        word_B[:] = U32(0)
        for i in range(w * WORD_BITS, min(N, (w + 1) * WORD_BITS)):
            x_B, bit = x_NB[i], U32(1) << U32(i - w * WORD_BITS)
            for b in range(B):
                word_B[b] |= bit if x_B[b] != ZERO else U32(0)
                differ |= U32(x_B[b] != ZERO) ^ U32(x_B[b] == ONE)
        for b in range(B):
            word_BW[b, w] = word_B[b]
    if differ:
        other[0] = True


def _words_of_columns_parts(n, parts, *rest):
    for p in prange(parts):
        _words_of_columns(n * p // parts, n * (p + 1) // parts, *rest)


_pack_columns = Kernel(_words_of_columns, _words_of_columns_parts)


def _words(x: Tensor, matrix_NR: Tensor, *, columns: bool) -> Any:
    """The bits of the rows of x, or of its columns, in words: (B, W).

    None where tables of the matrix gain nothing, or cannot be had: x has other numbers than 0 and 1, say.
    """
    N, B = x.shape if columns else x.shape[::-1]
    if not (gain(B, matrix_NR) and len(matrix_NR) == N and runs_on(x) and runs_on(matrix_NR)):
        return None
    word_BW, other = np.empty((B, -(-N // WORD_BITS)), np.uint32), np.zeros(1, np.bool_)
    if columns:
        _pack_columns(x.numel(), word_BW.shape[1], array(x), word_BW, other)
    else:
        _pack_rows(x.numel(), B, array(x), word_BW, other)
    return None if other[0] else word_BW


# -- sums -------------------------------------------------------------------------------------------------------


@jit
def _add_up(word_BW, matrix_NR, first, column, tables, total):
    """The sums of ``WIDTH`` columns for rows from the first on, as many as there is room for."""
    W, (N, R) = word_BW.shape[1], matrix_NR.shape
    matrix, words = matrix_NR.reshape(matrix_NR.size), word_BW.reshape(word_BW.size)
    last, step, column, across = U64(N - 1), U64(R), U64(column), U64(W)
    rows = U64(len(total)) // WIDTH64
    for w in range(W):
        for table in range(TABLES):
            i = U64(w * WORD_BITS + table * BITS)
            if i <= last:  # a row beyond the last has no bit that would ask for it
                vectors.write_table(
                    matrix, i * step + column, min(i + U64(1), last) * step + column,
                    min(i + U64(2), last) * step + column, min(i + U64(3), last) * step + column,
                    tables, U64(table * TABLE),
                )  # fmt: skip
        for b in range(rows):
            vectors.add_entries(total, b * WIDTH64, tables, words[(U64(first) + b) * across + U64(w)])


@jit
def _sum_blocks(first, last, word_BW, matrix_NR, bias_R, out, across):
    """Blocks of columns, written as such or as rows. The last may begin within the one before: both write the same."""
    B, R = len(word_BW), matrix_NR.shape[1]
    tables, total_BJ = np.zeros(TABLES * TABLE, np.float32), np.empty((min(B, AT_ONCE), WIDTH), np.float32)
    for block in range(first, last):
        column = min(block * WIDTH, R - WIDTH)
        for b in range(0, B, AT_ONCE):
            some_BJ = total_BJ[: min(AT_ONCE, B - b)]
            some_BJ[:] = bias_R[column : column + WIDTH]
            _add_up(word_BW, matrix_NR, b, column, tables, some_BJ.reshape(some_BJ.size))
            if across:
                _transpose(some_BJ, 0, len(some_BJ), out, column, b)
            else:
                out[b : b + AT_ONCE, column : column + WIDTH] = some_BJ


def _sum_parts(n, parts, *rest):
    for p in prange(parts):
        _sum_blocks(n * p // parts, n * (p + 1) // parts, *rest)


_sum = Kernel(_sum_blocks, _sum_parts)


def _summed(word_BW: Any, matrix_NR: Any, bias_R: Any, out: Tensor, *, across: bool) -> Tensor:
    """The bias and what the words ask for: (B, R), or (R, B) across."""
    blocks = -(-matrix_NR.shape[1] // WIDTH)
    _sum(len(word_BW) * matrix_NR.size, blocks, word_BW, matrix_NR, bias_R, out.numpy(), across)
    return out


class Tables:
    """A matrix (N, R) and a bias (R,), for rows of 0 and 1. Neither may change."""

    def __init__(self, matrix_NR: Tensor, bias_R: Tensor) -> None:
        self._matrix_NR, self._bias_R = matrix_NR, bias_R

    @cached_property
    def _rows_NR(self) -> Tensor:
        """The matrix with its rows side by side in memory, which few products need."""
        columns_RN = self._matrix_NR.T
        return transposed(columns_RN) if columns_RN.is_contiguous() else self._matrix_NR.contiguous()

    def linear(self, x_BN: Tensor, out_BR: Tensor | None = None) -> Tensor:
        """The bias and x times the matrix: (B, R)."""
        shape = len(x_BN), len(self._bias_R)
        fits = self._matrix_NR.shape[1] == shape[1]
        fits = fits and (out_BR is None or (out_BR.shape == shape and out_BR.is_contiguous()))
        word_BW = _words(x_BN, self._matrix_NR, columns=False) if fits and runs_on(self._bias_R) else None
        if word_BW is None:
            return torch.addmm(self._bias_R, x_BN, self._matrix_NR, out=out_BR)
        out_BR = x_BN.new_empty(shape) if out_BR is None else out_BR
        return _summed(word_BW, self._rows_NR.numpy(), array(self._bias_R), out_BR, across=False)


def outer(x_NK: Tensor, v_ND: Tensor) -> Tensor:
    """sum_n x_nk v_nd, of any x, by tables where v is 0 or 1: (K, D)."""
    K, D = x_NK.shape[1], v_ND.shape[1]
    word_DW = _words(v_ND, x_NK, columns=True)
    if word_DW is None:
        return x_NK.T @ v_ND
    return _summed(word_DW, array(x_NK), np.zeros(K, np.float32), x_NK.new_empty(K, D), across=True)


# -- rows as columns --------------------------------------------------------------------------------------------


@jit
def _transpose(source_AB, first, last, target, row, column):
    """Write some rows of the source as columns of the target, whose first element for the first row is given."""
    B, stride = source_AB.shape[1], target.shape[1]
    source, flat = source_AB.reshape(source_AB.size), target.reshape(target.size)
    tiled_A, tiled_B = (last - first) // TILE * TILE, B // TILE * TILE
    for b in range(0, tiled_B, TILE):
        for a in range(0, tiled_A, TILE):
            at, to = (first + a) * B + b, (row + b) * stride + column + a
            vectors.transpose_tile(source, U64(at), U64(B), flat, U64(to), U64(stride))
    for a in range(last - first):
        for b in range(tiled_B if a < tiled_A else 0, B):
            target[row + b, column + a] = source_AB[first + a, b]


@jit
def _transposed_blocks(first, last, source_AB, target_BA):
    A = len(source_AB)
    for block in range(first, last):
        a = block * TRANSPOSED
        _transpose(source_AB, a, min(A, a + TRANSPOSED), target_BA, 0, a)


def _transposed_parts(n, parts, *rest):
    for p in prange(parts):
        _transposed_blocks(n * p // parts, n * (p + 1) // parts, *rest)


_transposed = Kernel(_transposed_blocks, _transposed_parts)


def transposed(matrix_AB: Tensor) -> Tensor:
    """The matrix's rows as columns, contiguous: (B, A)."""
    source = array(matrix_AB)
    A, B = source.shape
    target_BA = np.empty((B, A), np.float32)
    _transposed(source.size, -(-A // TRANSPOSED), source, target_BA)
    return torch.from_numpy(target_BA)
