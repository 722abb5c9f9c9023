"""Where a machine has its weight: states from many kinds of start, gathered into a base for paths to ln Z.

No search is sure to find every mode. Starts differ as much as they can: noise, what single filters ask for, what
random sets of units ask for together, the data's means, examples.
"""

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from irbm.evaluation.paths import Base
from irbm.models import Machine
from irbm.ops import reference as ops
from irbm.ops.noise import Noise

STARTS = 512
SWEEPS = 100
PARTS = 16  # of the base
SMOOTHING = 0.05  # of a fair coin in the means of each part


def hunt(machine: Machine, means_D: Tensor | None, examples: Tensor | None, noise: Noise) -> Tensor:
    """States (n, D) that the machine's own sweeps reach from every kind of start."""
    kinds = [_from_noise, _from_filters, _from_sets]
    each = STARTS // (len(kinds) + (means_D is not None) + (examples is not None))
    starts = [kind(machine, each, noise) for kind in kinds]
    if means_D is not None:
        starts.append((noise(each, machine.n_visible) < means_D.to(machine.weights)).to(machine.weights.dtype))
    if examples is not None:
        rows = (noise(each) * len(examples)).long().clamp(max=len(examples) - 1)
        starts.append(examples[rows.to(examples.device)].to(machine.weights))
    v_BD = torch.cat(starts)
    y_B = (noise(len(v_BD)) * machine.n_classes).long() if machine.n_classes else None
    return machine.gibbs(v_BD, y_B, noise, SWEEPS)[0]


def _from_noise(machine: Machine, n: int, noise: Noise) -> Tensor:
    return (noise(n, machine.n_visible) < 0.5).to(machine.weights.dtype)


def _from_filters(machine: Machine, n: int, noise: Noise) -> Tensor:
    """What one unit asks for, alone or as if there were many of it."""
    unit_B = (noise(n) * machine.capacity).long().clamp(max=machine.capacity - 1)
    strength_B1 = 10 ** (3 * noise(n, 1))
    field_BD = machine.visible_bias + strength_B1 * machine.weights[unit_B]
    return ops.sample_bernoulli(field_BD, noise(*field_BD.shape))


def _from_sets(machine: Machine, n: int, noise: Noise) -> Tensor:
    """What a random set of units asks for; sets of every size."""
    h_BK = (noise(n, machine.capacity) < noise(n, 1)).to(machine.weights.dtype)
    field_BD = machine.visible_field(h_BK)
    return ops.sample_bernoulli(field_BD, noise(*field_BD.shape))


def base_of(states_BD: Tensor, seed: int) -> Base:
    """A mixture with a part for each cluster of the states."""
    n_parts = min(PARTS, len(torch.unique(states_BD, dim=0)))
    clusters = KMeans(n_parts, n_init=1, random_state=seed).fit(states_BD.float().cpu().numpy())
    means_MD = torch.from_numpy(clusters.cluster_centers_.astype(np.float64)).to(states_BD.device)
    log_share_M = torch.full((n_parts,), -np.log(n_parts), dtype=torch.float64, device=states_BD.device)
    return Base(smoothed_log_odds(means_MD).to(states_BD.dtype), log_share_M)


def single_base(means_D: Tensor) -> Base:
    """One part with these means."""
    return Base(smoothed_log_odds(means_D)[None], torch.zeros(1, dtype=torch.float64, device=means_D.device))


def smoothed_log_odds(means: Tensor) -> Tensor:
    p = (1 - SMOOTHING) * means + SMOOTHING / 2
    return torch.log(p) - torch.log1p(-p)
