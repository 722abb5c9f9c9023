"""Every operation in plain torch: the truth that faster twins are compared with.

Shapes: B examples (any leading axes), K hidden units (padding included), D visible units, C classes.

Two ways to number hidden units meet here. A *unit* is a row of the weights; a *position* is its place in the
model's order. ``order`` maps position to unit, ``rank`` maps unit to position (from 0). Everything with a z in it
runs over positions, because z = k means that the first k positions take part.

Randomness is an argument: uniforms in (0, 1), one for each decision.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Kind = Literal["fixed", "ordered", "infinite"]


def softplus(x: Tensor) -> Tensor:
    """ln(1 + e^x)."""
    # Above 40 the two agree to the last bit of float64; torch switches at 20, an error of 2e-9.
    return F.softplus(x, threshold=40.0)


def log_tail(beta: float) -> float:
    """ln sum_{m>=1} r^m = ln r/(1 - r) with r = 2^(1 - beta): all units beyond the last trained one, sec. 2.1."""
    log_r = (1.0 - beta) * math.log(2.0)
    return log_r - math.log(-math.expm1(log_r))


def z_table(gain_BK: Tensor, tail: float) -> Tensor:
    """t_k = sum_{i<=k} gain_i for k = 1..K, then t_{>K} = t_K + tail: (B, K+1), in float64. Eqs. 4-5.

    ``gain_i`` is softplus(a_i) - beta_i at position i, so that F(v, z=k) = -b.v - t_k.
    """
    # Sums of ten thousand terms of ten thousand each leave float32 no digit after the point.
    t_BK = torch.cumsum(gain_BK, dim=-1, dtype=torch.float64)
    return torch.cat([t_BK, t_BK[..., -1:] + tail], dim=-1)


def depth_table(gain_BK: Tensor, size: Tensor, kind: Kind, tail: float) -> Tensor:
    """The z-table of a kind of machine: -inf where z cannot be. ``size`` is l, a tensor; padding follows it.

    An infinite machine needs no mask, as padding costs what the units of its tail cost.
    """
    t_BZ = z_table(gain_BK, tail)
    if kind == "infinite":
        return t_BZ
    z_Z = torch.arange(1, t_BZ.shape[-1] + 1, device=t_BZ.device)
    return t_BZ.masked_fill(z_Z != size if kind == "fixed" else z_Z > size, -math.inf)


def log_sum_z(a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float) -> Tensor:
    """ln sum_z e^{t_z} from activations by unit: (B,), float64. Eqs. 4-5."""
    gain_BK = softplus(a_BK) - beta_K
    return torch.logsumexp(depth_table(gain_BK[..., order_K], size, kind, tail), dim=-1)


def survival(t_BZ: Tensor) -> Tensor:
    """P(z >= i | v) for i = 1..Z from a z-table (B, Z). Eq. 16."""
    p_BZ = torch.softmax(t_BZ, dim=-1)
    # Summed from the deep end, so that small probabilities keep their digits.
    return p_BZ.flip(-1).cumsum(-1).flip(-1).clamp(max=1.0)


def sample_z(survival_BZ: Tensor, u_B: Tensor) -> Tensor:
    """z in 1..Z by inversion of P(z >= i); Z stands for every z beyond the table."""
    return 1 + (u_B[..., None] < survival_BZ[..., 1:]).sum(-1)


def sample_bernoulli(logit: Tensor, u: Tensor) -> Tensor:
    """1 with probability s(logit), in the dtype of the logit. Eq. 13."""
    return (u < torch.sigmoid(logit)).to(logit.dtype)


def within(rank_K: Tensor, z_B: Tensor) -> Tensor:
    """Which units take part when the first z positions do: (B, K), boolean."""
    return rank_K < z_B[..., None]


def sample_hidden(a_BK: Tensor, rank_K: Tensor, z_B: Tensor, u_BK: Tensor) -> Tensor:
    """h_i ~ Bernoulli(s(a_i)) for the units among the first z positions, else 0. Eq. 12."""
    return sample_bernoulli(a_BK, u_BK) * within(rank_K, z_B)


def sample_categorical(logits_BC: Tensor, u_B: Tensor) -> Tensor:
    """A class in 0..C-1 with probabilities softmax(logits), by inversion. Eq. 14."""
    cdf_BC = torch.softmax(logits_BC.double(), dim=-1).cumsum(-1)
    return (u_B[..., None] >= cdf_BC[..., :-1]).sum(-1)


def inverse(order_K: Tensor) -> Tensor:
    """unit -> position, from position -> unit."""
    position_K = torch.arange(len(order_K), device=order_K.device)
    return torch.empty_like(order_K).scatter_(0, order_K, position_K)


def hidden_sample(
    a_BK: Tensor,
    order_K: Tensor,
    beta_K: Tensor,
    size: Tensor,
    kind: Kind,
    tail: float,
    u_B: Tensor,
    u_BK: Tensor,
) -> tuple[Tensor, Tensor]:
    """The hidden half-step of a Gibbs sweep: z, then h by unit, from activations by unit."""
    gain_BK = softplus(a_BK) - beta_K
    z_B = sample_z(survival(depth_table(gain_BK[:, order_K], size, kind, tail)), u_B)
    return z_B, sample_hidden(a_BK, inverse(order_K), z_B, u_BK)


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, u_B: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P(z >= position of i | v) and s(a_i) by unit, a sampled z, and argmax of p(z | v) over z <= l.

    Padding has no reach; the argmax leaves out the tail, which pools many z. Eqs. 16 and, of sec. 4.1, 33.
    """
    t_BZ = depth_table((softplus(a_BK) - beta_K)[:, order_K], size, kind, tail)
    survival_BZ = survival(t_BZ)
    trained_K = torch.arange(len(order_K), device=order_K.device) < size
    reach_BK = survival_BZ[:, :-1][:, inverse(order_K)].to(a_BK.dtype) * trained_K
    mode_B = t_BZ[:, :-1].masked_fill(~trained_K, -math.inf).argmax(-1) + 1
    return reach_BK, torch.sigmoid(a_BK), sample_z(survival_BZ, u_B), mode_B


class Heat(NamedTuple):
    """A point of an annealing path: how much an activation follows the state, and how z is drawn towards l.

    Scalars or (B,), float64.
    """

    tau: Tensor
    kappa: Tensor


def heated(field_BN: Tensor, base_BN: Tensor, tau: Tensor) -> Tensor:
    """tau of the activations or fields that the state asks for, and 1 - tau of those that a base has."""
    tau = column(tau).to(field_BN.dtype)
    return tau * field_BN + (1 - tau) * base_BN


def annealed_table(a_BK: Tensor, beta_K: Tensor, kind: Kind, tail: float, kappa: Tensor) -> Tensor:
    """The z-table of gains softplus(a_i) - beta_i, less kappa max(l - z, 0): (B, K+1), float64.

    Units are stored in their order, and K = l.
    """
    K = a_BK.shape[-1]
    gain_BK = softplus(a_BK) - beta_K
    t_BZ = depth_table(gain_BK, torch.tensor(K, device=a_BK.device), kind, tail)
    if kind == "fixed":
        return t_BZ
    shortfall_Z = torch.arange(K - 1, -2, -1, device=a_BK.device, dtype=torch.float64).clamp(min=0)
    return t_BZ - column(kappa) * shortfall_Z


def annealed_sample(
    a_BK: Tensor, answer_MK: Tensor, part_B: Tensor, beta_K: Tensor, kind: Kind, tail: float, here: Heat, there: Heat,
    u_B: Tensor, u_BK: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ln sum_z e^t at two points of a path, (B,) each, float64, and h (B, K) sampled at the second.

    A row's base has the activations ``answer_MK[part_B]``.
    """
    here_BK, there_BK = (heated(a_BK, answer_MK[part_B], heat.tau) for heat in (here, there))
    log_here_B = torch.logsumexp(annealed_table(here_BK, beta_K, kind, tail, here.kappa), dim=-1)
    t_BZ = annealed_table(there_BK, beta_K, kind, tail, there.kappa)
    log_there_B = torch.logsumexp(t_BZ, dim=-1)
    z_B = sample_z(survival(t_BZ), u_B)
    position_K = torch.arange(a_BK.shape[-1], device=a_BK.device)
    return log_here_B, log_there_B, sample_hidden(there_BK, position_K, z_B, u_BK)


def annealed_field(
    field_BD: Tensor, bias_MD: Tensor, log_share_M: Tensor, base_BM: Tensor, answer_BM: Tensor, tau: Tensor, u_B: Tensor
) -> tuple[Tensor, Tensor]:
    """A sampled part of the base, and the field on the visibles at a point of a path: (B,) int64 and (B, D).

    Part m weighs a row by pi_m e^{(1 - tau) (base + answer)}, in float64, and has the field ``bias_MD[m]``.
    """
    part_B = sample_categorical((1 - column(tau)) * (base_BM + answer_BM) + log_share_M, u_B)
    return part_B, heated(field_BD, bias_MD[part_B], tau)


def column(value: Tensor) -> Tensor:
    """(B,) as a column; a scalar as it is."""
    return value[:, None] if value.dim() else value


class Labelled(NamedTuple):
    """What a machine with labels adds to activations without one: weights and biases of labels, and how z chooses."""

    weights_KC: Tensor
    bias_C: Tensor
    order_K: Tensor
    beta_K: Tensor
    size: Tensor
    kind: Kind
    tail: float


def _label_tables(a_BK: Tensor, machine: Labelled) -> tuple[Tensor, Tensor]:
    """Activations by position (B, C, K), and d_y + t_z (B, C, Z) in float64, of every label."""
    order_K = machine.order_K
    # By position from here on: it is cheaper to put (B, K) and (C, K) in order than (B, C, K).
    a_BCK = a_BK[:, None, order_K] + machine.weights_KC.T[:, order_K]
    t_BCZ = depth_table(softplus(a_BCK) - machine.beta_K[order_K], machine.size, machine.kind, machine.tail)
    return a_BCK, t_BCZ + machine.bias_C.double()[:, None]


class Contrast(NamedTuple):
    """How the hidden side under the given label differs from its mean over the labels, by unit. Eqs. 30 and 43-46.

    A label's error is 1 for the given one, less p(y | v).
    """

    error_BC: Tensor
    reach_BK: Tensor  # sum over y of error P(z >= position of i | v, y), zero for padding
    on_BK: Tensor  # the same with s(a_i)
    on_KC: Tensor  # error P(z >= position of i | v, y) s(a_i), summed over the examples
    z_pos_B: Tensor  # sampled given the label
    z_neg_B: Tensor  # sampled with the label summed out
    mode_B: Tensor  # argmax of p(z | v, y) over z <= l


def label_contrast(a_BK: Tensor, y_B: Tensor, machine: Labelled, u_pos_B: Tensor, u_neg_B: Tensor) -> Contrast:
    """Every label's hidden side at once, from activations without a label: O(K C) an example, W v shared by them."""
    a_BCK, t_BCZ = _label_tables(a_BK, machine)
    order_K = machine.order_K
    rows_B, labels_C = torch.arange(len(y_B), device=y_B.device), torch.arange(len(machine.bias_C), device=y_B.device)
    trained_K = torch.arange(len(order_K), device=order_K.device) < machine.size
    mode_B = t_BCZ[rows_B, y_B, :-1].masked_fill(~trained_K, -math.inf).argmax(-1) + 1
    # What is left after subtracting the peak fits the parameters' dtype; a CPU crawls over numbers below e^-80.
    peak_BC = t_BCZ.amax(-1)
    p_BCZ = (t_BCZ - peak_BC[..., None]).to(a_BK.dtype).clamp_(min=-80.0).exp_()
    survival_BCZ = p_BCZ.flip(-1).cumsum(-1).flip(-1)
    total_BC = survival_BCZ[..., 0].clone()
    survival_BCZ.div_(total_BC[..., None])
    p_BC = torch.softmax(peak_BC + total_BC.log(), dim=-1).to(a_BK.dtype)
    error_BC = (y_B[:, None] == labels_C).to(p_BC.dtype) - p_BC
    reach_BCK = survival_BCZ[..., :-1] * error_BC[..., None] * trained_K
    on_BCK = torch.sigmoid(a_BCK).mul_(reach_BCK)
    rank_K = inverse(order_K)
    return Contrast(
        error_BC,
        reach_BCK.sum(1)[:, rank_K],
        on_BCK.sum(1)[:, rank_K],
        on_BCK.sum(0).T[rank_K],
        sample_z(survival_BCZ[rows_B, y_B], u_pos_B),
        sample_z(torch.einsum("bc,bcz->bz", p_BC, survival_BCZ), u_neg_B),
        mode_B,
    )


def summed_contrast(
    score_BC: Tensor,
    reach_BCK: Tensor,
    beyond_BC: Tensor,
    on_BCK: Tensor,
    z_pos_B: Tensor,
    mode_B: Tensor,
    y_B: Tensor,
    order_K: Tensor,
    size: Tensor,
    u_neg_B: Tensor,
) -> Contrast:
    """The rest of ``label_contrast`` for fast twins of it, from scores and tables by position in float32.

    ``reach`` is P(z >= k | v, y), ``beyond`` P(z > K | v, y), ``on`` the reach times s(a), zero for padding. What is
    summed over labels or examples is summed by batched products, which give the same bits each time.
    """
    p_BC = torch.softmax(score_BC, dim=-1).to(on_BCK.dtype)
    error_BC = (y_B[:, None] == torch.arange(p_BC.shape[1], device=y_B.device)).to(p_BC.dtype) - p_BC
    mean_BK = torch.bmm(p_BC[:, None], reach_BCK)[:, 0]
    mean_BZ = torch.cat([mean_BK, (p_BC * beyond_BC).sum(1, keepdim=True)], dim=1)
    own_BK = reach_BCK[torch.arange(len(y_B), device=y_B.device), y_B]
    trained_K = torch.arange(len(order_K), device=order_K.device) < size
    rank_K = inverse(order_K)
    return Contrast(
        error_BC,
        ((own_BK - mean_BK) * trained_K)[:, rank_K],
        torch.bmm(error_BC[:, None], on_BCK)[:, 0][:, rank_K],
        torch.bmm(error_BC.T[:, None], on_BCK.transpose(0, 1))[:, 0].T[rank_K],
        z_pos_B,
        sample_z(mean_BZ, u_neg_B),
        mode_B,
    )


def sample_depth_and_label(t_BCZ: Tensor, y_B: Tensor, u_SB: Tensor, other_SB: Tensor) -> tuple[Tensor, Tensor]:
    """S Gibbs steps of p(z, y | v) from a label: z ~ p(z | y, v), then y ~ p(y | z, v). Eqs. 26 and 28."""
    rows_B = torch.arange(len(y_B), device=y_B.device)
    z_B = torch.ones_like(y_B)
    for u_B, other_B in zip(u_SB, other_SB, strict=True):
        z_B = sample_z(survival(t_BCZ[rows_B, y_B]), u_B)
        y_B = sample_categorical(t_BCZ[rows_B, :, z_B - 1], other_B)
    return z_B, y_B


# -- what a step decides by counting, in place ------------------------------------------------------------------


def shuffle_(order_K: Tensor, length: Tensor, u_K: Tensor) -> None:
    """Sort the first ``length`` positions by their uniforms: a uniform permutation, sec. 3.1. The others stay."""
    position_K = torch.arange(len(order_K), device=order_K.device)
    key_K = torch.where(position_K < length, u_K.double(), position_K + 1.0)
    order_K.copy_(order_K[torch.argsort(key_K, stable=True)])


def grow_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """One unit more where an example and its negative partner both reach beyond l, up to a limit."""
    if len(z_pos_B) != len(z_neg_N):
        pairs = torch.arange(max(len(z_pos_B), len(z_neg_N)), device=size.device)
        z_pos_B, z_neg_N = z_pos_B[pairs % len(z_pos_B)], z_neg_N[pairs % len(z_neg_N)]
    beyond = (z_pos_B > size) & (z_neg_N > size)
    size.add_((beyond.any() & (size < limit)).long())


def tally_(sums: Tensor, mode_B: Tensor) -> None:
    """Add a batch's sum of likeliest z, and its maximum, to the two sums (float64)."""
    sums.add_(torch.stack([mode_B.sum(), mode_B.max()]))
