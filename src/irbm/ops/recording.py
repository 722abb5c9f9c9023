"""Work on a GPU as a CUDA graph: recorded once, then done again and again for the price of one launch."""

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Self

import torch

_one_at_a_time = Lock()  # threads that record share a stream


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """One for all recordings on a GPU: those of a pool share memory by it, and cuBLAS keeps a workspace for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Recording:
    """What ``work`` asks of a device, which must all be there, and have been done once before.

    ``before`` is a recording that this one takes the place of, and the memory of.

    As by `torch.cuda.graph`, but on a stream of the device that the work is on, by one thread at a time, and only a
    first recording gives cached memory back, that of recordings gone by too, for which torch waits for the device: a
    run that grows records again while the device is at work.
    """

    def __init__(self, work: Callable[[], None], device: torch.device, before: Self | None = None) -> None:
        self._graph = torch.cuda.CUDAGraph()
        index = torch.cuda.current_device() if device.index is None else device.index
        with _one_at_a_time, torch.cuda.stream(_stream(index)):
            if before is None:
                torch.cuda.empty_cache()
                pool = torch.cuda.graph_pool_handle()
            else:
                pool = before._graph.pool()
            self._graph.capture_begin(pool, "thread_local")  # what other threads ask for meanwhile is none of its own
            try:
                work()
            finally:
                self._graph.capture_end()

    def replay(self) -> None:
        """Do the work, after what the current stream has been asked for."""
        self._graph.replay()


def repeat(work: Callable[[], None], times: int, device: torch.device) -> None:
    """``work`` so many times, at least one: once as it is, and then from a recording."""
    work()
    if times == 1:
        return
    recording = Recording(work, device)
    for _ in range(times - 1):
        recording.replay()
