"""How kernels are compiled, and how threads share a loop over rows."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import hashlib
import importlib
import os
from pathlib import Path
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    numba: Any = importlib.import_module("numba")
except ImportError:  # no kernel can run then, as ``available`` says
    numba = None

SHARED_FROM = 20_000  # elements from which another thread gains more than it costs to wake


def available() -> bool:
    """Whether numba is here, and allowed to compile."""
    return numba is not None and not numba.config.DISABLE_JIT


def counts_on(device: torch.device) -> bool:
    """Whether kernels can count on this device."""
    return available() and device.type == "cpu"


def runs_on(tensor: Tensor) -> bool:
    """Whether the kernels can work on this tensor: float32 on the CPU, with no autograd to feed."""
    return available() and tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not tensor.requires_grad


def digest(folder: Path) -> str:
    """Of all sources in a folder."""
    return hashlib.blake2b(
        b"".join(file.read_bytes() for file in sorted(folder.glob("*.py"))), digest_size=8
    ).hexdigest()


SOURCES = digest(Path(__file__).parent)


def jit(function: Any, **options: Any) -> Any:
    """A compiled function, kept on disk where there is a place to write; the bare one where there is no numba."""
    if numba is None:
        return function
    # numba keeps a function under its name until its own file changes: those that it calls belong to the name.
    function.__qualname__ += f"_{SOURCES}"
    # Fused multiply-adds alone: anything more would let the compiler assume that there is no NaN.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, **options}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # numba found no folder it may write to
        return numba.njit(function, **options)


def reassociated(function: Any) -> Any:
    """Sums in any order, so that they run in vectors."""
    return jit(function, fastmath={"contract", "reassoc"})


def inlined(function: Any) -> Any:
    return function if numba is None else numba.njit(function, inline="always")


prange: Any = range if numba is None else numba.prange


class Kernel:
    """A loop over rows, for one thread, or in parts that threads share.

    ``rows(first, last, ...)`` does some of them; ``parts(n, parts, ...)`` calls it for all n in so many parts. It is a
    call, not the loop itself, because numba compiles the body of a parallel loop badly: shared by two threads it took
    as long as one thread alone.
    """

    shared = True  # may be, where there is enough to do
    _lock = Lock()  # not every threading layer of numba bears two callers at a time
    _asked = local()  # how many threads numba was last told to use, for each of ours

    def __init__(self, rows: Any, parts: Any) -> None:
        self._rows, self._parts = rows, jit(parts, parallel=True)

    def __call__(self, elements: int, n: int, *arguments: Any) -> None:
        threads = torch.get_num_threads()
        if threads == 1 or elements < SHARED_FROM or not Kernel.shared:
            self._rows(0, n, *arguments)
            return
        with Kernel._lock:
            threads = min(threads, numba.config.NUMBA_NUM_THREADS)
            if getattr(Kernel._asked, "threads", 0) != threads:
                numba.set_num_threads(threads)
                Kernel._asked.threads = threads
            self._parts(n, threads, *arguments)

    @classmethod
    def stay_alone(cls) -> None:
        cls.shared = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Kernel.stay_alone)  # OpenMP's threads do not live through a fork


def places(order_K: Tensor) -> Any:
    """The order as unsigned numbers, which an index can be without a look at its sign."""
    return array(order_K).view(np.uint64)


def array(tensor: Tensor) -> Any:
    """The tensor's own memory, or a copy where it is a view with gaps."""
    return tensor.contiguous().numpy()
