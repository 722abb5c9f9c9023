"""One machine made of three independent parts: visible units, a depth, and labels or none.

RBM, ordered RBM, infinite RBM, classification RBM and discriminative infinite RBM are configurations of it.

Shapes: B examples, K capacity (l trained units, then padding), D visible units, C classes, Z = K + 1 values of z.
Hidden quantities run over units, except those with ``z`` or ``positions`` in their description.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from irbm.models.depth import Depth, Fixed
from irbm.models.visible import Bernoulli
from irbm.ops import dispatch
from irbm.ops import reference as ops
from irbm.ops.dispatch import Hidden
from irbm.ops.noise import Noise
from irbm.ops.reference import Contrast, Labelled

# Entries (example, label, z) worked on at once, so that memory is bounded; fewer on a CPU, for its caches.
LABEL_ENTRIES = {"cpu": 2**18, "cuda": 2**23}


class Gradients(NamedTuple):
    """One tensor for each parameter of a machine, under the parameter's name."""

    weights: Tensor
    hidden_bias: Tensor
    visible_bias: Tensor
    label_weights: Tensor | None
    label_bias: Tensor | None


class Posterior(NamedTuple):
    """What the visibles (and the label, or every label) say about the hidden side."""

    activations: Tensor  # a_i, (B, K) or (B, C, K), over units
    table: Tensor  # d_y + t_k, (B, Z) or (B, C, Z), over positions
    survival: Tensor  # P(z >= k | v, y), like the table


@dataclass(frozen=True, eq=False)
class Machine:
    """Parameters padded to a capacity, and the probabilities they define: E(v, h, y, z), eqs. 1 and 8."""

    weights: Tensor  # W (K, D)
    hidden_bias: Tensor  # c (K,)
    visible_bias: Tensor  # b (D,)
    order: Tensor  # (K,) position -> unit, int64
    size: Tensor  # l, 0-dimensional int64
    depth: Depth
    label_weights: Tensor | None = None  # U (K, C)
    label_bias: Tensor | None = None  # d (C,)
    visible: Bernoulli = field(default_factory=Bernoulli)

    # -- shape and form -------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return self.weights.shape[0]

    @property
    def n_visible(self) -> int:
        return self.weights.shape[1]

    @property
    def n_classes(self) -> int:
        """C, or 0 for a machine without labels."""
        return 0 if self.label_bias is None else self.label_bias.shape[0]

    @property
    def rank(self) -> Tensor:
        """unit -> position, the inverse of the order."""
        return ops.inverse(self.order)

    @property
    def trained(self) -> Tensor:
        """Which units are among the l trained ones: (K,), boolean. Padding stays behind them in every order."""
        return torch.arange(self.capacity, device=self.order.device) < self.size

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the machine, by field name."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Machine":
        """The same machine with parameters of another dtype, or on another device."""
        moved: dict[str, Any] = {
            n: t.to(device=device, dtype=dtype if t.is_floating_point() else None) for n, t in self.tensors().items()
        }
        return replace(self, **moved)

    def clamped(self) -> "Machine":
        """The same parameters with z = l always: the converted RBM of sec. 4.2."""
        return replace(self, depth=Fixed())

    def with_capacity(self, capacity: int) -> "Machine":
        """A copy of the machine padded or cut to a capacity, which must hold its l units."""
        kept = self.capacity  # with its padding: to look at l would be to wait for the device
        if capacity < kept:
            kept = int(self.size)
            if capacity < max(kept, 1):
                raise ValueError(f"capacity must hold the {kept} trained units and at least one, got {capacity}")
        padding = torch.arange(kept, capacity, device=self.order.device)
        changed: dict[str, Any] = {name: tensor.clone() for name, tensor in self.tensors().items()}
        changed["order"] = torch.cat([self.order[:kept], padding])
        for name in ("weights", "hidden_bias", "label_weights"):
            old = getattr(self, name)
            if old is not None:
                new = old.new_zeros((capacity, *old.shape[1:]))
                new[:kept] = old[:kept]
                changed[name] = new
        return replace(self, **changed)

    def selected(self, units: Tensor) -> "Machine":
        """A copy that has these units only, stored in the order of their positions: order[k] = k."""
        changed: dict[str, Any] = {name: tensor.clone() for name, tensor in self.tensors().items()}
        for name in ("weights", "hidden_bias", "label_weights"):
            if getattr(self, name) is not None:
                changed[name] = getattr(self, name)[units]
        changed["order"] = torch.arange(len(units), device=units.device)
        changed["size"] = torch.tensor(len(units), device=units.device)
        return replace(self, **changed)

    # -- energies -------------------------------------------------------------------------------------------

    def activations(self, v_BD: Tensor, y_B: Tensor | None = None) -> Tensor:
        """a_i(v, y) = W_i.v + U_iy + c_i: (B, K); for every label, (B, C, K), where there are labels and y is None."""
        return self.with_labels(F.linear(v_BD, self.weights, self.hidden_bias), y_B)

    def with_labels(self, a_BK: Tensor, y_B: Tensor | None) -> Tensor:
        """W_i.v + c_i and U_iy: (B, K); for every label, (B, C, K), where there are labels and y is None."""
        if self.label_weights is None:
            return a_BK
        if y_B is None:
            return a_BK[:, None, :] + self.label_weights.T
        return a_BK + self.label_weights.T[y_B]

    def table(self, a: Tensor) -> Tensor:
        """The z-table (..., Z) over positions for activations (..., K): t_k = -F(v, y, z=k) - b.v - d_y."""
        gain = ops.softplus(a) - self.depth.penalties(self.hidden_bias)
        return self.depth.table(gain[..., self.order], self.size)

    def joint_table(self, a: Tensor, y_B: Tensor | None = None) -> Tensor:
        """d_y + t_k = -F(v, y, z=k) - b.v for activations (B, K): (B, Z); (B, C, Z) for (B, C, K)."""
        t = self.table(a)
        if self.label_bias is None:
            return t
        bias_C = self.label_bias.double()
        return t + (bias_C[:, None] if y_B is None else bias_C[y_B][:, None])

    def free_energy(self, v_BD: Tensor, y_B: Tensor | None = None) -> Tensor:
        """F(v) = -b.v - ln sum_z e^{t_z}, or F(v, y) where y is given: (B,), float64. Eqs. 4 and 10."""
        return self.visible.energy(v_BD, self.visible_bias) - self.log_sum(self.activations(v_BD, y_B), y_B)

    def log_sum(self, a: Tensor, y_B: Tensor | None = None) -> Tensor:
        """ln sum_z e^{d_y + t_z}, over all labels where y is None, from activations: -F(v) - b.v; (B,), float64."""
        summed = dispatch.log_sum_z(a, *self.how_z_chooses())
        if self.label_bias is None:
            return summed
        bias_C = self.label_bias.double()
        return torch.logsumexp(summed + bias_C, dim=-1) if y_B is None else summed + bias_C[y_B]

    def energy(self, v_BD: Tensor, h_BK: Tensor, z_B: Tensor, y_B: Tensor | None = None) -> Tensor:
        """E(v, h, y, z) for z in 1..l: (B,), float64. Eqs. 1 and 8."""
        part_BK = ops.within(self.rank, z_B)
        gain_BK = h_BK * self.activations(v_BD, y_B) - self.depth.penalties(self.hidden_bias)
        own = 0.0 if y_B is None or self.label_bias is None else self.label_bias.double()[y_B]
        return self.visible.energy(v_BD, self.visible_bias) - own - (gain_BK * part_BK).double().sum(-1)

    # -- conditionals ---------------------------------------------------------------------------------------

    def log_prob_z(self, v_BD: Tensor, y_B: Tensor | None = None) -> Tensor:
        """ln p(z | v) or ln p(z | v, y): (B, Z), float64; the last column is every z beyond the capacity."""
        t = self.joint_table(self.activations(v_BD, y_B), y_B)
        return torch.log_softmax(torch.logsumexp(t, dim=1) if t.dim() == 3 else t, dim=-1)

    def label_scores(self, v_BD: Tensor) -> Tensor:
        """-F(y | v) = d_y + ln sum_z e^{t_z(v, y)}: (B, C), float64. Eq. 31."""
        machine, a_BK = self._labelled(), F.linear(v_BD, self.weights, self.hidden_bias)
        return torch.cat([dispatch.label_scores(a_BK[rows], machine) for rows in self._label_parts(len(v_BD))])

    def _labelled(self) -> Labelled:
        if self.label_weights is None or self.label_bias is None:
            raise ValueError("this machine has no labels")
        return Labelled(self.label_weights, self.label_bias, *self.how_z_chooses())

    def log_prob_y(self, v_BD: Tensor) -> Tensor:
        """ln p(y | v): (B, C), float64. Eq. 32."""
        return torch.log_softmax(self.label_scores(v_BD), dim=-1)

    def posterior(self, v_BD: Tensor, y_B: Tensor | None = None) -> Posterior:
        """Everything the visibles say about the hidden side; for every label where there are some and y is None."""
        a = self.activations(v_BD, y_B)
        t = self.joint_table(a, y_B)
        return Posterior(a, t, ops.survival(t))

    def hidden_mean(self, v_BD: Tensor, y_B: Tensor | None = None) -> Tensor:
        """p(h_i = 1 | v) = s(a_i) P(z >= i | v): (B, K), summed over labels where y is None. Eq. 15."""
        posterior = self.posterior(v_BD, y_B)
        a = posterior.activations
        active = torch.sigmoid(a) * self.reach(posterior).to(a.dtype)
        if a.dim() == 3:
            return torch.einsum("bc,bck->bk", self._label_weights_of(posterior), active)
        return active

    def reach(self, posterior: Posterior) -> Tensor:
        """P(z >= position of i | v) for each unit i: (..., K), float64."""
        return posterior.survival[..., :-1][..., self.rank]

    def _label_weights_of(self, posterior: Posterior) -> Tensor:
        """p(y | v) from the posterior of every label: (B, C), in the parameters' dtype."""
        return torch.softmax(torch.logsumexp(posterior.table, dim=-1), dim=-1).to(posterior.activations.dtype)

    def visible_field(self, h_BK: Tensor) -> Tensor:
        """b_j + sum_i h_i W_ij: (B, D). Eq. 13, with h already zero beyond z."""
        return torch.addmm(self.visible_bias, h_BK, self.weights)

    def label_field(self, h_BK: Tensor) -> Tensor:
        """d_y + sum_i h_i U_iy: (B, C). Eq. 14."""
        if self.label_weights is None or self.label_bias is None:
            raise ValueError("this machine has no labels")
        return torch.addmm(self.label_bias, h_BK, self.label_weights)

    # -- sampling -------------------------------------------------------------------------------------------

    def sample_hidden(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor]:
        """z ~ p(z | v, y), then h ~ p(h | v, y, z): (B,) and (B, K). A z beyond the capacity reads K + 1."""
        return self.hidden_given(self.activations(v_BD, y_B), noise)

    def hidden_given(self, a_BK: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """The same from activations."""
        return dispatch.hidden_sample(a_BK, *self.how_z_chooses(), noise)

    def hidden(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise) -> Hidden:
        """Reach and activity of each unit, with a sampled and the likeliest z: what a phase of training needs."""
        return dispatch.hidden_reach(self.activations(v_BD, y_B), *self.how_z_chooses(), noise)

    def how_z_chooses(self) -> tuple[Tensor, Tensor, Tensor, ops.Kind, float]:
        """What every operation on a z-table is given beside activations: order, penalties, l, the kind and its tail."""
        return self.order, self.depth.penalties(self.hidden_bias), self.size, self.depth.kind, self.depth.tail

    def gibbs_step(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """One sweep z -> h -> (v, y), sec. 2.1."""
        _, h_BK = self.sample_hidden(v_BD, y_B, noise)
        return self.visible_given(h_BK, self.visible_field(h_BK), noise, with_label=y_B is not None)

    def visible_given(
        self, h_BK: Tensor, field_BD: Tensor, noise: Noise, *, with_label: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The second half of a sweep, h -> (v, y), from the hidden units and their field."""
        v_BD = self.visible.sample(field_BD, noise)
        y_B = ops.sample_categorical(self.label_field(h_BK), noise(len(h_BK))) if with_label else None
        return v_BD, y_B

    def gibbs(self, v_BD: Tensor, y_B: Tensor | None, noise: Noise, n_steps: int) -> tuple[Tensor, Tensor | None]:
        """``n_steps`` sweeps of ``gibbs_step``."""
        for _ in range(n_steps):
            v_BD, y_B = self.gibbs_step(v_BD, y_B, noise)
        return v_BD, y_B

    # -- all labels at once ---------------------------------------------------------------------------------

    def label_contrast(self, v_BD: Tensor, y_B: Tensor, noise: Noise) -> Contrast:
        """What the given label says about the hidden side beyond what all labels say together. Eq. 30."""
        machine, a_BK = self._labelled(), F.linear(v_BD, self.weights, self.hidden_bias)
        u_pos_B, u_neg_B = noise(len(v_BD)), noise(len(v_BD))
        parts, on_KC = [], a_BK.new_zeros(())
        for rows in self._label_parts(len(v_BD)):
            part = dispatch.label_contrast(a_BK[rows], y_B[rows], machine, u_pos_B[rows], u_neg_B[rows])
            on_KC = on_KC + part.on_KC
            parts.append(part._replace(on_KC=a_BK.new_zeros(0)))  # summed already, and large
        return Contrast(*(torch.cat(values) for values in zip(*parts, strict=True)))._replace(on_KC=on_KC)

    def sample_depth_and_label(self, v_BD: Tensor, y_B: Tensor, noise: Noise, n_steps: int) -> tuple[Tensor, Tensor]:
        """z and y after Gibbs steps of p(z, y | v) from the given labels: (B,) each. Eqs. 26-28."""
        u_SB, other_SB = noise(n_steps, len(v_BD)), noise(n_steps, len(v_BD))
        found = []
        for rows in self._label_parts(len(v_BD)):
            t_BCZ = self.joint_table(self.activations(v_BD[rows]))
            found.append(ops.sample_depth_and_label(t_BCZ, y_B[rows], u_SB[:, rows], other_SB[:, rows]))
        z, y = zip(*found, strict=True)
        return torch.cat(z), torch.cat(y)

    def _label_parts(self, n: int) -> Iterator[slice]:
        """Examples that are given all labels at once; where there are none, one part that is empty."""
        most = max(1, LABEL_ENTRIES[self.weights.device.type] // (max(self.n_classes, 1) * (self.capacity + 1)))
        return (slice(start, start + most) for start in range(0, max(n, 1), most))

    # -- gradients ------------------------------------------------------------------------------------------

    def contrast_gradients(self, v_BD: Tensor, contrast: Contrast) -> Gradients:
        """The mean over the batch of d(F(v, y) - F(v))/dtheta = -d ln p(y | v)/dtheta. Eq. 30; b has no part in it."""
        n = len(v_BD)
        slope_K = self.depth.penalty_slopes(self.hidden_bias)
        return Gradients(
            weights=dispatch.outer(contrast.on_BK, v_BD) / -n,
            hidden_bias=-(contrast.on_BK - contrast.reach_BK * slope_K).sum(0) / n,
            visible_bias=torch.zeros_like(self.visible_bias),
            label_weights=-contrast.on_KC / n,
            label_bias=-contrast.error_BC.mean(0),
        )

    def free_energy_gradients(
        self,
        v_BD: Tensor,
        y_B: Tensor | None = None,
        z_B: Tensor | None = None,
    ) -> Gradients:
        """The mean over the batch of dF/dtheta, in closed form. Eqs. 39-46 with their signs mended.

        The expectation over z is exact, or taken at one sampled z for each example where ``z_B`` is given
        (Algorithm 1). For a machine with labels and no ``y_B`` it is the gradient of F(v), labels summed out.
        """
        posterior = self.posterior(v_BD, y_B)
        a = posterior.activations
        reach = ops.within(self.rank, z_B) if z_B is not None else self.reach(posterior)
        reach = reach.to(a.dtype) * self.trained
        label_BC = None
        if a.dim() == 3:
            label_BC = self._label_weights_of(posterior)
            reach = reach * label_BC[..., None]
        elif y_B is not None:
            label_BC = self._one_hot(y_B)
        return self._mean_gradients(v_BD, label_BC, reach, torch.sigmoid(a))

    def phase_gradients(self, v_BD: Tensor, y_B: Tensor | None, reach_BK: Tensor, active_BK: Tensor) -> Gradients:
        """The same from what a phase knows of the hidden side; ``reach_BK`` must be zero for padding."""
        return self._mean_gradients(v_BD, None if y_B is None else self._one_hot(y_B), reach_BK, active_BK)

    def phases(
        self, v_RD: Tensor, y_R: Tensor | None, a_RK: Tensor, share_R: Tensor, noise: Noise, *, sampled: bool
    ) -> tuple[Gradients, Tensor, Tensor]:
        """The gradient of sum_r share_r F(v_r), data less samples in one call; then z and the likeliest z of each row.

        From visibles and their activations. The expectation over z is exact, or taken at the sampled z.
        """
        hidden = (a_RK, *self.how_z_chooses())
        phase = dispatch.phases(*hidden, -share_R, noise, sampled=sampled, sloped=self.depth.sloped)
        label_RC = None if y_R is None else self._one_hot(y_R)
        return self._gradients(v_RD, label_RC, phase.on_RK, phase.reach_RK, share_R), phase.z_R, phase.mode_R

    def _mean_gradients(self, v_BD: Tensor, label_BC: Tensor | None, reach: Tensor, active: Tensor) -> Gradients:
        n = len(v_BD)
        reach = reach / -n  # weighed here, where it is small: the gradient of the weights would take more passes
        return self._gradients(v_BD, label_BC, reach * active, reach, self.weights.new_full((n,), 1.0 / n))

    def _one_hot(self, y_B: Tensor) -> Tensor:
        # Not torch's one_hot: that looks at the values, which would make the host wait for the device.
        return (y_B[:, None] == torch.arange(self.n_classes, device=y_B.device)).to(self.weights.dtype)

    def _gradients(
        self, v_BD: Tensor, label_BC: Tensor | None, on: Tensor, reach: Tensor | None, share_B: Tensor
    ) -> Gradients:
        """sum share dF/dtheta from -share P(z >= i) s(a_i) and -share P(z >= i): (B, K), or (B, C, K) by label."""
        per_label = on.dim() == 3
        on_BK = on.sum(1) if per_label else on
        label_weights = None
        if label_BC is not None:
            label_weights = on.sum(0).T if per_label else on.T @ label_BC
        hidden_bias = on_BK.sum(0)
        if self.depth.sloped and reach is not None:
            hidden_bias = hidden_bias - reach.flatten(0, -2).sum(0) * self.depth.penalty_slopes(self.hidden_bias)
        return Gradients(
            weights=dispatch.outer(on_BK, v_BD),
            hidden_bias=hidden_bias,
            visible_bias=-(share_B @ v_BD),
            label_weights=label_weights,
            label_bias=None if label_BC is None else -(share_B @ label_BC),
        )
