"""One training step as a CUDA graph: recorded once for a capacity, then replayed with new inputs."""

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Self

import torch
from torch import Tensor

from irbm.ops.noise import KeyedStream

_one_at_a_time = Lock()  # threads that record share the stream


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs: those of a pool share memory by it, and cuBLAS keeps a workspace for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class StepGraph:
    """A step whose inputs lie in fixed places: the rows of the batch, and the key of the random stream.

    ``step(rows)`` must do all its work on the device, draw from the stream alone, and have been run before. ``before``
    is a graph that this one takes the place of, and the memory of.

    Recorded as by `torch.cuda.graph`, but only a first graph gives cached memory back, that of graphs gone by too, for
    which torch waits for the device: a run that grows records again while the device is at work.
    """

    def __init__(
        self, step: Callable[[Tensor], None], rows: Tensor, noise: KeyedStream, before: Self | None = None
    ) -> None:
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        if before is None:
            torch.cuda.empty_cache()
            pool = torch.cuda.graph_pool_handle()
        else:
            pool = before._graph.pool()
        noise.rewind()
        with _one_at_a_time, torch.cuda.stream(_recording_stream(rows.device)):
            self._graph.capture_begin(pool, "thread_local")  # what other threads ask for meanwhile is none of its own
            try:
                step(self._rows)
            finally:
                self._graph.capture_end()

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._graph.replay()
