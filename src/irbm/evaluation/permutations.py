"""What a machine says on average over random orders of its first positions. Sec. 3.3, eqs. 34-35."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from irbm.evaluation.partition import LogPartition
from irbm.evaluation.precision import full_precision
from irbm.models import Machine
from irbm.ops.noise import Noise

ROWS = 1000


@dataclass(frozen=True)
class AveragedLikelihood:
    """The mean over examples of ln 1/N sum_n p(v | order n), with the bracket that those of ln Z leave.

    Attributes
    ----------
    value : float
        The mean log-likelihood of an example, in nats.
    stderr : float or None
        The standard error of the mean over the orders of each order's own mean log-likelihood: what they differ by,
        and the errors of their ln Z. None of a single order, which shows nothing of what orders differ by.
    lower, upper : float
        The bracket.
    reliable : bool
        Whether every order's ln Z is.
    reason : str
        Why, or why the first that is not reliable is not.
    n_permutations, regrouped : int
        How many orders, of how many units.
    """

    value: float
    stderr: float | None
    lower: float
    upper: float
    reliable: bool
    reason: str
    n_permutations: int
    regrouped: int


def permuted(machine: Machine, m: int, noise: Noise) -> Machine:
    """The machine with its first ``m`` positions in random order; parameters are shared, not copied."""
    order = machine.order.clone()
    order[:m] = order[:m][torch.argsort(noise(m)).to(order.device)]
    return replace(machine, order=order)


def mean_log_prob_y(machines: Sequence[Machine], v_BD: Tensor) -> Tensor:
    """ln of the mean over machines of p(y | v): (B, C), float64. Eq. 35, where they differ in their order alone."""
    each = torch.stack([machine.log_prob_y(v_BD) for machine in machines])
    return torch.logsumexp(each, dim=0) - math.log(len(machines))


def averaged_likelihood(
    machine: Machine, X: Tensor, m: int, n: int, log_partition: Callable[[Machine], LogPartition], noise: Noise
) -> AveragedLikelihood:
    """Average p(v) over n orders of the first m units, each with an ln Z of its own."""
    if not 1 <= m <= int(machine.size):
        raise ValueError(f"regrouped, the units to permute, must be in 1..{int(machine.size)}, got {m}")
    orders = [permuted(machine, m, noise) for _ in range(n)]
    found = [log_partition(order) for order in orders]
    minus_f_NX = torch.stack([-free_energies(order, X) for order in orders])

    def average(log_z: list[float]) -> float:
        log_p_NX = minus_f_NX - torch.tensor(log_z, dtype=torch.float64)[:, None]
        return float((torch.logsumexp(log_p_NX, dim=0) - math.log(n)).mean())

    means_N = minus_f_NX.mean(1) - torch.tensor([z.value for z in found], dtype=torch.float64)
    doubtful = [z for z in found if not z.reliable]
    return AveragedLikelihood(
        value=average([z.value for z in found]),
        stderr=_stderr(means_N, torch.tensor([z.stderr for z in found], dtype=torch.float64)),
        lower=average([z.upper for z in found]),
        upper=average([z.lower for z in found]),
        reliable=not doubtful,
        reason=f"{len(doubtful)} of {n} orders: {doubtful[0].reason}" if doubtful else found[0].reason,
        n_permutations=n,
        regrouped=m,
    )


def _stderr(means_N: Tensor, errors_N: Tensor) -> float | None:
    """The standard error of a mean over orders, each with an error of its own; None of a single one.

    What the orders differ by shows these errors only as far as they differ too: added, none is forgotten.
    """
    n = len(means_N)
    return math.sqrt(float(means_N.var() + (errors_N**2).mean()) / n) if n > 1 else None


def free_energies(machine: Machine, X: Tensor) -> Tensor:
    """F(v) of many examples, a part at a time: (n,), on the CPU."""
    parts = (X[at : at + ROWS].to(machine.weights) for at in range(0, len(X), ROWS))
    with full_precision():
        return torch.cat([machine.free_energy(v_BD).cpu() for v_BD in parts])
