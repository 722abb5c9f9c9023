"""A machine whose parameters stay as they are, for rows of 0 and 1: what annealing asks again and again."""

from dataclasses import dataclass, fields
from functools import cached_property

from torch import Tensor

from irbm.models.machine import Machine
from irbm.ops import parts
from irbm.ops.parts import Parts


@dataclass(frozen=True, eq=False)
class Frozen(Machine):
    """The same numbers, up to the order in which sums are taken, from tensor cores where these pay.

    Not for means or probabilities: bfloat16 would round them.
    """

    @classmethod
    def of(cls, machine: Machine) -> Machine:
        """The machine for rows of 0 and 1; itself where there is nothing to gain."""
        if not parts.suit(machine.weights):
            return machine
        return cls(**{field.name: getattr(machine, field.name) for field in fields(machine)})

    @cached_property
    def _upward(self) -> Parts:
        return Parts(self.weights.T)

    @cached_property
    def _downward(self) -> Parts:
        return Parts(self.weights)

    def _label_free(self, v_BD: Tensor) -> Tensor:
        return self._upward.product(v_BD) + self.hidden_bias

    def visible_field(self, h_BK: Tensor) -> Tensor:
        return self._downward.product(h_BK) + self.visible_bias
