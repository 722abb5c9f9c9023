"""Where uniforms come from: keys, turned into streams that a run can replay from any step."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def uniform_noise(
    *key: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Callable[..., Tensor]:
    """``noise(*shape)``: fresh uniforms in [0, 1) at each call, the same ones for the same key and calls.

    A key is a few non-negative integers, such as (seed, step): whoever knows them can replay the stream, so no
    generator's state needs to be kept.
    """
    sequence = np.random.SeedSequence(key)
    if torch.device(device).type == "cpu":
        return _numpy_noise(np.random.Generator(np.random.SFC64(sequence)), dtype)
    generator = torch.Generator(device).manual_seed(int(sequence.generate_state(1, np.uint64)[0]) >> 1)

    def noise(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device, dtype=dtype)

    return noise


def _numpy_noise(generator: np.random.Generator, dtype: torch.dtype) -> Callable[..., Tensor]:
    """On the CPU NumPy draws uniforms about three times as fast as torch."""
    kind = np.float64 if dtype == torch.float64 else np.float32

    def noise(*shape: int) -> Tensor:
        return torch.from_numpy(generator.random(shape, dtype=kind))

    return noise
