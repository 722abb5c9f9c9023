"""A machine that does not change, asked about states: what sampling and annealing do again and again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from irbm.models.machine import Machine
from irbm.ops import compiled, parts
from irbm.ops.compiled import Tables
from irbm.ops.noise import CountedStream, KeyedStream, Noise
from irbm.ops.parts import Parts
from irbm.ops.recording import repeat

RECORDED_FROM = 20  # sweeps: a recording takes as long as some of them


@dataclass(frozen=True, eq=False)
class Frozen:
    """The machine's own answers, up to the order in which sums are taken, from tensor cores or tables where these pay.

    Visible and hidden units are 0 or 1. Not for means or probabilities, which tensor cores would round. The machine's
    tensors must not change as long as this is asked: some are copied.
    """

    machine: Machine
    upward: Parts | Tables | None  # the weights and biases, for visibles; None: as the machine does
    downward: Parts | Tables | None

    @classmethod
    def of(cls, machine: Machine) -> "Frozen":
        weights_KD, hidden_bias_K, visible_bias_D = machine.weights, machine.hidden_bias, machine.visible_bias
        if parts.suit(weights_KD):
            return cls(machine, Parts(weights_KD.T, hidden_bias_K), Parts(weights_KD, visible_bias_D))
        if compiled.runs_on(weights_KD):
            return cls(machine, Tables(weights_KD.T, hidden_bias_K), Tables(weights_KD, visible_bias_D))
        return cls(machine, None, None)

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

    def gibbs_step(
        self,
        v_BD: Tensor,
        y_B: Tensor | None,
        noise: Noise,
        *,
        clamp_visible: Tensor | None = None,
        clamp_label: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``Machine.gibbs_step``; ``clamp_visible``, (D,) or (B, D), marks what keeps its value."""
        _, h_BK = self.machine.hidden_given(self.activations(v_BD, y_B), noise)
        with_label = y_B is not None and not clamp_label
        new_BD, new_B = self.machine.visible_given(h_BK, self.visible_field(h_BK), noise, with_label=with_label)
        if clamp_visible is not None:
            new_BD = torch.where(clamp_visible, v_BD, new_BD)
        return new_BD, new_B if with_label else y_B

    def gibbs(
        self,
        v_BD: Tensor,
        y_B: Tensor | None,
        noise: Noise,
        n_steps: int,
        *,
        clamp_visible: Tensor | None = None,
        clamp_label: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``n_steps`` sweeps: compiled ones at once, and where a GPU draws from keys many are recorded."""
        up, down = self.upward, self.downward
        free = y_B is None and clamp_visible is None
        if free and isinstance(noise, CountedStream) and isinstance(up, Tables) and isinstance(down, Tables):
            return compiled.gibbs(v_BD, up, down, *self.machine.how_z_chooses(), noise.next_key, n_steps), None
        keyed = noise if isinstance(noise, KeyedStream) else None
        v_BD, y_B = v_BD.clone(), None if y_B is None else y_B.clone()

        def sweep_in_place() -> None:
            if keyed is not None:
                keyed.advance_()
            new_BD, new_B = self.gibbs_step(v_BD, y_B, noise, clamp_visible=clamp_visible, clamp_label=clamp_label)
            v_BD.copy_(new_BD)
            if y_B is not None and new_B is not None:
                y_B.copy_(new_B)

        if keyed is not None and n_steps >= RECORDED_FROM:
            repeat(sweep_in_place, n_steps, v_BD.device)
        else:
            for _ in range(n_steps):
                sweep_in_place()
        return v_BD, y_B
