"""Paths of distributions from one whose sum is known to the machine itself.

A point s in [0, 1] of a path has a temperature tau and a pull kappa towards deep z, and weighs a state by

    ln f_s(v, y) = (1 - tau) b0.v + tau (b.v + d_y)
                 + ln sum_z exp( sum_{i<=z} [softplus(tau a_i) - beta_i] - kappa max(l - z, 0) )

At s = 0 (tau = 0) the sum over all states is known; at s = 1 (tau = 1, kappa = 0) it is Z. A path with a pull
heats z last: it raises tau at full pull, then lets the pull go. SPEC section 4 says why that matters.

Shapes: B chains, K = l hidden units, D visible units, Z = K + 1 values of z. ``s`` is a scalar or (B,).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Machine
from irbm.ops import reference as ops
from irbm.ops.noise import Noise

RELAXED_FROM = 0.7  # where a path with a pull has reached tau = 1 and begins to let the pull go


class States(NamedTuple):
    """Chains, and what every point of the path needs to know of them."""

    v_BD: Tensor
    y_B: Tensor | None
    activations_BK: Tensor
    base_B: Tensor  # b0.v
    own_B: Tensor  # b.v + d_y


@dataclass(frozen=True, eq=False)
class Path:
    """From independent visibles with biases ``base_D`` to the machine, whose capacity must be its size."""

    name: str
    machine: Machine
    base_D: Tensor
    pull: float = 0.0

    def at(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """(tau, kappa) at the point s."""
        if not self.pull:
            return s, torch.zeros_like(s)
        tau = (s / RELAXED_FROM).clamp(max=1.0)
        kappa = self.pull * ((1 - s) / (1 - RELAXED_FROM)).clamp(max=1.0)
        return tau, kappa

    def log_start(self) -> float:
        """ln of the sum of f_0 over all states."""
        machine = self.machine
        gain_K = math.log(2.0) - machine.depth.penalties(machine.hidden_bias.double())[machine.order]
        t_Z = machine.depth.table(gain_K, machine.size) - self.pull * self._shortfall_Z()
        labels = math.log(machine.n_classes) if machine.n_classes else 0.0
        return float(torch.logsumexp(t_Z, dim=0) + ops.softplus(self.base_D.double()).sum()) + labels

    def _shortfall_Z(self) -> Tensor:
        """max(l - z, 0) for z = 1..Z."""
        l = self.machine.capacity
        return torch.arange(l - 1, -2, -1, device=self.base_D.device, dtype=torch.float64).clamp(min=0)

    # -- states ---------------------------------------------------------------------------------------------

    def start(self, n: int, noise: Noise) -> States:
        """Exact samples of the path's first point."""
        v_BD = ops.sample_bernoulli(self.base_D.expand(n, -1), noise(n, len(self.base_D)))
        classes = self.machine.n_classes
        return self.states(v_BD, (noise(n) * classes).long() if classes else None)

    def states(self, v_BD: Tensor, y_B: Tensor | None) -> States:
        machine = self.machine
        own_B = -machine.visible.energy(v_BD, machine.visible_bias)
        if machine.label_bias is not None and y_B is not None:
            own_B = own_B + machine.label_bias.double()[y_B]
        base_B = v_BD.double() @ self.base_D.double()
        return States(v_BD, y_B, machine.activations(v_BD, y_B), base_B, own_B)

    def table(self, states: States, s: Tensor) -> Tensor:
        """The z-table at the point s: (B, Z)."""
        machine = self.machine
        tau, kappa = self.at(s)
        a_BK = states.activations_BK
        gain_BK = ops.softplus(_rows(tau).to(a_BK.dtype) * a_BK) - machine.depth.penalties(machine.hidden_bias)
        t_BZ = machine.depth.table(gain_BK[:, machine.order], machine.size)
        return t_BZ - _rows(kappa) * self._shortfall_Z() if self.pull else t_BZ

    def log_f(self, states: States, s: Tensor, t_BZ: Tensor) -> Tensor:
        """ln f_s of the states, from their table at s: (B,), float64."""
        tau, _ = self.at(s)
        return (1 - tau) * states.base_B + tau * states.own_B + torch.logsumexp(t_BZ, dim=1)

    def move(self, states: States, s: Tensor, t_BZ: Tensor, noise: Noise) -> States:
        """One Gibbs sweep that leaves f_s invariant, from the states' table at s."""
        machine = self.machine
        tau = _rows(self.at(s)[0]).to(states.activations_BK.dtype)
        z_B = ops.sample_z(ops.survival(t_BZ), noise(len(t_BZ)))
        a_BK = tau * states.activations_BK
        h_BK = ops.sample_hidden(a_BK, machine.rank, z_B, noise(*a_BK.shape))
        field_BD = (1 - tau) * self.base_D + tau * machine.visible_field(h_BK)
        v_BD = machine.visible.sample(field_BD, noise)
        y_B = states.y_B
        if y_B is not None:
            y_B = ops.sample_categorical(tau * machine.label_field(h_BK), noise(len(v_BD)))
        return self.states(v_BD, y_B)


def _rows(value: Tensor) -> Tensor:
    """(B,) as a column; a scalar as it is."""
    return value[:, None] if value.dim() else value
