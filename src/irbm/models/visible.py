"""How the visible units answer to the field that the hidden units put on them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from irbm.ops import dispatch
from irbm.ops import reference as ops
from irbm.ops.noise import Noise


@dataclass(frozen=True)
class Bernoulli:
    """Binary visible units: E contains -b.v, and p(v_j = 1 | field) = s(field_j). Eq. 13."""

    def energy(self, v_BD: Tensor, bias_D: Tensor) -> Tensor:
        """-b.v for each example, in float64."""
        return -(v_BD.double() @ bias_D.double())

    def log_normaliser(self, field_BD: Tensor) -> Tensor:
        """ln sum_v exp(field.v), in float64: the visible units summed out."""
        return ops.softplus(field_BD.double()).sum(-1)

    def mean(self, field_BD: Tensor) -> Tensor:
        return torch.sigmoid(field_BD)

    def sample(self, field_BD: Tensor, noise: Noise) -> Tensor:
        return dispatch.bernoulli_sample(field_BD, noise)
