"""Threads that each take parts of the work for themselves.

torch's own threads share every operation, and wait for each other after it. Here a part, such as some rows of a
batch, goes through many operations on one thread. Which parts there are must not hang on the number of threads: then
results do not either.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_parts(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """``work`` of each part, in order: as many at a time as torch has threads, each with one thread for torch."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(part) for part in parts]
    return list(_pool(threads).map(work, parts))


def spans(n: int, count: int) -> list[slice]:
    """0..n in so many spans, as even as can be."""
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(threads, "irbm", initializer=_leave_torch_one_thread)
    started = Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(threads)  # for threads that anybody starts from now on: they take what was last said
    return pool


def _leave_torch_one_thread() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()  # a thread's first question settles its number


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live through a fork
