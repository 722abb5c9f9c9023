"""Where a machine has its weight: states from many kinds of start, gathered into a base for paths to ln Z.

No search is sure to find every mode. Starts differ as much as they can: noise, what each single filter asks for, what
random sets of units and those with like filters ask for together, the data's means, examples, the heaviest among them.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from irbm.evaluation.paths import Base
from irbm.models import Frozen, Machine
from irbm.ops import reference as ops
from irbm.ops.noise import Noise

STARTS = 1024
SWEEPS = 100
ASKED = 8  # times at least for each unit: few of them may lead to a mode, and not every time
ASKED_SWEEPS = 20  # in which a unit goes on asking for its filter
COMPANY = 16  # units at most that ask together
AT_ONCE = 1024  # states that are swept, so that memory is bounded
PARTS = 16  # of the base for each set of states
FITTING_STEPS = 20
HEAVIEST = 4  # more of them about single states, the heaviest far from each other
SINGLES = 8  # and those that the others serve worst
SMOOTHING = 0.05  # of a fair coin in the means of each part


def hunt(machine: Machine, means_D: Tensor | None, examples: Tensor | None, noise: Noise) -> Tensor:
    """States (n, D) that the machine's own sweeps reach from every kind of start."""
    kinds = [_from_noise, _from_filters, _from_sets]
    each = STARTS // (len(kinds) + (means_D is not None) + (examples is not None))
    starts = [kind(machine, each, noise) for kind in kinds]
    if means_D is not None:
        starts.append((noise(each, machine.n_visible) < means_D.to(machine.weights)).to(machine.weights.dtype))
    if examples is not None:
        starts.append(_from_examples(machine, examples, each, noise))
    v_BD, frozen = torch.cat(starts), Frozen.of(machine)
    return torch.cat([_swept(frozen, v_BD[at : at + AT_ONCE], noise) for at in range(0, len(v_BD), AT_ONCE)])


def _swept(frozen: Frozen, v_BD: Tensor, noise: Noise) -> Tensor:
    """Labels start as the visibles have them: with any other a state would be left before it is known."""
    machine = frozen.machine
    y_B = ops.sample_categorical(machine.log_prob_y(v_BD), noise(len(v_BD))) if machine.n_classes else None
    return frozen.gibbs(v_BD, y_B, noise, SWEEPS)[0]


def _labels(machine: Machine, n: int, noise: Noise) -> Tensor | None:
    return (noise(n) * machine.n_classes).long() if machine.n_classes else None


def _from_noise(machine: Machine, n: int, noise: Noise) -> Tensor:
    return (noise(n, machine.n_visible) < 0.5).to(machine.weights.dtype)


def _from_filters(machine: Machine, n: int, noise: Noise) -> Tensor:
    """What units ask for. Every one of them is asked; half of the n states to go on from are the heaviest."""
    rounds = max(ASKED, -(-n // machine.capacity))
    unit_N = torch.cat([torch.argsort(noise(machine.capacity)) for _ in range(rounds)])
    asked_ND = torch.cat([_asked(machine, unit_N[at : at + AT_ONCE], noise) for at in range(0, len(unit_N), AT_ONCE)])
    by_weight_N = torch.argsort(minus_free_energy(machine, asked_ND), descending=True)
    others_N = torch.sort(by_weight_N[n // 2 :]).values  # any of them: units come in random order
    return asked_ND[torch.cat([by_weight_N[: n // 2], others_N[: n - n // 2]])]


def _asked(machine: Machine, unit_B: Tensor, noise: Noise) -> Tensor:
    """States that a unit and its company lead to: their filters at a random strength, then sweeps in which they go on.

    One unit moves little of what the others hold; as if there were many of it, it sets the visibles at once.
    """
    w_BD = _in_company(machine, unit_B, noise)
    v_BD = machine.visible.sample(machine.visible_bias + 10 ** (3 * noise(len(w_BD), 1)) * w_BD, noise)
    y_B = _labels(machine, len(w_BD), noise)
    for _ in range(ASKED_SWEEPS):
        _, h_BK = machine.sample_hidden(v_BD, y_B, noise)
        v_BD = machine.visible.sample(machine.visible_field(h_BK) + w_BD, noise)
    return v_BD


def _in_company(machine: Machine, unit_B: Tensor, noise: Noise) -> Tensor:
    """The sum of each unit's filter and those most like it, of 1, 2, 4, ... units in all: (B, D)."""
    direction_KD = F.normalize(machine.weights)
    n_most = min(COMPANY, machine.capacity)
    alike_BN = torch.topk(direction_KD[unit_B] @ direction_KD.T, n_most).indices
    n_B = 2 ** (noise(len(unit_B)) * (1 + math.log2(n_most))).floor()
    taken_BN = torch.arange(n_most, device=n_B.device) < n_B[:, None]
    on_BK = machine.weights.new_zeros(len(unit_B), machine.capacity).scatter_(1, alike_BN, taken_BN.to(machine.weights))
    return on_BK @ machine.weights


def _from_sets(machine: Machine, n: int, noise: Noise) -> Tensor:
    """What a random set of units asks for; sets of every size."""
    h_BK = (noise(n, machine.capacity) < noise(n, 1)).to(machine.weights.dtype)
    return machine.visible.sample(machine.visible_field(h_BK), noise)


def _from_examples(machine: Machine, examples: Tensor, n: int, noise: Noise) -> Tensor:
    """Any of them, and as half of the n states the heaviest: a single one can be a mode that no chain has come to."""
    heavy_BD = heaviest(machine, examples, n=n // 2)
    rows = any_rows(n - len(heavy_BD), len(examples), noise)
    return torch.cat([heavy_BD, examples[rows.to(examples.device)].to(machine.weights)])


def any_rows(n: int, of: int, noise: Noise) -> Tensor:
    """n of so many rows, with repetition."""
    return (noise(n) * of).long().clamp(max=of - 1)


def minus_free_energy(machine: Machine, v_BD: Tensor) -> Tensor:
    parts = (v_BD[at : at + AT_ONCE].to(machine.weights) for at in range(0, len(v_BD), AT_ONCE))
    return torch.cat([-machine.free_energy(part) for part in parts])


def heaviest(machine: Machine, *sets: Tensor, n: int = AT_ONCE) -> Tensor:
    """Distinct states, the n heaviest of each set: copies of one leave room for others."""
    found = []
    for states_BD in sets:
        distinct_BD: Tensor = torch.unique(states_BD, dim=0)
        rows = torch.topk(minus_free_energy(machine, distinct_BD), min(n, len(distinct_BD))).indices
        found.append(distinct_BD[rows.to(distinct_BD.device)].to(machine.weights))
    together_BD: Tensor = torch.unique(torch.cat(found), dim=0)
    return together_BD


def log_weight(machine: Machine, distinct_BD: Tensor) -> float:
    """ln of the sum of e^{-F} over states, in float64: ln Z is no less."""
    return float(torch.logsumexp(minus_free_energy(machine.to(dtype=torch.float64), distinct_BD), dim=0))


# -- bases --------------------------------------------------------------------------------------------------


def base_of(machine: Machine, sets: Sequence[Tensor], known_BD: Tensor, seed: int) -> Base:
    """A mixture fitted to each set of states, with more parts for single ones, of these or ``known``, it would miss."""
    fits = [_fitted(states_BD, seed) for states_BD in sets]
    means_MD, share_M = (torch.cat(several) for several in zip(*fits, strict=True))
    singles_SD = _missed(machine, torch.cat([*sets, known_BD]), means_MD, share_M / len(sets))
    share_M = torch.cat([share_M, share_M.new_full((len(singles_SD),), len(sets) / len(means_MD))])
    return mixture(machine, torch.cat([means_MD, singles_SD]), share_M / share_M.sum())


def _fitted(states_BD: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Means (M, D) and shares (M,) of a mixture of independent visibles, by expectation and maximisation; float64.

    Each part sees one state more, the mean of all, so that it keeps a width where few states are its own.
    """
    unique_UD = torch.unique(states_BD, dim=0)
    rows = np.random.default_rng(seed).permutation(len(unique_UD))[:PARTS]
    overall_D = states_BD.mean(0)
    means_MD = (unique_UD[torch.from_numpy(rows).to(unique_UD.device)] + overall_D) / 2
    share_M = means_MD.new_full((len(rows),), 1 / len(rows))
    for _ in range(FITTING_STEPS):
        part_BM = torch.softmax(torch.log(share_M) + _log_density(states_BD, means_MD), dim=1)
        count_M = part_BM.sum(0)
        share_M = (count_M + 1) / (count_M + 1).sum()
        means_MD = (part_BM.T @ states_BD + overall_D) / (count_M[:, None] + 1)
    return means_MD.double(), share_M.double() / share_M.double().sum()


def _missed(machine: Machine, states_BD: Tensor, means_MD: Tensor, share_M: Tensor) -> Tensor:
    """The heaviest states, then those that weigh most by what the parts so far make of them: (S, D), float64.

    A narrow mode can be alone in its part, or in a broad one's company: its state is then a part of its own. One state
    can outweigh all others together while the parts serve many others worse, of which none counts for much.
    """
    states_BD = torch.unique(states_BD, dim=0)
    minus_f_B, states_BD = minus_free_energy(machine, states_BD), states_BD.double()
    log_q_B = torch.logsumexp(torch.log(share_M) + _log_density(states_BD, means_MD), dim=1)
    taken_B, coins = torch.zeros_like(log_q_B, dtype=torch.bool), -math.log(2.0) * states_BD.shape[1]
    missed = []
    for n in range(min(HEAVIEST + SINGLES, len(states_BD))):
        by_weight_B = minus_f_B.masked_fill(taken_B, -math.inf)
        missed.append(states_BD[(by_weight_B if n < HEAVIEST else minus_f_B - log_q_B).argmax()])
        log_single_B = _log_density(states_BD, missed[-1][None])[:, 0]
        taken_B |= log_single_B > coins  # nearer to it than fair coins are
        log_q_B = torch.logaddexp(log_q_B, log_single_B - math.log(len(means_MD)))
    return torch.stack(missed)


def _log_density(states_BD: Tensor, means_MD: Tensor) -> Tensor:
    """ln p(v | m): (B, M)."""
    bias_MD = smoothed_log_odds(means_MD)
    return states_BD @ bias_MD.T - ops.softplus(bias_MD).sum(1)


def mixture(machine: Machine, means_MD: Tensor, share_M: Tensor | None = None) -> Base:
    """Parts with these means, and what the machine's hidden units, at any label, would answer to them."""
    if share_M is None:
        share_M = means_MD.new_full((len(means_MD),), 1 / len(means_MD), dtype=torch.float64)
    bias_MD = smoothed_log_odds(means_MD)
    answer = machine.activations(torch.sigmoid(bias_MD).to(machine.weights))
    answer_MK = answer.mean(1) if machine.n_classes else answer
    return Base(bias_MD.to(machine.weights.dtype), answer_MK, torch.log(share_M))


def smoothed_log_odds(means: Tensor) -> Tensor:
    p = (1 - SMOOTHING) * means + SMOOTHING / 2
    return torch.log(p) - torch.log1p(-p)
