"""One hidden unit a step: the Frank-Wolfe RBM of Ping, Liu and Ihler (2016).

Written with a measure q over hidden units (w, c), ln p(v) = b.v + sum_i q_i softplus(w_i.v + c_i) - ln Z is concave in
(q, b). A Frank-Wolfe step of length 1 / (t + 1) with a budget of t units for q leaves every old unit its weight of
one and adds a new unit of weight one, so that the machine is a classic RBM at every step. The new unit is the one
that raises the likelihood most, found by ascent from several starts. docs/decisions/008-frank-wolfe.md has the choices.

A unit is added together with half its weights taken off b. Then it contributes softplus(a) - a/2 = ln 2 cosh(a/2), less
c/2: an even function of a, which leaves the visible means nearly where they are.

Shapes: N examples, M chains, R starts, D visible units.
"""

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from irbm.models import Fixed, Machine
from irbm.ops import reference as ops
from irbm.ops.noise import Noise, uniform_noise
from irbm.training.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, POSITIVE, Rule, check_fields, one_of
from irbm.training.trainer import DivergenceError, Row

BIAS_RATE = 0.5  # of the visible biases; Newton's step for a unit that is on half the time would be 4
CAPACITY_UNIT = 64  # rows the machine grows by
MEMORY, SQUARES_MEMORY = 0.9, 0.99  # of the ascent's averages of the gradient and its square
FOR_START, FOR_UNITS = 10, 11  # keys of the random streams, beside those of other training

RULES: dict[str, Rule] = {
    "n_components": COUNT,
    "n_iter": COUNT_OR_NONE,
    "inner": one_of("unit", "linear"),
    "inner_steps": COUNT,
    "n_starts": COUNT,
    "learning_rate": POSITIVE,
    "l2": NOT_NEGATIVE,
    "gibbs_steps": COUNT,
    "n_chains": COUNT,
}


@dataclass(frozen=True, kw_only=True)
class GreedySettings:
    """How to add units. `FrankWolfeRBM` says what each name means."""

    n_components: int = 256
    n_iter: int | None = None
    inner: str = "unit"
    inner_steps: int = 100
    n_starts: int = 8
    learning_rate: float = 0.05
    l2: float = 0.03
    gibbs_steps: int = 20
    n_chains: int = 1000

    def __post_init__(self) -> None:
        check_fields(self, RULES)

    @property
    def n_units(self) -> int:
        """How many units a fit from the start adds."""
        return min(self.n_components, self.n_iter or self.n_components)


class Units(NamedTuple):
    """Candidates for the next unit."""

    weights_RD: Tensor
    bias_R: Tensor


@dataclass(frozen=True)
class Added(Row):
    """One greedy step, in figures."""

    n_components: int  # l, this unit included
    gain: float  # of the mean log-likelihood, as the chains estimate it; flattered, as they chose the unit
    norm: float  # of the unit's weights
    ess: float  # effective number of chains under the machine with the unit; few make the gain doubtful
    seconds: float


@dataclass(eq=False)
class GreedyState:
    """A machine of l >= 0 units, and chains that follow it."""

    machine: Machine
    chains_MD: Tensor
    seed: int
    history: list[Added] = field(default_factory=list)


# -- where it begins ----------------------------------------------------------------------------------------


def start(X_ND: Tensor, settings: GreedySettings, seed: int) -> GreedyState:
    """No unit yet: independent visible units with the data's means, and exact samples of them."""
    means_D = smoothed_means(X_ND)
    n_visible, device = X_ND.shape[1], X_ND.device
    machine = Machine(
        weights=X_ND.new_zeros(CAPACITY_UNIT, n_visible),
        hidden_bias=X_ND.new_zeros(CAPACITY_UNIT),
        visible_bias=torch.logit(means_D),
        order=torch.arange(CAPACITY_UNIT, device=device),
        size=torch.tensor(0, device=device),
        depth=Fixed(),
    )
    noise = uniform_noise(seed, FOR_START, device=device, dtype=X_ND.dtype)
    chains_MD = (noise(settings.n_chains, n_visible) < means_D).to(X_ND.dtype)
    return GreedyState(machine, chains_MD, seed)


def resume(machine: Machine, X_ND: Tensor, settings: GreedySettings, seed: int) -> GreedyState:
    """From a machine whose chains are lost: they start at examples, and the biases are refitted on their way."""
    noise = uniform_noise(seed, FOR_START, device=X_ND.device, dtype=X_ND.dtype)
    chains_MD = some_examples(X_ND, settings.n_chains, noise)
    state = GreedyState(machine.with_capacity(int(machine.size)), chains_MD, seed)
    refit_biases_(state, smoothed_means(X_ND), settings.gibbs_steps, noise)
    return state


def some_examples(X_ND: Tensor, n: int, noise: Noise) -> Tensor:
    """Examples drawn with replacement: (n, D)."""
    rows = (noise(n) * len(X_ND)).long().clamp(max=len(X_ND) - 1)  # the product may round up
    return X_ND[rows]


def smoothed_means(X_ND: Tensor) -> Tensor:
    """The visibles' means, with one example of all ones and one of all zeros more: no bias needs to be infinite."""
    return (X_ND.sum(0) + 1) / (len(X_ND) + 2)


# -- the inner problem --------------------------------------------------------------------------------------


def contribution(a: Tensor) -> Tensor:
    """ln 2 cosh(a/2) = softplus(a) - a/2, what a unit adds to ln p(v) beside its share of b and of ln Z."""
    return ops.softplus(a) - a / 2


def gains(data_NR: Tensor, model_MR: Tensor, inner: str) -> Tensor:
    """How much each unit raises the mean log-likelihood, from its activations of examples and of samples: (R,).

    "unit": E_data[f] - ln E_model[e^f] with f the contribution: exact for a unit of weight one, as the expectation is
    the ratio of the partition functions. "linear": E_data[f] - E_model[f], its slope at weight zero and an upper
    bound of it.
    """
    model_MR = contribution(model_MR)
    if inner == "linear":
        return contribution(data_NR).mean(0) - model_MR.mean(0)
    return contribution(data_NR).mean(0) - torch.logsumexp(model_MR, dim=0) + math.log(len(model_MR))


def penalised_gains(units: Units, X_ND: Tensor, chains_MD: Tensor, inner: str, l2: float) -> Tensor:
    """What the inner problem maximises: the gains less l2/2 |w|^2, (R,)."""
    data_NR, model_MR = activations(units, X_ND), activations(units, chains_MD)
    return gains(data_NR, model_MR, inner) - l2 / 2 * units.weights_RD.square().sum(1)


def activations(units: Units, v_BD: Tensor) -> Tensor:
    """a = w.v + c: (B, R)."""
    return torch.addmm(units.bias_R, v_BD, units.weights_RD.T)


def sample_weights(model_MR: Tensor, inner: str) -> Tensor:
    """What each sample counts for, in the gradient of `gains`: as in the machine with the unit, or all alike."""
    if inner == "linear":
        return torch.full_like(model_MR, 1 / len(model_MR))
    return torch.softmax(contribution(model_MR), dim=0)


def gradients(units: Units, X_ND: Tensor, chains_MD: Tensor, inner: str, l2: float) -> Units:
    """The gradient of each start's penalised gain. The contribution has the slope s(a) - 1/2."""
    data_NR, model_MR = activations(units, X_ND), activations(units, chains_MD)
    up_NR = (torch.sigmoid(data_NR) - 0.5) / len(X_ND)
    down_MR = (torch.sigmoid(model_MR) - 0.5) * sample_weights(model_MR, inner)
    weights_RD = up_NR.T @ X_ND - down_MR.T @ chains_MD - l2 * units.weights_RD
    return Units(weights_RD, up_NR.sum(0) - down_MR.sum(0))


def starts(X_ND: Tensor, n: int, noise: Noise) -> Units:
    """From the mean towards random examples, of length one, with a = 0 at the mean. At w = 0 nothing would pull."""
    means_D = X_ND.mean(0)
    weights_RD = some_examples(X_ND, n, noise) - means_D
    weights_RD = weights_RD / weights_RD.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return Units(weights_RD, -(weights_RD @ means_D))


def ascend_(units: Units, X_ND: Tensor, chains_MD: Tensor, settings: GreedySettings) -> None:
    """Ascent of every start's penalised gain, by Adam's rule."""
    slopes = [torch.zeros_like(value) for value in units]
    squares = [torch.zeros_like(value) for value in units]
    for step in range(1, settings.inner_steps + 1):
        found = gradients(units, X_ND, chains_MD, settings.inner, settings.l2)
        for value, gradient, slope, square in zip(units, found, slopes, squares, strict=True):
            slope.lerp_(gradient, 1 - MEMORY)
            square.lerp_(gradient.square(), 1 - SQUARES_MEMORY)
            scale = torch.sqrt(square / (1 - SQUARES_MEMORY**step)) + 1e-8
            value += settings.learning_rate * slope / (1 - MEMORY**step) / scale


# -- the step -----------------------------------------------------------------------------------------------


def add_unit_(state: GreedyState, X_ND: Tensor, settings: GreedySettings) -> Added:
    """Add the best unit of all starts, then let the chains and the visible biases follow."""
    began = time.perf_counter()
    key = (state.seed, FOR_UNITS, int(state.machine.size))
    noise = uniform_noise(*key, device=X_ND.device, dtype=X_ND.dtype)
    units = starts(X_ND, settings.n_starts, noise)
    ascend_(units, X_ND, state.chains_MD, settings)
    score_R = penalised_gains(units, X_ND, state.chains_MD, settings.inner, settings.l2)
    best = int(score_R.argmax())
    if not math.isfinite(score_R[best]):
        raise DivergenceError(f"a unit has run away: lower learning_rate (now {settings.learning_rate})")
    unit = Units(units.weights_RD[best : best + 1], units.bias_R[best : best + 1])
    data_N1, model_M1 = activations(unit, X_ND), activations(unit, state.chains_MD)
    append_(state, unit)
    refit_biases_(state, smoothed_means(X_ND), settings.gibbs_steps, noise)
    added = Added(
        n_components=int(state.machine.size),
        gain=float(gains(data_N1, model_M1, "unit")),
        norm=float(unit.weights_RD.norm()),
        ess=1 / float(sample_weights(model_M1, "unit").square().sum()),
        seconds=time.perf_counter() - began,
    )
    state.history.append(added)
    return added


def append_(state: GreedyState, unit: Units) -> None:
    """The machine with one unit more, half of whose weights are taken off b."""
    size = int(state.machine.size)
    if size == state.machine.capacity:
        state.machine = state.machine.with_capacity((size // CAPACITY_UNIT + 1) * CAPACITY_UNIT)
    machine = state.machine
    machine.weights[size] = unit.weights_RD[0]
    machine.hidden_bias[size] = unit.bias_R[0]
    machine.visible_bias.sub_(unit.weights_RD[0] / 2)
    machine.size.add_(1)


def refit_biases_(state: GreedyState, means_D: Tensor, n_sweeps: int, noise: Noise) -> None:
    """Gibbs sweeps of the chains, each followed by a step of b up the likelihood: E_data[v] - E_model[v]."""
    for _ in range(n_sweeps):
        state.chains_MD, _ = state.machine.gibbs_step(state.chains_MD, None, noise)
        state.machine.visible_bias.add_(means_D - state.chains_MD.mean(0), alpha=BIAS_RATE)
