"""Gradients of the three objectives, to be descended, and the depths that decide growth. Sec. 3.2."""

from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Gradients, Machine
from irbm.ops import reference as ops
from irbm.ops.dispatch import Hidden
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
    if settings.objective == "generative" or y_B is None:
        return generative(machine, v_BD, y_B, chains, settings, noise)
    discriminated = discriminative(machine, v_BD, y_B, noise)
    if settings.objective == "discriminative":
        return discriminated
    generated = generative(machine, v_BD, y_B, chains, settings, noise)
    return generated._replace(gradients=_combined(discriminated.gradients, generated.gradients, factor=settings.alpha))


def generative(
    machine: Machine, v_BD: Tensor, y_B: Tensor | None, chains: Chains, settings: Settings, noise: Noise
) -> Phases:
    """-ln p(v) or -ln p(v, y): data against samples of the model. Eqs. 7 and 22."""
    positive = machine.hidden(v_BD, y_B, noise)
    v_ND, y_N = advance_(chains, machine, v_BD, y_B, noise, settings.gibbs_steps)
    negative = machine.hidden(v_ND, y_N, noise)
    data = _phase_gradients(machine, v_BD, y_B, positive, settings)
    model = _phase_gradients(machine, v_ND, y_N, negative, settings)
    return Phases(_combined(data, model, factor=-1.0), positive.z_B, negative.z_B, positive.mode_B)


def _phase_gradients(
    machine: Machine, v_BD: Tensor, y_B: Tensor | None, hidden: Hidden, settings: Settings
) -> Gradients:
    reach_BK = hidden.reach_BK
    if settings.gradient == "sampled":
        reach_BK = (ops.within(machine.rank, hidden.z_B) & machine.trained).to(reach_BK.dtype)
    return machine.phase_gradients(v_BD, y_B, reach_BK, hidden.active_BK)


def discriminative(machine: Machine, v_BD: Tensor, y_B: Tensor, noise: Noise) -> Phases:
    """-ln p(y | v) = F(v, y) - F(v), exactly. Eq. 30. Growth compares p(z | v, y) with p(z | v)."""
    given = machine.hidden(v_BD, y_B, noise)
    summed = machine.posterior(v_BD)
    z_neg_B = ops.sample_z(ops.survival(torch.logsumexp(summed.table, dim=1)), noise(len(v_BD)))
    labelled = machine.phase_gradients(v_BD, y_B, given.reach_BK, given.active_BK)
    unlabelled = machine.free_energy_gradients(v_BD, posterior=summed)
    return Phases(_combined(labelled, unlabelled, factor=-1.0), given.z_B, z_neg_B, given.mode_B)


def _combined(first: Gradients, second: Gradients, factor: float) -> Gradients:
    """first + factor * second, parameter by parameter, in the memory of the first."""
    for a, b in zip(first, second, strict=True):
        if a is not None and b is not None:
            a.add_(b, alpha=factor)
    return first
