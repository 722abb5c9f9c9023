"""What a machine says on average over random orders of its first positions. Sec. 3.3, eqs. 34-35."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from irbm.models import Machine
from irbm.ops.noise import Noise


def permuted(machine: Machine, m: int, noise: Noise) -> Machine:
    """The machine with its first ``m`` positions in random order; parameters are shared, not copied."""
    order = machine.order.clone()
    order[:m] = order[:m][torch.argsort(noise(m)).to(order.device)]
    return replace(machine, order=order)


def mean_log_prob_y(machines: Sequence[Machine], v_BD: Tensor) -> Tensor:
    """ln of the mean over machines of p(y | v): (B, C), float64. Eq. 35, where they differ in their order alone."""
    each = torch.stack([machine.log_prob_y(v_BD) for machine in machines])
    return torch.logsumexp(each, dim=0) - math.log(len(machines))
