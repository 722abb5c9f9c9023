"""Labels of examples of which only a part is seen."""

import torch
from torch import Tensor

from irbm.models import Frozen, Machine
from irbm.ops.noise import Noise


def prob_y_given_observed(
    machine: Machine, v_BD: Tensor, observed_BD: Tensor, noise: Noise, n_samples: int, burn_in: int
) -> Tensor:
    """p(y | the observed visibles): (B, C), float64, by one Gibbs chain over (v, y) for each example.

    The chain moves what was not observed. p(y | v) is averaged over its sweeps, which varies less than the sampled
    labels would (Rao and Blackwell). What ``v_BD`` holds where nothing was observed does not matter.
    """
    v_BD = torch.where(observed_BD, v_BD, (noise(*v_BD.shape) < 0.5).to(v_BD.dtype))
    y_B = machine.log_prob_y(v_BD).argmax(-1)
    frozen = Frozen.of(machine)
    v_BD, y_next = frozen.gibbs(v_BD, y_B, noise, burn_in, clamp_visible=observed_BD)
    total_BC = torch.zeros(len(v_BD), machine.n_classes, dtype=torch.float64, device=v_BD.device)
    for _ in range(n_samples):
        v_BD, y_next = frozen.gibbs_step(v_BD, y_next, noise, clamp_visible=observed_BD)
        total_BC += machine.log_prob_y(v_BD).exp()
    return total_BC / n_samples
