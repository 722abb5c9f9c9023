"""The sweeps and the gradient of one training step on tensor cores, for binary machines without labels.

The hidden side is copied once a step, by position and in two bfloat16 parts, and everything between two updates reads
the copy. Only training comes here: the products are near float32's, not float32's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from irbm.models.machine import Gradients, Machine
from irbm.ops import dispatch, fused, products
from irbm.ops.kernels import Draws, Key
from irbm.ops.noise import Noise


def suit(machine: Machine, rows: int, capacity: int | None = None) -> bool:
    """Whether the sweeps of so many rows of this machine can run here; of another capacity where it is given."""
    return machine.n_classes == 0 and dispatch.has_products(machine.weights, rows, capacity)


@dataclass(frozen=True, eq=False)
class Sweeps:
    """A machine, and the copy of it that kernels read."""

    machine: Machine
    copy: products.Arranged

    @classmethod
    def of(cls, machine: Machine) -> "Sweeps":
        penalty_K = machine.depth.penalties(machine.hidden_bias)
        hidden = (machine.weights, machine.hidden_bias, penalty_K, machine.order, machine.size)
        return cls(machine, products.arrange(*hidden))

    def gibbs_(self, v_BD: Tensor, noise: Noise, n_steps: int, *, out: Tensor, last: Tensor | None) -> None:
        """``n_steps`` sweeps z -> h -> v into ``out``, bfloat16, and ``last``, float32; both may be where v starts."""
        for step in range(n_steps):
            h_BK = self._sample_hidden(v_BD, noise)
            draws = dispatch.draws(noise, *out.shape)
            copy = last if step == n_steps - 1 else None
            products.visible_sample(h_BK, self.copy, self.machine.visible_bias, draws, out=out, copy=copy)
            v_BD = out

    def _sample_hidden(self, v_BD: Tensor, noise: Noise) -> Tensor:
        """h ~ p(h | v) by position, bfloat16."""
        machine = self.machine
        a_BK = products.activations(v_BD, self.copy)
        hidden = (a_BK, None, self.copy.penalty_K, machine.size, machine.depth.kind, machine.depth.tail)
        draws = dispatch.draws(noise, len(a_BK))
        if isinstance(draws, Key):
            return fused.hidden_sample_keyed(*hidden, *draws, dtype=torch.bfloat16)[1]
        # A noise hands out uniforms by unit.
        u_BK = noise(*a_BK.shape)[:, machine.order].contiguous()
        return fused.hidden_sample(*hidden, draws, u_BK, dtype=torch.bfloat16)[1]

    def gradients(
        self, v_RD: Tensor, n_positive: int, draws: Draws, *, sampled: bool
    ) -> tuple[Gradients, Tensor, Tensor]:
        """The gradient of F on the first rows less that on the others, means over each; then z and the likeliest z.

        ``v`` is bfloat16. The expectation over z is exact, or taken at the sampled z.
        """
        machine, sloped = self.machine, self.machine.depth.sloped
        a_RK = products.activations(v_RD, self.copy)
        hi_RK, lo_RK, reach_RK, z_R, mode_R = fused.phases(
            a_RK, self.copy.penalty_K, machine.size, machine.depth.kind, machine.depth.tail, draws,
            n_positive, sampled=sampled, sloped=sloped,
        )  # fmt: skip
        slope_K = machine.depth.penalty_slopes(machine.hidden_bias) if sloped else None
        found = products.gradients(hi_RK, lo_RK, reach_RK, v_RD, machine.order, machine.size, slope_K, n_positive)
        return Gradients(*found, label_weights=None, label_bias=None), z_R, mode_R
