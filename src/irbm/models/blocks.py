"""The sweeps and the gradient of one training step on a CPU, for machines without labels: a block at a time.

Chains do not know of each other, so a block of them, and of examples, goes through all its sweeps and its phase on one
thread; then a block of units through its part of the gradient. How many blocks there are does not hang on the number
of threads, and so the results do not either. All of it works without padding.

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

ROWS, UNITS = 64, 128  # the most of a block: chains or examples, units


def suit(machine: Machine) -> bool:
    """Whether there are kernels for this machine's rows here."""
    return machine.n_classes == 0 and compiled.runs_on(machine.weights)


class _Block(NamedTuple):
    """Chains and examples, in that order, in rows of the step."""

    rows: slice
    chains: slice  # of N
    examples: slice  # of B
    noise: CountedStream
    sums: compiled.Sums


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one step, block by block, and what comes to be known of them."""

    W_KD: Tensor
    c_K: Tensor
    b_D: Tensor
    depth: Depth
    side: compiled.HiddenSide
    share_R: Tensor  # what a row counts in the gradient of F, whose sign is not that of p(h | v)
    v_RD: Tensor
    on_RK: Tensor  # p(h_i = 1 | v) times the share
    z_R: Tensor  # sampled
    mode_R: Tensor  # likeliest z

    @classmethod
    def of(cls, machine: Machine, n_rows: int) -> "Step":
        """With room for so many rows."""
        K, depth = int(machine.size), machine.depth
        c_K, order_K = machine.hidden_bias[:K], machine.order[:K]
        side = compiled.HiddenSide.of(order_K, depth.penalties(c_K), machine.size, depth.kind, depth.tail)
        share_R, v_RD, on_RK = (torch.empty(n_rows, *width) for width in ((), (machine.n_visible,), (K,)))
        z_R, mode_R = (torch.empty(n_rows, dtype=torch.int64) for _ in range(2))
        return cls(machine.weights[:K], c_K, machine.visible_bias, depth, side, share_R, v_RD, on_RK, z_R, mode_R)

    @property
    def positive_R(self) -> Tensor:
        """Which rows are examples."""
        return self.share_R < 0

    def gradients_(
        self, v_BD: Tensor, start_ND: Tensor, noise: CountedStream, n_steps: int, *,
        last: Tensor | None, sampled: bool, capacity: int,
    ) -> Gradients:  # fmt: skip
        """The gradient of F on the data less that on samples of the model, means over each, padded to a capacity.

        The samples are ``n_steps`` sweeps away from ``start`` and go into ``last`` too, which may be where they start.
        The expectation over z is exact, or taken at the sampled z.
        """

        def learn(block: _Block) -> None:
            self._sweep_(block, start_ND, n_steps, last)
            self._see_(block, v_BD, 1 / len(v_BD), 1 / len(start_ND), sampled=sampled)

        blocks = self._blocks(len(v_BD), len(start_ND), noise)
        in_parts(learn, blocks)
        hidden_K, reach_K, visible_D = (
            torch.stack(sums).sum(0) for sums in zip(*(b.sums for b in blocks), strict=True)
        )
        if self.depth.sloped:
            hidden_K -= reach_K * self.depth.penalty_slopes(self.c_K)
        bias_K = torch.nn.functional.pad(hidden_K, (0, capacity - len(hidden_K)))
        return Gradients(self._of_weights(capacity), bias_K, visible_D, label_weights=None, label_bias=None)

    def _blocks(self, n: int, N: int, noise: CountedStream) -> list[_Block]:
        count, K, D = -(-max(n, N) // ROWS), len(self.c_K), len(self.b_D)
        parts = zip(spans(N, count), spans(n, count), noise.parts(count), strict=True)
        return [
            _Block(
                slice(c.start + e.start, c.stop + e.stop), c, e, stream,
                compiled.Sums(torch.empty(K), torch.empty(K), torch.empty(D)),
            )
            for c, e, stream in parts
        ]  # fmt: skip

    def _sweep_(self, block: _Block, start_ND: Tensor, n_steps: int, last: Tensor | None) -> None:
        """The block's chains, all sweeps."""
        first = block.rows.start
        rows = slice(first, first + block.chains.stop - block.chains.start)
        now_BD, v_BD, h_BK = start_ND[block.chains], self.v_RD[rows], self.on_RK[rows]
        a_BK, field_BD, up_DK = torch.empty_like(h_BK), torch.empty_like(v_BD), self.W_KD.T
        for _ in range(n_steps):
            torch.addmm(self.c_K, now_BD, up_DK, out=a_BK)
            compiled.hidden_step_(a_BK, self.side, block.noise.next_draw(2), h_BK)
            torch.addmm(self.b_D, h_BK, self.W_KD, out=field_BD)
            compiled.visible_step_(field_BD, block.noise.next_draw(), v_BD)
            now_BD = v_BD
        if last is not None:
            last[block.chains] = v_BD

    def _see_(self, block: _Block, v_BD: Tensor, data_share: float, model_share: float, *, sampled: bool) -> None:
        """What the block's rows say of the hidden side: examples, and chains after their sweeps."""
        rows, boundary = block.rows, block.rows.start + block.chains.stop - block.chains.start
        self.v_RD[boundary : rows.stop] = v_BD[block.examples]
        self.share_R[rows.start : boundary], self.share_R[boundary : rows.stop] = model_share, -data_share
        seen_BD = self.v_RD[rows]
        compiled.phase_(
            torch.addmm(self.c_K, seen_BD, self.W_KD.T), self.side, block.noise.next_draw(), self.share_R[rows],
            seen_BD, self.on_RK[rows], self.z_R[rows], self.mode_R[rows], block.sums, sampled=sampled,
        )  # fmt: skip

    def _of_weights(self, capacity: int) -> Tensor:
        K, D = self.W_KD.shape
        found_KD = torch.empty(capacity, D)
        found_KD[K:] = 0
        units = spans(K, -(-K // UNITS))
        in_parts(lambda some: torch.mm(self.on_RK[:, some].T, self.v_RD, out=found_KD[some]), units)
        return found_KD
