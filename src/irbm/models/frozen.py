"""A machine that does not change, asked about states: what annealing and its sweeps do again and again."""

from dataclasses import dataclass

from torch import Tensor

from irbm.models.machine import Machine
from irbm.ops import parts
from irbm.ops import reference as ops
from irbm.ops.noise import Noise
from irbm.ops.parts import Parts


@dataclass(frozen=True, eq=False)
class Frozen:
    """The machine's own answers, up to the order in which sums are taken, from tensor cores where these pay.

    Visible and hidden units are 0 or 1. Not for means or probabilities: bfloat16 would round them.
    """

    machine: Machine
    upward: Parts | None  # the weights and biases, for visibles; None: as the machine does
    downward: Parts | None

    @classmethod
    def of(cls, machine: Machine) -> "Frozen":
        if not parts.suit(machine.weights):
            return cls(machine, None, None)
        return cls(machine, Parts(machine.weights.T, machine.hidden_bias), Parts(machine.weights, machine.visible_bias))

    def activations(self, v_BD: Tensor, y_B: Tensor | None) -> Tensor:
        """a_i(v, y), as ``Machine.activations``: (B, K)."""
        if self.upward is None:
            return self.machine.activations(v_BD, y_B)
        return self.machine.with_labels(self.upward.linear(v_BD), y_B)

    def visible_field(self, h_BK: Tensor) -> Tensor:
        """b_j + sum_i h_i W_ij, as ``Machine.visible_field``: (B, D)."""
        if self.downward is None:
            return self.machine.visible_field(h_BK)
        return self.downward.linear(h_BK)

    def gibbs_step(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """One sweep z -> h -> (v, y), as ``Machine.gibbs_step`` with nothing clamped."""
        _, h_BK = self.machine.hidden_given(self.activations(v_BD, y_B), noise)
        new_BD = self.machine.visible.sample(self.visible_field(h_BK), noise)
        if y_B is not None:
            y_B = ops.sample_categorical(self.machine.label_field(h_BK), noise(len(v_BD)))
        return new_BD, y_B
