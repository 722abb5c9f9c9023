"""The hot loop's operations: fused kernels on GPUs, compiled ones on CPUs, the reference where there are neither.

Randomness comes as a noise: uniforms on call, or a key that a kernel draws from itself.
"""

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.ops import annealing, compiled, counting, fused, labels, reference, scoring
from irbm.ops.kernels import Draws, available
from irbm.ops.noise import CountedStream, KeyedStream, Noise
from irbm.ops.reference import Contrast, Heat, Kind, Labelled


class Hidden(NamedTuple):
    """What one positive or negative phase needs of the hidden side, by unit."""

    reach_BK: Tensor  # P(z >= position of i | v), zero for padding
    active_BK: Tensor  # s(a_i)
    z_B: Tensor  # sampled
    mode_B: Tensor  # argmax of p(z | v) over z <= l


def has_kernels(a: Tensor) -> bool:
    """Whether fused kernels can work on this tensor, and on integers and sums beside it."""
    return a.is_cuda and a.dtype != torch.float64 and available(a.device)


def has_products(weights_KD: Tensor, rows: int, capacity: int | None = None) -> bool:
    """Whether binary rows can be multiplied with these weights, or so many, on tensor cores, in two bfloat16 parts."""
    K, D = capacity or len(weights_KD), weights_KD.shape[1]
    indexed_by_32_bits = max(rows, K, D) * max(K, D) < 2**31
    return has_kernels(weights_KD) and indexed_by_32_bits and _has_bfloat16(weights_KD.device)


def _has_bfloat16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, noise: Noise
) -> tuple[Tensor, Tensor]:
    """z ~ p(z | v), then h ~ p(h | v, z), from activations."""
    hidden = (a_BK, order_K, beta_K, size, kind, tail)
    if has_kernels(a_BK) and isinstance(noise, KeyedStream):
        return fused.hidden_sample_keyed(*hidden, *noise.next_key())
    if compiled.runs_on(a_BK) and isinstance(noise, CountedStream):
        return compiled.hidden_sample_keyed(*hidden, *noise.next_key())
    sample = compiled.hidden_sample if compiled.runs_on(a_BK) else reference.hidden_sample
    if has_kernels(a_BK):
        sample = fused.hidden_sample
    return sample(*hidden, noise(len(a_BK)), noise(*a_BK.shape))


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, noise: Noise
) -> Hidden:
    """The hidden side of a phase, from activations."""
    if not has_kernels(a_BK):
        reach = compiled.hidden_reach if compiled.runs_on(a_BK) else reference.hidden_reach
        return Hidden(*reach(a_BK, order_K, beta_K, size, kind, tail, noise(len(a_BK))))
    if isinstance(noise, KeyedStream):
        return Hidden(*fused.hidden_reach_keyed(a_BK, order_K, beta_K, size, kind, tail, *noise.next_key()))
    return Hidden(*fused.hidden_reach(a_BK, order_K, beta_K, size, kind, tail, noise(len(a_BK))))


class Phase(NamedTuple):
    """The hidden side of rows of data and of samples, weighed by their shares in a gradient; by unit."""

    on_RK: Tensor  # share P(z >= position of i | v) s(a_i), zero for padding
    reach_RK: Tensor | None  # share P(z >= position of i | v), where it is asked for
    z_R: Tensor  # sampled
    mode_R: Tensor  # argmax of p(z | v) over z <= l


def phases(
    a_RK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float,
    share_R: Tensor, noise: Noise, *, sampled: bool, sloped: bool,
) -> Phase:  # fmt: skip
    """The hidden side of both phases, from activations; with the sampled z for P(z >= i | v) where ``sampled``."""
    hidden = (a_RK, order_K, beta_K, size, kind, tail)
    if compiled.runs_on(a_RK):
        return Phase(*compiled.phases(*hidden, draws(noise, len(a_RK)), share_R, sampled=sampled, sloped=sloped))
    found = hidden_reach(*hidden, noise)
    reach_RK = found.reach_BK
    if sampled:
        rank_K = reference.inverse(order_K)
        reach_RK = (reference.within(rank_K, found.z_B) & (rank_K < size)).to(a_RK.dtype)
    reach_RK = reach_RK * share_R[:, None]
    return Phase(reach_RK * found.active_BK, reach_RK if sloped else None, found.z_B, found.mode_B)


def outer(x_NK: Tensor, v_ND: Tensor) -> Tensor:
    """sum_n x_nk v_nd: (K, D); faster on CPUs where v is 0 or 1."""
    return compiled.outer(x_NK, v_ND) if compiled.runs_on(x_NK) else x_NK.T @ v_ND


def bernoulli_sample(field_BD: Tensor, noise: Noise) -> Tensor:
    """v ~ Bernoulli(s(field))."""
    if compiled.runs_on(field_BD):
        return compiled.sample_bernoulli(field_BD, draws(noise, *field_BD.shape))
    if not has_kernels(field_BD):
        return reference.sample_bernoulli(field_BD, noise(*field_BD.shape))
    if isinstance(noise, KeyedStream):
        return fused.visible_sample_keyed(field_BD, *noise.next_key())
    return fused.visible_sample(field_BD, noise(*field_BD.shape))


def annealed_sample(
    a_BK: Tensor, answer_MK: Tensor, part_B: Tensor, beta_K: Tensor, kind: Kind, tail: float, here: Heat, there: Heat,
    noise: Noise,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ln sum_z e^t at two points of a path, and h sampled at the second, from activations and those of the base."""
    machine = (a_BK, answer_MK, part_B, beta_K, kind, tail)
    if has_kernels(a_BK) and isinstance(noise, KeyedStream):
        return annealing.annealed_sample(*machine, here, there, noise.next_key())
    sample = compiled.annealed_sample if compiled.runs_on(a_BK) else reference.annealed_sample
    return sample(*machine, here, there, noise(len(a_BK)), noise(*a_BK.shape))


def annealed_visible(
    field_BD: Tensor, bias_MD: Tensor, log_share_M: Tensor, base_BM: Tensor, answer_BM: Tensor, tau: Tensor,
    noise: Noise,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A part of a path's base, then v, at a point of the path."""
    state = (field_BD, bias_MD, log_share_M, base_BM, answer_BM, tau)
    if has_kernels(field_BD) and isinstance(noise, KeyedStream) and len(bias_MD) <= annealing.MOST_IN_BASE:
        return annealing.annealed_visible(*state, noise.next_key())
    part_B, field_BD = reference.annealed_field(*state, noise(len(field_BD)))
    return part_B, bernoulli_sample(field_BD, noise)


def log_sum_z(a: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float) -> Tensor:
    """ln sum_z e^{t_z} from activations (..., K) of either precision: (...,), float64."""
    machine = (order_K, beta_K, size, kind, tail)
    if a.requires_grad or beta_K.requires_grad:
        return reference.log_sum_z(a, *machine)
    if a.is_cuda and available(a.device):
        return scoring.log_sum_z(a.flatten(0, -2), *machine).view(a.shape[:-1])
    if compiled.counts_on(a.device):
        return compiled.log_sum_z(a.flatten(0, -2), *machine).view(a.shape[:-1])
    return reference.log_sum_z(a, *machine)


def label_scores(a_BK: Tensor, machine: Labelled) -> Tensor:
    """-F(y | v) of every label, from activations without one."""
    if has_kernels(a_BK):
        return labels.label_scores(a_BK, machine)
    if all(map(compiled.runs_on, (a_BK, machine.weights_KC, machine.bias_C))):
        return compiled.label_scores(a_BK, machine)
    a_BCK, how = a_BK[:, None] + machine.weights_KC.T, machine[2:]
    return log_sum_z(a_BCK, *how) + machine.bias_C.double()


def label_contrast(a_BK: Tensor, y_B: Tensor, machine: Labelled, u_pos_B: Tensor, u_neg_B: Tensor) -> Contrast:
    """Every label's hidden side at once, from activations without one."""
    contrast = compiled.label_contrast if compiled.runs_on(a_BK) else reference.label_contrast
    if has_kernels(a_BK):
        contrast = labels.label_contrast
    return contrast(a_BK, y_B, machine, u_pos_B, u_neg_B)


def draws(noise: Noise, *shape: int) -> Draws:
    """Uniforms for a kernel, or the key it draws them from itself."""
    return noise.next_key() if isinstance(noise, KeyedStream | CountedStream) else noise(*shape)


def shuffle_(order_K: Tensor, length: Tensor, u_K: Tensor) -> None:
    """Permute the first ``length`` positions uniformly, in place; the others stay."""
    if compiled.runs_on(u_K):
        compiled.shuffle_(order_K, int(length), u_K)
    else:
        reference.shuffle_(order_K, length, u_K)


def grow_(size: Tensor, z_pos_B: Tensor, z_neg_N: Tensor, limit: int) -> None:
    """One unit more where an example and its negative partner both reach beyond l, up to a limit."""
    if has_kernels(size):
        counting.grow_(size, z_pos_B, z_neg_N, limit)
    elif compiled.counts_on(size.device):
        compiled.grow_(size, z_pos_B, z_neg_N, limit)
    else:
        reference.grow_(size, z_pos_B, z_neg_N, limit)


def tally_(sums: Tensor, mode_B: Tensor) -> None:
    """Add the sum of a batch's likeliest z, and their maximum, to the two sums (float64)."""
    if has_kernels(mode_B):
        counting.tally_(sums, mode_B)
    elif compiled.counts_on(mode_B.device):
        compiled.tally_(sums, mode_B)
    else:
        reference.tally_(sums, mode_B)


def updates(weights_KD: Tensor) -> ModuleType | None:
    """Where the kernels of AdaGrad's update of such weights are; None where there are none."""
    if has_kernels(weights_KD):
        return fused
    return compiled if compiled.runs_on(weights_KD) else None
