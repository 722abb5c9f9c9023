"""The hot loop's operations: fused kernels on GPUs, compiled ones on CPUs, the reference where there are neither.

Randomness comes as a noise: uniforms on call, or a key that a kernel draws from itself.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.ops import compiled, fused, reference
from irbm.ops.noise import KeyedStream, Noise
from irbm.ops.reference import Kind


class Hidden(NamedTuple):
    """What one positive or negative phase needs of the hidden side, by unit."""

    reach_BK: Tensor  # P(z >= position of i | v), zero for padding
    active_BK: Tensor  # s(a_i)
    z_B: Tensor  # sampled
    mode_B: Tensor  # argmax of p(z | v) over z <= l


def has_kernels(a: Tensor) -> bool:
    """Whether fused kernels can work on this tensor."""
    return a.is_cuda and a.dtype == torch.float32 and fused.available(a.device)


def hidden_sample(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, noise: Noise
) -> tuple[Tensor, Tensor]:
    """z ~ p(z | v), then h ~ p(h | v, z), from activations."""
    if not has_kernels(a_BK):
        u_B, u_BK = noise(len(a_BK)), noise(*a_BK.shape)
        sample = compiled.hidden_sample if compiled.runs_on(a_BK) else reference.hidden_sample
        return sample(a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK)
    if isinstance(noise, KeyedStream):
        call = noise.next_call()
        return fused.hidden_sample_keyed(a_BK, order_K, beta_K, size, kind, tail, noise.key, call)
    u_B, u_BK = noise(len(a_BK)), noise(*a_BK.shape)
    return fused.hidden_sample(a_BK, order_K, beta_K, size, kind, tail, u_B, u_BK)


def hidden_reach(
    a_BK: Tensor, order_K: Tensor, beta_K: Tensor, size: Tensor, kind: Kind, tail: float, noise: Noise
) -> Hidden:
    """The hidden side of a phase, from activations."""
    if not has_kernels(a_BK):
        reach = compiled.hidden_reach if compiled.runs_on(a_BK) else reference.hidden_reach
        return Hidden(*reach(a_BK, order_K, beta_K, size, kind, tail, noise(len(a_BK))))
    if isinstance(noise, KeyedStream):
        call = noise.next_call()
        return Hidden(*fused.hidden_reach_keyed(a_BK, order_K, beta_K, size, kind, tail, noise.key, call))
    return Hidden(*fused.hidden_reach(a_BK, order_K, beta_K, size, kind, tail, noise(len(a_BK))))


def bernoulli_sample(field_BD: Tensor, noise: Noise) -> Tensor:
    """v ~ Bernoulli(s(field))."""
    if not has_kernels(field_BD):
        sample = compiled.sample_bernoulli if compiled.runs_on(field_BD) else reference.sample_bernoulli
        return sample(field_BD, noise(*field_BD.shape))
    if isinstance(noise, KeyedStream):
        return fused.visible_sample_keyed(field_BD, noise.key, noise.next_call())
    return fused.visible_sample(field_BD, noise(*field_BD.shape))
