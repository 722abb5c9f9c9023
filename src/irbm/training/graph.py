"""One training step as a CUDA graph: recorded once for a capacity, then replayed with new inputs."""

from collections.abc import Callable

import torch
from torch import Tensor

from irbm.ops.noise import KeyedStream


class StepGraph:
    """A step whose inputs lie in fixed places: the rows of the batch, and the key of the random stream.

    ``step(rows)`` must do all its work on the device, draw from the stream alone, and have been run before.
    """

    def __init__(self, step: Callable[[Tensor], None], rows: Tensor, noise: KeyedStream) -> None:
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        noise.rewind()
        with torch.cuda.graph(self._graph):
            step(self._rows)

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._graph.replay()
