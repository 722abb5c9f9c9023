"""The sweeps and the gradient of one training step on a CPU, for machines without labels: a block at a time.

Chains do not know of each other, so a block of them goes through all its sweeps on one thread, and so does a block of
examples through its phase; then a block of units through its part of the gradient. Blocks have sizes of their own,
whatever the number of threads, and so the results are the same for any. All of it works without padding.

Shapes: B examples, N chains, R = B + N rows of both phases, K trained units, D visible units.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models.depth import Depth
from irbm.models.machine import Gradients, Machine
from irbm.ops import compiled
from irbm.ops.noise import CountedStream
from irbm.ops.threads import in_parts, spans

ROWS, UNITS = 64, 128  # the most of a block


def suit(machine: Machine) -> bool:
    """Whether there are kernels for this machine's rows here."""
    return machine.n_classes == 0 and compiled.runs_on(machine.weights)


class _Block(NamedTuple):
    """Rows of one phase: where they start, how many sweeps they take, and where they are wanted at the end as well."""

    rows: slice
    start_BD: Tensor
    n_steps: int
    last_BD: Tensor | None
    noise: CountedStream
    sums: compiled.Sums


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one step, data first, and what comes to be known of them."""

    W_KD: Tensor
    c_K: Tensor
    b_D: Tensor
    depth: Depth
    side: compiled.HiddenSide
    n_positive: int
    v_RD: Tensor
    on_RK: Tensor  # p(h_i = 1 | v), times what the row counts in the gradient
    z_R: Tensor  # sampled
    mode_R: Tensor  # likeliest z

    @classmethod
    def of(cls, machine: Machine, n_positive: int, n_negative: int) -> "Step":
        """With room for so many rows of data and of samples."""
        K, R, depth = int(machine.size), n_positive + n_negative, machine.depth
        c_K, order_K = machine.hidden_bias[:K], machine.order[:K]
        side = compiled.HiddenSide.of(order_K, depth.penalties(c_K), machine.size, depth.kind, depth.tail)
        v_RD, on_RK = torch.empty(R, machine.n_visible), torch.empty(R, K)
        z_R, mode_R = (torch.empty(R, dtype=torch.int64) for _ in range(2))
        return cls(machine.weights[:K], c_K, machine.visible_bias, depth, side, n_positive, v_RD, on_RK, z_R, mode_R)

    def gradients_(
        self, v_BD: Tensor, start_ND: Tensor, noise: CountedStream, n_steps: int, *,
        last: Tensor | None, sampled: bool, capacity: int,
    ) -> Gradients:  # fmt: skip
        """The gradient of F on the data less that on samples of the model, means over each, padded to a capacity.

        The samples are ``n_steps`` sweeps away from ``start`` and go into ``last`` too, which may be where they start.
        The expectation over z is exact, or taken at the sampled z.
        """
        blocks = self._blocks(v_BD, start_ND, noise, n_steps, last)
        in_parts(lambda block: self._learn_(block, sampled=sampled), blocks)
        hidden_K, reach_K, visible_D = (
            torch.stack(sums).sum(0) for sums in zip(*(b.sums for b in blocks), strict=True)
        )
        if self.depth.sloped:
            hidden_K -= reach_K * self.depth.penalty_slopes(self.c_K)
        padding = capacity - len(hidden_K)
        bias_K = torch.nn.functional.pad(hidden_K, (0, padding))
        return Gradients(self._of_weights(capacity), bias_K, visible_D, label_weights=None, label_bias=None)

    def _blocks(
        self, v_BD: Tensor, start_ND: Tensor, noise: CountedStream, n_steps: int, last: Tensor | None
    ) -> list[_Block]:
        """The samples' before the data's: they take longer."""
        n, K, D = self.n_positive, len(self.c_K), len(self.b_D)
        model, data = spans(len(start_ND), ROWS), spans(n, ROWS)
        streams = iter(noise.parts(len(model) + len(data)))

        def sums() -> compiled.Sums:
            return compiled.Sums(torch.empty(K), torch.empty(K), torch.empty(D))

        return [
            _Block(
                slice(n + s.start, n + s.stop), start_ND[s], n_steps, None if last is None else last[s],
                next(streams), sums(),
            )
            for s in model
        ] + [_Block(s, v_BD[s], 0, None, next(streams), sums()) for s in data]  # fmt: skip

    def _learn_(self, block: _Block, *, sampled: bool) -> None:
        """Sweep the block's rows, then see what they say of the hidden side."""
        rows, noise, now_BD = block.rows, block.noise, block.start_BD
        v_BD, on_BK, up_DK = self.v_RD[rows], self.on_RK[rows], self.W_KD.T
        a_BK, field_BD = torch.empty_like(on_BK), torch.empty_like(v_BD)
        for _ in range(block.n_steps):
            torch.addmm(self.c_K, now_BD, up_DK, out=a_BK)
            compiled.hidden_step_(a_BK, self.side, noise.next_draw(2), on_BK)  # h lies there until there is better
            torch.addmm(self.b_D, on_BK, self.W_KD, out=field_BD)
            compiled.visible_step_(field_BD, noise.next_draw(), v_BD)
            now_BD = v_BD
        if now_BD is not v_BD:
            v_BD.copy_(now_BD)
        if block.last_BD is not None:
            block.last_BD.copy_(v_BD)
        torch.addmm(self.c_K, v_BD, up_DK, out=a_BK)
        compiled.phase_(
            a_BK, self.side, noise.next_draw(), self._share(rows.start), v_BD,
            on_BK, self.z_R[rows], self.mode_R[rows], block.sums, sampled=sampled,
        )  # fmt: skip

    def _share(self, row: int) -> float:
        """What a row counts in the gradient of F, whose sign is not that of p(h | v)."""
        n = self.n_positive
        return -1 / n if row < n else 1 / (len(self.v_RD) - n)

    def _of_weights(self, capacity: int) -> Tensor:
        K, D = self.W_KD.shape
        found_KD = torch.empty(capacity, D)
        found_KD[K:] = 0
        in_parts(lambda some: torch.mm(self.on_RK[:, some].T, self.v_RD, out=found_KD[some]), spans(K, UNITS))
        return found_KD
