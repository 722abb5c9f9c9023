"""What every Triton kernel here shares: how it is compiled, where it runs, and the uniforms it draws from a key.

Philox counts by (column // 4, row, stream, purpose), and gives the uniforms of four neighbouring columns: no draw
depends on how many rows or columns there are, and no two purposes meet.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import importlib
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

try:
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")
except ImportError:  # no kernel can run then, as ``available`` says
    triton = tl = None

if TYPE_CHECKING:
    constexpr = Any  # marks what a kernel is compiled for; Triton's own types are unknown to the type checker
else:
    constexpr = getattr(tl, "constexpr", None)

Seed = int | Tensor
"""A Python int, or a 0-dimensional int64 tensor that the kernel reads itself: a captured graph can be replayed with
another seed in it."""

FEWEST_COLUMNS = 128  # a warp with four columns to a thread: scans never see replicated elements
MOST_WARPS = 16

# Purposes of draws, the last part of Philox's counter.
FOR_Z, FOR_HIDDEN, FOR_VISIBLE = (0, 1, 2) if triton is None else map(constexpr, (0, 1, 2))


class Key(NamedTuple):
    """Uniforms that a kernel draws itself, in place of a tensor of them."""

    seed: Seed
    stream: int


Draws = Tensor | Key


def given(draws: Draws | None) -> tuple[Tensor | None, Seed | None, int]:
    """A kernel's three arguments for its draws: uniforms, or a seed and a stream."""
    return (None, *draws) if isinstance(draws, Key) else (draws, None, 0)


def jit(kernel: Any) -> Any:
    """A Triton kernel, compiled once for all seeds and streams; the bare function where there is no Triton."""
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=["seed", "stream"])


@jit
def key_of(seed, BY_POINTER: constexpr):
    if BY_POINTER:
        seed = tl.load(seed)
    return seed.to(tl.int64)


INTERPRETED = triton is not None and not isinstance(key_of, triton.JITFunction)


def available(device: torch.device | str) -> bool:
    """Whether the kernels run on this device: on CUDA, or on the CPU under ``TRITON_INTERPRET=1``."""
    device = torch.device(device)
    if triton is None or device.type != ("cpu" if INTERPRETED else "cuda"):
        return False
    return INTERPRETED or _compiles_for(device)


# -- uniforms from a key ----------------------------------------------------------------------------------------

LEAST = 2.0**-32 if triton is None else tl.constexpr(2.0**-32)
"""Half a step of the grid that uniforms lie on. None is 0, by which an event of any probability above 0 would happen:
in the billions of draws of an estimate of ln Z some chain would go where its weight cannot follow."""


@jit
def as_uniform(bits):
    """32 random bits as a number within (0, 1)."""
    return tl.maximum(tl.uint_to_uniform_float(bits), LEAST)


@jit
def z_uniform(seed, stream, row):
    """The one uniform that decides a row's z, or its part of a base."""
    zero = (row * 0).to(tl.uint32)
    bits, _, _, _ = tl.philox(seed, zero, row.to(tl.uint32), zero + stream.to(tl.uint32), zero + FOR_Z)
    return as_uniform(bits)


@jit
def row_uniforms(seed, stream, row, first, PURPOSE: constexpr, COLUMNS: constexpr):
    """Uniforms of the columns first .. first + COLUMNS - 1 of a row; ``first`` is a multiple of four."""
    quarter_Q = (first // 4 + tl.arange(0, COLUMNS // 4)).to(tl.uint32)
    zero_Q = quarter_Q * 0
    a_Q, b_Q, c_Q, d_Q = tl.philox(
        seed, quarter_Q, zero_Q + row.to(tl.uint32), zero_Q + stream.to(tl.uint32), zero_Q + PURPOSE
    )
    return as_uniform(tl.interleave(tl.interleave(a_Q, c_Q), tl.interleave(b_Q, d_Q)))


@jit
def tile_uniforms(seed, stream, row_B, first, PURPOSE: constexpr, COLUMNS: constexpr):
    """``row_uniforms`` of several rows: (rows, COLUMNS)."""
    quarter_Q = (first // 4 + tl.arange(0, COLUMNS // 4)).to(tl.uint32)
    quarter_BQ = row_B[:, None].to(tl.uint32) * 0 + quarter_Q[None, :]
    zero_BQ = quarter_BQ * 0
    row_BQ = zero_BQ + row_B[:, None].to(tl.uint32)
    a_BQ, b_BQ, c_BQ, d_BQ = tl.philox(seed, quarter_BQ, row_BQ, zero_BQ + stream.to(tl.uint32), zero_BQ + PURPOSE)
    return as_uniform(tl.interleave(tl.interleave(a_BQ, c_BQ), tl.interleave(b_BQ, d_BQ)))


# -- arguments and launches -------------------------------------------------------------------------------------


def row_launch(columns: int) -> dict[str, int]:
    """One program for a whole row, with four columns to a thread as long as there are warps."""
    block = max(triton.next_power_of_2(columns), FEWEST_COLUMNS)
    return {"BLOCK": block, "num_warps": min(block // FEWEST_COLUMNS, MOST_WARPS)}


def check_readable(**tensors: Tensor | None) -> None:
    """A kernel refuses nothing: it would misread the memory of a view, and round float64 on the way in."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}; call .contiguous()")
        if tensor is not None and tensor.dtype == torch.float64:
            raise ValueError(f"{name} must be float32, got float64; the reference operations take it")


# -- a trial ----------------------------------------------------------------------------------------------------


@jit
def _trial_kernel(seed, stream, out, COLUMNS: constexpr):
    """What the kernels are made of: draws from a key, and a scan in float64."""
    u = row_uniforms(key_of(seed, False), stream, tl.program_id(0), 0, FOR_VISIBLE, COLUMNS)
    tl.store(out + tl.arange(0, COLUMNS), tl.cumsum(u.to(tl.float64), axis=0))


@cache
def _compiles_for(device: torch.device) -> bool:
    """Whether the card is new enough for Triton, and a kernel can be compiled for it here: tried, not guessed."""
    if torch.cuda.get_device_capability(device) < (7, 0):
        return False
    out = torch.zeros(FEWEST_COLUMNS, dtype=torch.float64, device=device)
    try:
        with torch.cuda.device_of(out):
            _trial_kernel[(1,)](2**40, 1, out, FEWEST_COLUMNS)
    except Exception as error:  # no compiler, no headers of Python, another driver: Triton has no one name for them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    else:
        steps = out.diff()
        if bool(((steps > 0) & (steps < 1)).all()):
            return True
        reason = "what a first kernel finds is wrong"
    warnings.warn(f"Triton cannot compile here ({reason}): GPU work will be several times slower", stacklevel=2)
    return False
