"""One training step as a CUDA graph: recorded once for a capacity, then replayed with new inputs."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from irbm.ops.noise import KeyedStream


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
        # Graphs share memory by a pool, if they were recorded on one stream.
        if before is None:
            torch.cuda.empty_cache()
            self._stream = torch.cuda.Stream(rows.device)  # type: ignore[no-untyped-call]
            pool = torch.cuda.graph_pool_handle()
        else:
            self._stream, pool = before._stream, before._graph.pool()
        noise.rewind()
        with torch.cuda.stream(self._stream):
            self._graph.capture_begin(pool)
            try:
                step(self._rows)
            finally:
                self._graph.capture_end()

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._graph.replay()
