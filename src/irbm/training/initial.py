"""The machine that training starts from."""

import torch

from irbm.models import Depth, Infinite, Machine
from irbm.ops.noise import uniform_noise

WEIGHT_SCALE = 0.01  # standard deviation of the first weights of a machine that does not grow
FOR_WEIGHTS = 3  # the key of the random stream, beside those of the trainer


def initial_machine(
    depth: Depth,
    n_visible: int,
    *,
    n_components: int = 1,
    n_classes: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Machine:
    """An infinite machine starts from one unit and zeros; others from small weights, as zeros would stay alike."""

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype)

    machine = Machine(
        weights=zeros(n_components, n_visible),
        hidden_bias=zeros(n_components),
        visible_bias=zeros(n_visible),
        order=torch.arange(n_components, device=device),
        size=torch.tensor(n_components, device=device),
        depth=depth,
        label_weights=zeros(n_components, n_classes) if n_classes else None,
        label_bias=zeros(n_classes) if n_classes else None,
    )
    if not isinstance(depth, Infinite):
        noise = uniform_noise(seed, FOR_WEIGHTS, dtype=torch.float64)
        for weights in (machine.weights, machine.label_weights):
            if weights is not None:
                weights.copy_(WEIGHT_SCALE * _normal(noise(*weights.shape), noise(*weights.shape)))
    return machine


def _normal(u: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Standard normals from two uniforms, by Box and Muller; the same on every device."""
    return torch.sqrt(-2 * torch.log1p(-u)) * torch.cos(2 * torch.pi * other)
