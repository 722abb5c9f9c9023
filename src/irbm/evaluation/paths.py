"""Paths of distributions from one whose sum is known to the machine itself.

A point s in [0, 1] of a path has a temperature tau and a pull kappa towards deep z, and weighs a state by

    ln f_s(v, y) = ln sum_m pi_m exp( (1 - tau) [b_m.v - sum_j softplus(b_mj)] ) + tau (b.v + d_y)
                 + ln sum_z exp( sum_{i<=z} [softplus(tau a_i) - beta_i] - kappa max(l - z, 0) )

The base is a mixture of independent visibles with biases b_m. At s = 0 (tau = 0) the sum over all states is known;
at s = 1 (tau = 1, kappa = 0) it is Z. A path with a pull heats z last: it raises tau at full pull, then lets the
pull go, because with z free the chains of a deep machine are caught where z is small and v is noise.

Shapes: B chains, K = l hidden units, D visible units, M parts of the base, Z = K + 1 values of z. ``s`` is a scalar
or (B,).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Machine
from irbm.ops import dispatch
from irbm.ops import reference as ops
from irbm.ops.noise import Noise
from irbm.ops.reference import Heat

RELAXED_FROM = 0.7  # where a path with a pull has reached tau = 1 and begins to let the pull go


class Base(NamedTuple):
    """A mixture of distributions of independent visibles."""

    bias_MD: Tensor
    log_share_M: Tensor  # ln pi_m, float64

    @property
    def log_sum_M(self) -> Tensor:
        """ln sum_v e^{b_m.v}, float64."""
        return ops.softplus(self.bias_MD.double()).sum(1)


class States(NamedTuple):
    """Chains, and what every point of the path needs to know of them."""

    v_BD: Tensor
    y_B: Tensor | None
    activations_BK: Tensor
    base_BM: Tensor  # ln p(v | m)
    own_B: Tensor  # b.v + d_y


@dataclass(frozen=True, eq=False)
class Path:
    """From a mixture of independent visibles to the machine, whose units must be stored in their order, unpadded."""

    name: str
    machine: Machine
    base: Base
    pull: float = 0.0

    def at(self, s: Tensor) -> Heat:
        """(tau, kappa) at the point s."""
        if not self.pull:
            return Heat(s, torch.zeros_like(s))
        tau = (s / RELAXED_FROM).clamp(max=1.0)
        return Heat(tau, self.pull * ((1 - s) / (1 - RELAXED_FROM)).clamp(max=1.0))

    def log_start(self) -> float:
        """ln of the sum of f_0 over all states."""
        heat = self.at(torch.zeros((), dtype=torch.float64, device=self.base.bias_MD.device))
        nothing_1K = torch.zeros(1, self.machine.capacity, dtype=torch.float64, device=self.base.bias_MD.device)
        t_Z = ops.annealed_table(nothing_1K, *self._depth(), heat)
        classes = self.machine.n_classes
        return float(torch.logsumexp(t_Z, dim=1)) + (math.log(classes) if classes else 0.0)

    def _depth(self) -> tuple[Tensor, ops.Kind, float]:
        depth = self.machine.depth
        return depth.penalties(self.machine.hidden_bias), depth.kind, depth.tail

    # -- states ---------------------------------------------------------------------------------------------

    def start(self, n: int, noise: Noise) -> States:
        """Exact samples of the path's first point."""
        part_B = ops.sample_categorical(self.base.log_share_M.expand(n, -1), noise(n))
        v_BD = ops.sample_bernoulli(self.base.bias_MD[part_B], noise(n, self.machine.n_visible))
        classes = self.machine.n_classes
        return self.states(v_BD, (noise(n) * classes).long() if classes else None)

    def states(self, v_BD: Tensor, y_B: Tensor | None) -> States:
        machine = self.machine
        linear = (v_BD @ torch.cat([self.base.bias_MD, machine.visible_bias[None]]).T).double()
        own_B = linear[:, -1]
        if machine.label_bias is not None and y_B is not None:
            own_B = own_B + machine.label_bias.double()[y_B]
        return States(v_BD, y_B, machine.activations(v_BD, y_B), linear[:, :-1] - self.base.log_sum_M, own_B)

    def log_f(self, states: States, heat: Heat) -> Tensor:
        """ln f_s of the states: (B,), float64."""
        t_BZ = ops.annealed_table(states.activations_BK, *self._depth(), heat)
        return self._log_rest(states, heat) + torch.logsumexp(t_BZ, dim=1)

    def _log_rest(self, states: States, heat: Heat) -> Tensor:
        """ln f_s but for the sum over z."""
        return torch.logsumexp(self._parts(states, heat), dim=1) + heat.tau * states.own_B

    def _parts(self, states: States, heat: Heat) -> Tensor:
        """ln of the weight of each part of the base: (B, M)."""
        return self.base.log_share_M + (1 - _column(heat.tau)) * states.base_BM

    def step(self, states: States, here: Heat, there: Heat, noise: Noise) -> tuple[Tensor, States]:
        """ln f_there - ln f_here of the states, (B,), and the states after a Gibbs sweep that keeps f_there."""
        machine, a_BK = self.machine, states.activations_BK
        log_here_B, log_there_B, h_BK = dispatch.annealed_sample(a_BK, *self._depth(), here, there, noise)
        gain_B = log_there_B + self._log_rest(states, there) - log_here_B - self._log_rest(states, here)
        tau = _column(there.tau).to(h_BK.dtype)
        part_B = ops.sample_categorical(self._parts(states, there), noise(len(h_BK)))
        field_BD = (1 - tau) * self.base.bias_MD[part_B] + tau * machine.visible_field(h_BK)
        v_BD = machine.visible.sample(field_BD, noise)
        y_B = states.y_B
        if y_B is not None:
            y_B = ops.sample_categorical(tau * machine.label_field(h_BK), noise(len(v_BD)))
        return gain_B, self.states(v_BD, y_B)


def _column(value: Tensor) -> Tensor:
    """(B,) as a column; a scalar as it is."""
    return value[:, None] if value.dim() else value
