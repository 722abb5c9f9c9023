"""Greedy units against enumeration: the gain of one unit, its gradient, and the likelihood as units are added."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from brute import Small, enumerate_all
from irbm.evaluation.partition import exact
from irbm.models import Fixed
from irbm.training import frank_wolfe as fw
from irbm.training.frank_wolfe import GreedySettings, Units
from irbm.training.trainer import DivergenceError

STATES = torch.tensor(list(itertools.product([0.0, 1.0], repeat=9)), dtype=torch.float64)
INNER = ["unit", "linear"]


def bars_and_stripes():
    """Every 3 x 3 picture whose rows, or whose columns, are all alike: 16 rows, 9 pixels."""
    rows = np.array(list(itertools.product([0, 1], repeat=3)))[:, :, None].repeat(3, axis=2)
    return torch.tensor(np.concatenate([rows, rows.transpose(0, 2, 1)]).reshape(16, 9), dtype=torch.float64)


def random_units(n, n_visible=4, seed=0):
    rng = np.random.default_rng(seed)
    return Units(torch.tensor(rng.normal(0, 2, (n, n_visible))), torch.tensor(rng.normal(0, 1, n)))


def mean_log_likelihood(machine, X_ND):
    """By enumeration."""
    machine = machine.to(dtype=torch.float64).with_capacity(int(machine.size))
    return float(-machine.free_energy(X_ND.double()).mean()) - exact(machine).value


def greedy(X_ND, settings, n_units, seed=0):
    """The log-likelihood after each unit, and the state at the end."""
    state = fw.start(X_ND, settings, seed)
    found = []
    for _ in range(n_units):
        fw.add_unit_(state, X_ND, settings)
        found.append(mean_log_likelihood(state.machine, X_ND))
    return np.array(found), state


def exactly_trained(n_hidden, X_ND, seed):
    """The mean log-likelihood that an RBM reaches by quasi-Newton ascent of the exact one."""
    generator = torch.Generator().manual_seed(seed)
    W = (0.5 * torch.randn(n_hidden, 9, generator=generator, dtype=torch.float64)).requires_grad_()
    c, b = torch.zeros(n_hidden, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)
    parameters = [W, c.requires_grad_(), b.requires_grad_()]

    def log_likelihood():
        def log_f(v):
            return v @ b + F.softplus(v @ W.T + c).sum(1)

        return log_f(X_ND).mean() - torch.logsumexp(log_f(STATES), dim=0)

    optimiser = torch.optim.LBFGS(parameters, max_iter=300, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = 1e-4 * sum(p.square().sum() for p in parameters) - log_likelihood()
        value.backward()
        return value

    optimiser.step(loss)
    return log_likelihood().item()


# -- the inner problem --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", INNER)
def test_the_gradient_against_finite_differences(inner):
    rng = np.random.default_rng(1)
    X_ND = torch.tensor((rng.random((30, 4)) < 0.4) * 1.0)
    chains_MD = torch.tensor((rng.random((50, 4)) < 0.6) * 1.0)
    units, l2, step = random_units(3), 0.07, 1e-6
    found = fw.gradients(units, X_ND, chains_MD, inner, l2)

    def moved(name, index, by):
        values = getattr(units, name).clone()
        values[index] += by
        return fw.penalised_gains(units._replace(**{name: values}), X_ND, chains_MD, inner, l2)

    for name in Units._fields:
        for index in np.ndindex(*getattr(units, name).shape):
            slope_R = (moved(name, index, step) - moved(name, index, -step)) / (2 * step)
            assert getattr(found, name)[index] == pytest.approx(float(slope_R[index[0]]), abs=1e-8)
            assert slope_R.count_nonzero() == 1  # a start is nobody else's business


def test_the_gain_of_a_unit_is_that_of_the_exact_likelihood():
    """A machine of zeros has every state alike, so that all states are exact samples of it."""
    states = STATES[:16, 5:]
    X_ND = states[[0, 3, 3, 9, 15]]
    units = random_units(5)
    gains_R = fw.gains(fw.activations(units, X_ND), fw.activations(units, states), "unit")
    for r in range(5):
        W, c = units.weights_RD[r].numpy(), units.bias_R[r].numpy()
        truth = enumerate_all(Small(W[None], c[None], -W / 2, [0], "fixed", 1.0, "constant"))
        rows = [0, 3, 3, 9, 15]
        after = -truth.free_energy()[rows].mean() - truth.log_z
        assert float(gains_R[r]) == pytest.approx(after + 4 * np.log(2), abs=1e-12)


def test_the_linear_gain_is_the_slope_at_weight_zero_and_an_upper_bound():
    rng = np.random.default_rng(2)
    X_ND = torch.tensor((rng.random((30, 4)) < 0.4) * 1.0)
    units, states = random_units(6, seed=3), STATES[:16, 5:]
    data_NR, model_MR = fw.activations(units, X_ND), fw.activations(units, states)
    linear_R = fw.gains(data_NR, model_MR, "linear")
    assert (linear_R > fw.gains(data_NR, model_MR, "unit")).all()
    weight = 1e-6
    data_R = fw.contribution(data_NR).mean(0)
    small_R = data_R - torch.log(torch.exp(weight * fw.contribution(model_MR)).mean(0)) / weight
    torch.testing.assert_close(linear_R, small_R, atol=1e-5, rtol=0)


@pytest.mark.parametrize("inner", INNER)
def test_ascent_raises_every_start(inner):
    X_ND = bars_and_stripes()
    settings = GreedySettings(inner=inner, n_starts=6)
    state = fw.start(X_ND, settings, seed=0)
    units = fw.starts(X_ND, 6, lambda *shape: torch.linspace(0, 0.99, *shape, dtype=torch.float64))
    before_R = fw.penalised_gains(units, X_ND, state.chains_MD, inner, settings.l2)
    fw.ascend_(units, X_ND, state.chains_MD, settings)
    after_R = fw.penalised_gains(units, X_ND, state.chains_MD, inner, settings.l2)
    assert (after_R > before_R + 0.01).all()
    # and the maximum is reached: the gradient is less than a tenth of what pulls at the start's length
    assert fw.gradients(units, X_ND, state.chains_MD, inner, settings.l2).weights_RD.norm(dim=1).max() < 0.01


def test_a_unit_is_added_with_half_its_weights_off_the_visible_biases():
    X_ND = bars_and_stripes()
    state = fw.start(X_ND, GreedySettings(), seed=0)
    before = state.machine.visible_bias.clone()
    unit = Units(torch.arange(9.0, dtype=torch.float64)[None], torch.tensor([0.5], dtype=torch.float64))
    fw.append_(state, unit)
    assert int(state.machine.size) == 1
    torch.testing.assert_close(state.machine.weights[0], unit.weights_RD[0])
    torch.testing.assert_close(state.machine.visible_bias, before - unit.weights_RD[0] / 2)


def test_the_machine_makes_room_as_it_fills():
    X_ND = bars_and_stripes()
    state = fw.start(X_ND, GreedySettings(), seed=0)
    for i in range(fw.CAPACITY_UNIT + 1):
        fw.append_(state, Units(torch.full((1, 9), float(i), dtype=torch.float64), X_ND.new_zeros(1)))
    assert int(state.machine.size) == fw.CAPACITY_UNIT + 1
    assert state.machine.capacity == 2 * fw.CAPACITY_UNIT
    assert state.machine.weights[:, 0].tolist() == [*range(fw.CAPACITY_UNIT + 1), *[0] * (fw.CAPACITY_UNIT - 1)]


# -- the whole ----------------------------------------------------------------------------------------------


def test_no_units_is_the_independent_model():
    X_ND = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    state = fw.start(X_ND, GreedySettings(n_chains=20_000), seed=0)
    expected = torch.tensor([3 / 4, 2 / 4, 1 / 4], dtype=torch.float64)
    torch.testing.assert_close(torch.sigmoid(state.machine.visible_bias), expected)
    # five standard errors of a mean over 20,000 chains
    assert ((state.chains_MD.mean(0) - expected).abs() < 5 * np.sqrt(0.25 / 20_000)).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_exact_likelihood_rises_with_every_unit(seed):
    """From -6.24 (independent pixels) past -3.6 of the -2.64 that eight units trained together reach exactly."""
    X_ND = bars_and_stripes()
    found, _ = greedy(X_ND, GreedySettings(l2=0.003), 8, seed)
    independent = -9 * np.log(2)
    assert found[0] > independent + 0.3
    assert (np.diff(found) > 0.1).all()
    together = max(exactly_trained(8, X_ND, s) for s in range(2))
    assert together == pytest.approx(-2.64, abs=0.01)
    assert together - 1.0 < found[-1] < together
    assert found[-1] > independent + 2.6


def test_the_linear_inner_problem_gains_too():
    found, _ = greedy(bars_and_stripes(), GreedySettings(inner="linear", l2=0.03), 8)
    assert found[-1] > -9 * np.log(2) + 1.5


def test_the_biases_match_the_data_s_means():
    """Each pixel's mean under the machine, by enumeration, on data that are on half, a fifth and all of the time."""
    rng = np.random.default_rng(4)
    on = rng.random((400, 3)) < [0.5, 0.2, 0.7]
    X_ND = torch.tensor(on[:, [0, 0, 0, 1, 1, 1, 2, 2, 2]] * 1.0)
    _, state = greedy(X_ND, GreedySettings(n_chains=4000, gibbs_steps=40, inner_steps=50), 3)
    log_f = -state.machine.with_capacity(3).free_energy(STATES)
    means_D = torch.softmax(log_f, dim=0) @ STATES
    # b follows the means of 4000 chains, which have a standard error of 0.008 at most; three of them
    torch.testing.assert_close(means_D, X_ND.mean(0), atol=0.024, rtol=0)


def test_a_machine_can_be_taken_up_again():
    X_ND = bars_and_stripes()
    found, state = greedy(X_ND, GreedySettings(l2=0.003), 4)
    again = fw.resume(state.machine, X_ND, GreedySettings(l2=0.003), seed=5)
    fw.add_unit_(again, X_ND, GreedySettings(l2=0.003))
    assert int(again.machine.size) == 5
    assert int(state.machine.size) == 4  # a copy was taken up
    assert mean_log_likelihood(again.machine, X_ND) > found[-1] + 0.1


def test_a_step_that_diverges_says_so():
    X_ND = bars_and_stripes().float()
    settings = GreedySettings(learning_rate=1e38, inner_steps=5)
    with pytest.raises(DivergenceError, match="lower learning_rate"):
        fw.add_unit_(fw.start(X_ND, settings, seed=0), X_ND, settings)


def test_data_of_one_kind_are_no_trouble():
    X_ND = torch.ones(5, 3)
    state = fw.start(X_ND, GreedySettings(), seed=0)
    fw.add_unit_(state, X_ND, GreedySettings())
    assert all(torch.isfinite(t).all() for t in state.machine.tensors().values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components", 0),
        ("n_iter", 0),
        ("inner", "square"),
        ("inner_steps", -1),
        ("n_starts", 1.5),
        ("learning_rate", 0.0),
        ("l2", -0.1),
        ("gibbs_steps", 0),
        ("n_chains", None),
    ],
)
def test_bad_settings(name, value):
    with pytest.raises(ValueError, match=name):
        GreedySettings(**{name: value})


def test_the_machine_is_a_classic_one():
    _, state = greedy(bars_and_stripes(), GreedySettings(), 2)
    assert state.machine.depth == Fixed()
