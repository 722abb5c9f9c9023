"""Gradients of the three objectives, to be descended, and the depths that decide growth. Sec. 3.2."""

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Frozen, Gradients, Machine, sweeps
from irbm.ops import compiled, dispatch
from irbm.ops import reference as ops
from irbm.ops.noise import Noise
from irbm.training.chains import Chains, advance_
from irbm.training.settings import Settings


class Phases(NamedTuple):
    """What one step learns from a batch."""

    gradients: Gradients
    z_pos_B: Tensor
    z_neg_N: Tensor
    mode_B: Tensor  # likeliest z of the batch


def gradients(
    machine: Machine, v_BD: Tensor, y_B: Tensor | None, chains: Chains, settings: Settings, noise: Noise
) -> Phases:
    """The gradient of the settings' objective on one batch."""
    if settings.objective == "generative":
        return generative(machine, v_BD, y_B, chains, settings, noise)
    if y_B is None:
        raise ValueError(f"objective {settings.objective!r} needs labels, got y=None")
    discriminated = discriminative(machine, v_BD, y_B, settings, noise)
    if settings.objective == "discriminative":
        return discriminated
    generated = generative(machine, v_BD, y_B, chains, settings, noise)
    return generated._replace(gradients=_combined(discriminated.gradients, generated.gradients, factor=settings.alpha))


def generative(
    machine: Machine, v_BD: Tensor, y_B: Tensor | None, chains: Chains, settings: Settings, noise: Noise
) -> Phases:
    """-ln p(v) or -ln p(v, y): data against samples of the model. Eqs. 7 and 22."""
    if y_B is None and sweeps.suit(machine, len(v_BD) + max(len(v_BD), len(chains))):
        return _on_tensor_cores(machine, v_BD, chains, settings, noise)
    n, sampled = len(v_BD), settings.gradient == "sampled"
    asked = Frozen.of(machine) if compiled.runs_on(machine.weights) else machine  # a GPU's copy pays for no single step
    v_ND, y_N = advance_(chains, asked, v_BD, y_B, noise, settings.gibbs_steps)
    v_RD = torch.cat([v_BD, v_ND])  # data, then samples: one batch for both phases
    y_R = None if y_B is None or y_N is None else torch.cat([y_B, y_N])
    a_RK = asked.activations(v_RD, y_R)
    found, z_R, mode_R = machine.phases(v_RD, y_R, a_RK, _shares(v_BD, v_ND), noise, sampled=sampled)
    return Phases(found, z_R[:n], z_R[n:], mode_R[:n])


def _shares(v_BD: Tensor, v_ND: Tensor) -> Tensor:
    """What each row counts in the mean over data less the mean over samples."""
    n, m = len(v_BD), len(v_ND)
    return torch.cat([v_BD.new_full((n,), 1.0 / n), v_BD.new_full((m,), -1.0 / m)])


def _on_tensor_cores(machine: Machine, v_BD: Tensor, chains: Chains, settings: Settings, noise: Noise) -> Phases:
    """The same without labels where there are kernels for it, both phases in one batch: data, then samples."""
    start_ND = v_BD if chains.v_ND is None else chains.v_ND
    n, rows = len(v_BD), len(v_BD) + len(start_ND)
    of_machine = sweeps.Sweeps.of(machine)
    v_RD = torch.empty(rows, machine.n_visible, dtype=torch.bfloat16, device=v_BD.device)
    v_RD[:n].copy_(v_BD)
    of_machine.gibbs_(start_ND, noise, settings.gibbs_steps, out=v_RD[n:], last=chains.v_ND)
    draws = dispatch.draws(noise, rows)
    found, z_R, mode_R = of_machine.gradients(v_RD, n, draws, sampled=settings.gradient == "sampled")
    return Phases(found, z_R[:n], z_R[n:], mode_R[:n])


def discriminative(machine: Machine, v_BD: Tensor, y_B: Tensor, settings: Settings, noise: Noise) -> Phases:
    """-ln p(y | v) = F(v, y) - F(v): eq. 30, exactly, or eq. 29. Growth compares p(z | v, y) with p(z | v)."""
    if settings.gradient == "sampled":
        return _sampled_discriminative(machine, v_BD, y_B, settings, noise)
    contrast = machine.label_contrast(v_BD, y_B, noise)
    return Phases(machine.contrast_gradients(v_BD, contrast), contrast.z_pos_B, contrast.z_neg_B, contrast.mode_B)


def _sampled_discriminative(machine: Machine, v_BD: Tensor, y_B: Tensor, settings: Settings, noise: Noise) -> Phases:
    """One sampled z, and one sampled pair (z, y), stand for the expectations: right on average, and noisy. Eq. 29."""
    given = machine.hidden(v_BD, y_B, noise)
    z_neg_B, y_neg_B = machine.sample_depth_and_label(v_BD, y_B, noise, settings.gibbs_steps)
    active_BK = torch.sigmoid(machine.activations(v_BD, y_neg_B))
    data = machine.phase_gradients(v_BD, y_B, _reach_of(machine, given.z_B), given.active_BK)
    model = machine.phase_gradients(v_BD, y_neg_B, _reach_of(machine, z_neg_B), active_BK)
    return Phases(_combined(data, model, factor=-1.0), given.z_B, z_neg_B, given.mode_B)


def _reach_of(machine: Machine, z_B: Tensor) -> Tensor:
    """Which trained units take part at a sampled z: (B, K), 0 or 1."""
    return (ops.within(machine.rank, z_B) & machine.trained).to(machine.weights.dtype)


def _combined(first: Gradients, second: Gradients, factor: float) -> Gradients:
    """first + factor * second, parameter by parameter, in the memory of the first."""
    for a, b in zip(first, second, strict=True):
        if a is not None and b is not None:
            a.add_(b, alpha=factor)
    return first
