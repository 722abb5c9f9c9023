"""Paths to machines so small that every state of them can be listed."""

import numpy as np
import torch

from brute import visible_states
from irbm.evaluation.paths import Base, Path
from irbm.models import Frozen
from irbm.ops import reference as ops
from machines import as_machine, random_small

DTYPES = (torch.float64, torch.float32)  # the reference; compiled kernels where there is numba


WAYS = {"free": {"pull": 0.0}, "deep": {"pull": 0.4}, "clamped": {"pull": 41.0, "held": True}}  # of z along a path


def path_of(
    depth, labels=0, way="deep", seed=0, n_hidden=3, scale=1.0, dtype=torch.float64, penalty="constant"
):  # fmt: skip
    small = random_small(
        np.random.default_rng(seed), depth=depth, labels=labels, n_visible=3, n_hidden=n_hidden, scale=scale,
        penalty=penalty,
    )  # fmt: skip
    machine = as_machine(small, dtype)
    bias_MD = torch.tensor([[0.3, -0.5, 0.1], [-2.0, 1.0, 0.4]], dtype=dtype)
    answer_MK = torch.linspace(-2, 3, 2 * n_hidden, dtype=dtype).view(2, n_hidden)
    base = Base(bias_MD, answer_MK, torch.tensor([0.3, 0.7], dtype=torch.float64).log())
    frozen = Frozen.of(machine.selected(machine.order))
    return small, Path("test", frozen, base, **WAYS["free" if depth == "fixed" else way])


def every_state(path):
    """All (v, y, m) of a path with three visibles and two parts: m varies slowest, then y."""
    v = torch.tensor(visible_states(3)).to(path.machine.weights)
    classes = max(path.machine.n_classes, 1)
    y = torch.arange(classes).repeat_interleave(len(v)).repeat(2) if path.machine.n_classes else None
    return path.states(v.repeat(2 * classes, 1), y, torch.arange(2).repeat_interleave(classes * len(v)))


def log_f(path, states, tau):
    """ln f of the states at a point, h and z summed out, as evaluation/paths.py defines it: (B,), float64."""
    base, depth, part_B = path.base, path.machine.depth, states.part_B
    heat = path.at(torch.tensor(tau, dtype=torch.float64))
    a_BK = ops.heated(states.activations_BK, base.answer_MK[part_B], heat.tau)
    penalty_K = depth.penalties(path.machine.hidden_bias)
    t_BZ = ops.annealed_table(a_BK, penalty_K, depth.kind, depth.tail, heat.kappa)
    of_part_B = states.base_BM.gather(1, part_B[:, None])[:, 0]
    linear_B = (1 - heat.tau) * of_part_B + heat.tau * states.own_B
    return base.log_share_M[part_B] + linear_B + torch.logsumexp(t_BZ, dim=1)


def probabilities(path, tau):
    """Of ``every_state``."""
    return torch.softmax(log_f(path, every_state(path), tau), 0)


def exact_samples(path, tau, n, noise):
    states, p = every_state(path), probabilities(path, tau)
    rows = torch.searchsorted(p.cumsum(0), noise(n).double()).clamp(max=len(p) - 1)
    return path.states(states.v_BD[rows], None if states.y_B is None else states.y_B[rows], states.part_B[rows])


def code_of(path, states):
    """The number of each chain's state among ``every_state``."""
    code = (states.v_BD.long() * torch.tensor([4, 2, 1])).sum(1) + (0 if states.y_B is None else 8 * states.y_B)
    return code + 8 * max(path.machine.n_classes, 1) * states.part_B


def counts(path, states):
    """How many chains are in each of ``every_state``."""
    return torch.bincount(code_of(path, states), minlength=16 * max(path.machine.n_classes, 1)).numpy()
