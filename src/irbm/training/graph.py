"""One training step as a CUDA graph: recorded once for a capacity, then replayed with new inputs."""

from collections.abc import Callable
from typing import Self

from torch import Tensor

from irbm.ops.noise import KeyedStream
from irbm.ops.recording import Recording


class StepGraph:
    """A step whose inputs lie in fixed places: the rows of the batch, and the key of the random stream.

    ``step(rows)`` must do all its work on the device, draw from the stream alone, and have been run before. ``before``
    is a graph that this one takes the place of, and the memory of.
    """

    def __init__(
        self, step: Callable[[Tensor], None], rows: Tensor, noise: KeyedStream, before: Self | None = None
    ) -> None:
        self._rows = rows.clone()
        noise.rewind()
        self._recording: Recording = Recording(
            lambda: step(self._rows), rows.device, None if before is None else before._recording
        )

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._recording.replay()
