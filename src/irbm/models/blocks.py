"""The sweeps and the gradient of one training step on a CPU, for machines without labels: a block at a time.

Chains do not know of each other, so a block of them goes through all its sweeps on one thread, and so does a block of
examples through its phase; then a block of units through its part of the gradient. Blocks have sizes of their own,
whatever the number of threads, and so the results are the same for any. All of it works without padding.

Shapes: B examples, N chains, R = B + N rows of both phases, K trained units, D visible units.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models.machine import Gradients, Machine
from irbm.ops import compiled
from irbm.ops.noise import CountedStream
from irbm.ops.threads import in_parts, spans

ROWS, UNITS = 64, 128  # the most of a block


def suit(machine: Machine) -> bool:
    """Whether there are kernels for this machine's rows here."""
    return machine.n_classes == 0 and compiled.runs_on(machine.weights)


class _Block(NamedTuple):
    """Rows of one phase, the stream they draw from, and how many sweeps they take before."""

    rows: slice
    noise: CountedStream
    n_steps: int


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one step, data first, and what comes to be known of them."""

    machine: Machine  # without padding
    side: compiled.HiddenSide
    n_positive: int
    v_RD: Tensor
    on_RK: Tensor  # p(h_i = 1 | v), times what the row counts in the gradient
    reach_RK: Tensor  # P(z >= position of i | v), times the same; no rows where no penalty has a slope
    z_R: Tensor  # sampled
    mode_R: Tensor  # likeliest z

    @classmethod
    def of(cls, machine: Machine, v_BD: Tensor, start_ND: Tensor) -> "Step":
        """Before the sweeps, which start at ``start``."""
        v_RD, K, depth = torch.cat([v_BD, start_ND]), int(machine.size), machine.depth
        bias_K, order_K = machine.hidden_bias[:K], machine.order[:K]
        side = compiled.HiddenSide.of(order_K, depth.penalties(bias_K), machine.size, depth.kind, depth.tail)
        R = len(v_RD)
        return cls(
            machine=replace(machine, weights=machine.weights[:K], hidden_bias=bias_K, order=order_K),
            side=side,
            n_positive=len(v_BD),
            v_RD=v_RD,
            on_RK=torch.empty(R, K),
            reach_RK=torch.empty(R if depth.sloped else 0, K),
            z_R=torch.empty(R, dtype=torch.int64),
            mode_R=torch.empty(R, dtype=torch.int64),
        )

    def gradients_(self, noise: CountedStream, n_steps: int, *, sampled: bool, capacity: int) -> Gradients:
        """The gradient of F on the data less that on samples of the model, means over each, padded to a capacity.

        The last rows become the samples. The expectation over z is exact, or taken at the sampled z.
        """
        in_parts(lambda block: self._learn_(block, sampled=sampled), self._blocks(noise, n_steps))
        K, n = self.on_RK.shape[1], self.n_positive
        bias_K = torch.zeros(capacity)
        torch.sum(self.on_RK, 0, out=bias_K[:K])
        if self.machine.depth.sloped:
            bias_K[:K] -= self.reach_RK.sum(0) * self.machine.depth.penalty_slopes(self.machine.hidden_bias)
        bias_D = self._share(0) * self.v_RD[:n].sum(0) + self._share(n) * self.v_RD[n:].sum(0)
        return Gradients(self._of_weights(capacity), bias_K, bias_D, label_weights=None, label_bias=None)

    def _blocks(self, noise: CountedStream, n_steps: int) -> list[_Block]:
        """The samples' before the data's: they take longer."""
        n = self.n_positive
        model = [slice(n + s.start, n + s.stop) for s in spans(len(self.v_RD) - n, ROWS)]
        data = spans(n, ROWS)
        sweeps = [n_steps] * len(model) + [0] * len(data)
        return list(map(_Block, model + data, noise.parts(len(sweeps)), sweeps))

    def _learn_(self, block: _Block, *, sampled: bool) -> None:
        """Sweep the block's rows, then see what they say of the hidden side."""
        machine, rows, noise = self.machine, block.rows, block.noise
        v_BD, on_BK = self.v_RD[rows], self.on_RK[rows]
        a_BK, up_DK = torch.empty_like(on_BK), machine.weights.T
        field_BD = torch.empty_like(v_BD) if block.n_steps else v_BD
        for _ in range(block.n_steps):
            torch.addmm(machine.hidden_bias, v_BD, up_DK, out=a_BK)
            compiled.hidden_step_(a_BK, self.side, noise.next_draw(2), on_BK)  # h lies there until there is better
            torch.addmm(machine.visible_bias, on_BK, machine.weights, out=field_BD)
            compiled.visible_step_(field_BD, noise.next_draw(), v_BD)
        torch.addmm(machine.hidden_bias, v_BD, up_DK, out=a_BK)
        compiled.phase_(
            a_BK, self.side, noise.next_draw(), self._share(rows.start),
            on_BK, self.reach_RK[rows], self.z_R[rows], self.mode_R[rows], sampled=sampled,
        )  # fmt: skip

    def _share(self, row: int) -> float:
        """What a row counts in the gradient of F, whose sign is not that of p(h | v)."""
        n = self.n_positive
        return -1 / n if row < n else 1 / (len(self.v_RD) - n)

    def _of_weights(self, capacity: int) -> Tensor:
        K, D = self.on_RK.shape[1], self.v_RD.shape[1]
        found_KD = torch.empty(capacity, D)
        found_KD[K:] = 0
        in_parts(lambda some: torch.mm(self.on_RK[:, some].T, self.v_RD, out=found_KD[some]), spans(K, UNITS))
        return found_KD
