"""Paths of distributions from one whose sum is known to the machine itself.

A point tau in [0, 1] of a path weighs a state of the machine and a part m of the base by

    f(v, y, h, z, m) = pi_m Q_m(v, y, h, z)^(1 - tau) exp(-tau E(v, h, y, z))
    ln Q_m = b_m.v + sum_{i<=z} (h_i a_mi - beta_i) - kappa max(l - z, 0) - L_m

Q_m is a distribution of its own: independent visibles with biases b_m, any label, and hidden units with the activations
a_m that the part's means ask for, with or without a pull kappa towards deep z. L_m makes it sum to 1, so that f does
at tau = 0; at tau = 1 the sum is Z. As both sides of a part are about what the machine makes of its mode, chains need
neither leave the mode nor raise z on their way. Summed over h and z:

    ln f(v, y, m) = ln pi_m + (1 - tau) (b_m.v - L_m) + tau (b.v + d_y)
                  + ln sum_z exp( sum_{i<=z} [softplus((1-tau) a_mi + tau a_i) - beta_i] - (1-tau) kappa max(l-z, 0) )

Where the pull is held, the last term is -kappa max(l-z, 0) up to the last point, where it is gone. With a strong pull z
is clamped to l or beyond all the way and let go in the last step, which weighs a state by 1 / P(z >= l|v, y): that is
finite for every state, so that the path ends at the machine itself.

Shapes: B chains, K = l hidden units, D visible units, M parts of the base. ``tau`` is a scalar or (B,).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Frozen, Machine
from irbm.ops import dispatch
from irbm.ops import reference as ops
from irbm.ops.noise import Noise
from irbm.ops.reference import Heat


class Base(NamedTuple):
    """A mixture of distributions of independent visibles and hidden units."""

    bias_MD: Tensor
    answer_MK: Tensor  # activations
    log_share_M: Tensor  # ln pi_m, float64

    @classmethod
    def usual(cls, bias_D: Tensor, n_hidden: int) -> "Base":
        """A single part whose hidden units are fair coins, so that a path to the machine heats its activations."""
        return cls(bias_D[None], bias_D.new_zeros(1, n_hidden), bias_D.new_zeros(1, dtype=torch.float64))


class States(NamedTuple):
    """Chains, and what every point of the path needs to know of them."""

    v_BD: Tensor
    y_B: Tensor | None
    part_B: Tensor
    activations_BK: Tensor
    base_BM: Tensor  # b_m.v - L_m
    own_B: Tensor  # b.v + d_y


@dataclass(frozen=True, eq=False)
class Path:
    """From a mixture to the machine, whose units must be stored in their order, unpadded."""

    name: str
    frozen: Frozen  # the machine, which several paths may share
    base: Base
    pull: float = 0.0
    held: bool = False  # the pull does not weaken on the way to the last point

    @property
    def machine(self) -> Machine:
        return self.frozen.machine

    def at(self, tau: Tensor) -> Heat:
        """(tau, kappa) at a point."""
        left = (tau < 1).to(tau) if self.held else 1 - tau
        return Heat(tau, self.pull * left)

    @cached_property
    def log_sum_M(self) -> Tensor:
        """L_m, the ln of the sum of what a part weighs all states by: (M,), float64."""
        pull = self.base.log_share_M.new_tensor(self.pull)
        hidden_M = torch.logsumexp(ops.annealed_table(self.base.answer_MK, *self._depth(), pull), dim=1)
        return self.machine.visible.log_normaliser(self.base.bias_MD) + hidden_M + math.log(max(self._classes, 1))

    @cached_property
    def _biases(self) -> Tensor:
        """The visible biases of all parts, and the machine's: (M + 1, D)."""
        return torch.cat([self.base.bias_MD, self.machine.visible_bias[None]])

    @property
    def _classes(self) -> int:
        return self.machine.n_classes

    def _depth(self) -> tuple[Tensor, ops.Kind, float]:
        depth = self.machine.depth
        return depth.penalties(self.machine.hidden_bias), depth.kind, depth.tail

    # -- states ---------------------------------------------------------------------------------------------

    def start(self, n: int, noise: Noise) -> States:
        """Exact samples of the path's first point."""
        part_B = self._any_part(n, noise)
        v_BD = ops.sample_bernoulli(self.base.bias_MD[part_B], noise(n, self.machine.n_visible))
        return self.states(v_BD, (noise(n) * self._classes).long() if self._classes else None, part_B)

    def of_machine(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise) -> States:
        """Samples of the machine as states of the path's last point, where parts mean nothing any more."""
        return self.states(v_BD, y_B, self._any_part(len(v_BD), noise))

    def _any_part(self, n: int, noise: Noise) -> Tensor:
        return ops.sample_categorical(self.base.log_share_M.expand(n, -1), noise(n))

    def states(self, v_BD: Tensor, y_B: Tensor | None, part_B: Tensor) -> States:
        machine = self.machine
        linear = (v_BD @ self._biases.T).double()
        own_B = linear[:, -1]
        if machine.label_bias is not None and y_B is not None:
            own_B = own_B + machine.label_bias.double()[y_B]
        return States(v_BD, y_B, part_B, self.frozen.activations(v_BD, y_B), linear[:, :-1] - self.log_sum_M, own_B)

    def weigh(self, states: States, here: Heat, there: Heat, noise: Noise) -> tuple[Tensor, Tensor]:
        """ln f_there - ln f_here of the states, (B,), float64, and h (B, K) sampled at the second point."""
        log_here_B, log_there_B, h_BK = dispatch.annealed_sample(
            states.activations_BK, self.base.answer_MK, states.part_B, *self._depth(), here, there, noise
        )
        return log_there_B - log_here_B + (there.tau - here.tau) * (states.own_B - _of_part(states)), h_BK

    def step(
        self, states: States, here: Heat, there: Heat, noise: Noise, *, back: bool = False
    ) -> tuple[Tensor, States]:
        """ln f_there - ln f_here of the states, (B,), and the states after a Gibbs sweep that keeps f_there.

        The sweep draws h and z, then the part, then v; ``back``, what it would draw if time ran the other way: v in the
        part that the chain is in, and then the part.
        """
        base, tau = self.base, there.tau
        gain_B, h_BK = self.weigh(states, here, there, noise)
        field_BD, answer_BM = self.frozen.visible_field(h_BK), h_BK @ base.answer_MK.T
        if back:
            part_B = states.part_B
            v_BD = dispatch.bernoulli_sample(ops.heated(field_BD, base.bias_MD[part_B], tau), noise)
        else:
            of_parts = (base.bias_MD, base.log_share_M, states.base_BM, answer_BM)
            part_B, v_BD = dispatch.annealed_visible(field_BD, *of_parts, tau, noise)
        y_B = states.y_B
        if y_B is not None:
            y_B = ops.sample_categorical(ops.column(tau) * self.machine.label_field(h_BK), noise(len(v_BD)))
        after = self.states(v_BD, y_B, part_B)
        if back:
            score_BM = base.log_share_M + ops.column(1 - tau) * (after.base_BM + answer_BM)
            after = after._replace(part_B=ops.sample_categorical(score_BM, noise(len(v_BD))))
        return gain_B, after


def _of_part(states: States) -> Tensor:
    """b_m.v - L_m of the part that a chain is in: (B,), float64."""
    return states.base_BM.gather(1, states.part_B[:, None])[:, 0]
