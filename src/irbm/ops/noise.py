"""Where uniforms come from: a seed, turned into a stream that a run can replay."""

from collections.abc import Callable

import torch
from torch import Tensor


def uniform_noise(seed: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Callable[..., Tensor]:
    """``noise(*shape)``: fresh uniforms in [0, 1) at each call, the same ones for the same seed and calls."""
    generator = torch.Generator(device).manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device, dtype=dtype)

    return noise
