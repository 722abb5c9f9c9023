"""Gradients of the objectives against enumeration, finite differences and long chains."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from brute import enumerate_all, visible_states
from irbm.models import Gradients, Machine
from irbm.ops.noise import uniform_noise
from irbm.training import Settings, objectives
from irbm.training.chains import Chains, start
from machines import DEPTHS, as_machine, random_small

# name in a machine -> name in the plain arrays
ARRAYS = {"weights": "W", "hidden_bias": "c", "visible_bias": "b", "label_weights": "U", "label_bias": "d"}
V = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1]], float)
Y = np.array([0, 2, 1, 1, 2])
KINDS = [("fixed", "constant")] + [(d, p) for d in ("ordered", "infinite") for p in ("constant", "softplus")]


def small_machine(depth, penalty, labels=3, seed=3):
    rng = np.random.default_rng(seed)
    return random_small(rng, depth=depth, penalty=penalty, labels=labels, n_visible=3, n_hidden=3)


def row_of(v):
    """Where ``visible_states`` lists a state."""
    return (v @ [4, 2, 1]).astype(int)


def exact_means(small):
    """The exact means of ln p(v), ln p(v, y) and ln p(y | v) over the examples."""
    truth, rows = enumerate_all(small), row_of(V)
    joint = truth.w.sum(2)
    p_v, p_vy = joint.sum(1)[rows], joint[rows, Y] if small.U is not None else joint[rows, 0]
    return np.array([np.log(p_v).mean() - truth.log_z, np.log(p_vy).mean() - truth.log_z, np.log(p_vy / p_v).mean()])


@cache
def slopes(depth, penalty, labels=3, step=1e-5):
    """Central differences of the exact means, by objective and parameter."""
    small = small_machine(depth, penalty, labels)
    found = {}
    for ours, theirs in ARRAYS.items():
        array = getattr(small, theirs)
        if array is None:
            continue
        slope = np.zeros((3, *array.shape))
        for at in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = array.copy()
                moved[at] += sign * step
                values.append(exact_means(replace(small, **{theirs: moved})))
            slope[:, *at] = (values[0] - values[1]) / (2 * step)
        found[ours] = slope
    return {kind: {n: s[i] for n, s in found.items()} for i, kind in enumerate(("v", "v, y", "y | v"))}


def assert_descends(gradients: Gradients, ascent, tolerance):
    """The gradients are minus the slopes."""
    for name in ARRAYS:
        ours = getattr(gradients, name)
        assert (ours is None) == (name not in ascent)
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), -ascent[name], rtol=0, atol=tolerance, err_msg=name)


def tensors(labelled):
    return torch.tensor(V), torch.tensor(Y) if labelled else None


def weighted_sum(weights, gradients):
    """sum over states of weight times gradient, parameter by parameter."""
    parts = zip(*gradients, strict=True)
    return Gradients(*(None if p[0] is None else sum(w * t for w, t in zip(weights, p, strict=True)) for p in parts))


def with_the_exact_model_term(small, settings, monkeypatch, labelled=True):
    """The settings' gradient with each state in turn as the negative sample, weighted by its exact probability."""
    machine, (v, y) = as_machine(small), tensors(labelled)
    joint = enumerate_all(small).w.sum(2)
    weights, found = [], []
    for n, state in enumerate(visible_states(3)):
        for label in range(joint.shape[1]):
            negative = torch.tensor(state[None]), torch.tensor([label]) if labelled else None
            monkeypatch.setattr(objectives, "advance_", lambda *_, negative=negative: negative)
            found.append(objectives.gradients(machine, v, y, Chains(), settings, uniform_noise(0)).gradients)
            weights.append(joint[n, label] / joint.sum())
    return weighted_sum(weights, found)


# -- generative ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_generative_gradient_is_that_of_the_exact_likelihood(depth, penalty, labelled, monkeypatch):
    small = small_machine(depth, penalty, labels=3 if labelled else 0)
    found = with_the_exact_model_term(small, Settings(), monkeypatch, labelled)
    assert_descends(found, slopes(depth, penalty, 3)["v, y"] if labelled else slopes(depth, penalty, 0)["v"], 1e-8)


def per_state(machine, labelled):
    """dF/dtheta at every state (and label), stacked, by parameter."""
    out = {name: [] for name in ARRAYS if getattr(machine, name) is not None}
    for state in visible_states(3):
        for label in range(max(machine.n_classes, 1)):
            y = torch.tensor([label]) if labelled else None
            gradients = machine.free_energy_gradients(torch.tensor(state[None]), y)
            for name in out:
                out[name].append(getattr(gradients, name).numpy())
    return {name: np.array(values) for name, values in out.items()}


def deviations(depth, penalty, *, labelled, persistent, gibbs_steps, gradient="expected", n=4000):
    """The sampled gradient less the exact one, in standard errors of n independent exact negative samples."""
    small = small_machine(depth, penalty, labels=3 if labelled else 0)
    machine, (v, y) = as_machine(small), tensors(labelled)
    repeats = n // len(V)
    v, y = v.repeat(repeats, 1), None if y is None else y.repeat(repeats)
    settings = Settings(
        persistent=persistent, n_chains=n if persistent else None, gibbs_steps=gibbs_steps, gradient=gradient
    )
    noise = uniform_noise(1, dtype=torch.float64)
    chains = start(machine, settings, noise)
    found = objectives.gradients(machine, v, y, chains, settings, noise).gradients
    exact = slopes(depth, penalty, 3)["v, y"] if labelled else slopes(depth, penalty, 0)["v"]
    p = enumerate_all(small).w.sum(2).ravel()
    p = p / p.sum()
    worst = []
    for name, values in per_state(machine, labelled).items():
        mean = np.tensordot(p, values, 1)
        variance = np.tensordot(p, values**2, 1) - mean**2
        if gradient == "sampled":  # z adds its own noise to both phases, each entry bounded by 1 + beta
            variance = variance + 2 * 2.3**2 / 4
        error = np.sqrt(variance / n)
        off = np.abs(getattr(found, name).numpy() + exact[name])
        worst.append((off / (error + 1e-9)).max())
    return max(worst)


@pytest.mark.parametrize("persistent", [True, False], ids=["pcd", "cd"])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_long_chains_give_the_exact_gradient(depth, penalty, labelled, persistent):
    """60 sweeps forget the start here (see the next test for what happens to those that do not)."""
    # About 27 entries, each normal: five standard errors leave 2e-5.
    assert deviations(depth, penalty, labelled=labelled, persistent=persistent, gibbs_steps=60) < 5


@pytest.mark.parametrize("depth", DEPTHS)
def test_one_sweep_from_the_data_is_seen_to_be_biased(depth):
    assert deviations(depth, "constant", labelled=False, persistent=False, gibbs_steps=1, n=16_000) > 7


@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_a_sampled_z_is_the_one_of_its_own_phase(depth, penalty, monkeypatch):
    machine, (v, y) = as_machine(small_machine(depth, penalty)).with_capacity(6), tensors(labelled=True)
    negative = 1 - v[:4], (y[:4] + 1) % 3
    monkeypatch.setattr(objectives, "advance_", lambda *_: negative)
    noise = uniform_noise(4, dtype=torch.float64)
    phases = objectives.gradients(machine, v, y, Chains(), Settings(gradient="sampled"), noise)
    data = machine.free_energy_gradients(v, y, phases.z_pos_B)
    model = machine.free_energy_gradients(*negative, phases.z_neg_N)
    for ours, a, b in zip(phases.gradients, data, model, strict=True):
        torch.testing.assert_close(ours, a - b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("depth", ["ordered", "infinite"])
def test_a_sampled_z_gives_the_same_gradient_on_average(depth):
    more = {"labelled": True, "persistent": True, "gibbs_steps": 60}
    assert deviations(depth, "softplus", gradient="sampled", **more) < 5


def test_persistent_chains_move_on_and_cd_starts_at_the_data(monkeypatch):
    machine, (v, y) = as_machine(small_machine("infinite", "constant")), tensors(labelled=True)
    real, calls = Machine.gibbs, []

    def spy(self, v, y, noise, n_steps, **more):
        ended = real(self, v, y, noise, n_steps, **more)
        calls.append(((v.clone(), y.clone()), ended, n_steps))
        return ended

    monkeypatch.setattr(Machine, "gibbs", spy)
    settings = Settings(n_chains=9, gibbs_steps=3)
    chains = start(machine, settings, uniform_noise(0, dtype=torch.float64))
    first = chains.v_ND.clone(), chains.y_N.clone()
    for seed in (1, 2):
        objectives.gradients(machine, v, y, chains, settings, uniform_noise(seed, dtype=torch.float64))
    (began, ended, n_steps), (went_on, then, _) = calls
    assert n_steps == 3
    assert all(map(torch.equal, began, first))
    assert all(map(torch.equal, went_on, ended))
    assert not torch.equal(ended[0], first[0])
    assert torch.equal(chains.v_ND, then[0])
    assert torch.equal(chains.y_N, then[1])

    contrastive = Settings(persistent=False)
    none = start(machine, contrastive, uniform_noise(0))
    objectives.gradients(machine, v, y, none, contrastive, uniform_noise(7, dtype=torch.float64))
    assert len(none) == 0
    assert all(map(torch.equal, calls[-1][0], (v, y)))


# -- discriminative and hybrid ------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_discriminative_gradient_is_that_of_the_exact_conditional(depth, penalty):
    small = small_machine(depth, penalty)
    machine, (v, y) = as_machine(small), tensors(labelled=True)
    settings = Settings(objective="discriminative")
    found = objectives.gradients(machine, v, y, Chains(), settings, uniform_noise(0)).gradients
    assert_descends(found, slopes(depth, penalty)["y | v"], 1e-8)
    assert not found.visible_bias.any()  # p(y | v) does not know b


@pytest.mark.parametrize("alpha", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_hybrid_gradient_is_that_of_its_exact_objective(depth, penalty, alpha, monkeypatch):
    """(1 + alpha) ln p(y | v) + alpha ln p(v). SPEC section 2."""
    small = small_machine(depth, penalty)
    found = with_the_exact_model_term(small, Settings(objective="hybrid", alpha=alpha), monkeypatch)
    parts = slopes(depth, penalty)
    exact = {name: (1 + alpha) * parts["y | v"][name] + alpha * parts["v"][name] for name in ARRAYS}
    assert_descends(found, exact, 1e-8 * (1 + alpha))


@pytest.mark.parametrize("depth", DEPTHS)
def test_hybrid_is_discriminative_plus_alpha_generative(depth, monkeypatch):
    machine, (v, y) = as_machine(small_machine(depth, "constant")), tensors(labelled=True)
    negative = machine.gibbs(v, y, uniform_noise(3), 2)
    monkeypatch.setattr(objectives, "advance_", lambda *_: negative)
    found = {
        name: objectives.gradients(machine, v, y, Chains(), Settings(objective=name, alpha=0.7), uniform_noise(0))
        for name in ("generative", "discriminative", "hybrid")
    }
    for dis, gen, both in zip(*(found[n].gradients for n in ("discriminative", "generative", "hybrid")), strict=True):
        torch.testing.assert_close(both, dis + 0.7 * gen, rtol=1e-14, atol=1e-16)  # one rounding apart


# -- depths that decide growth ------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["generative", "discriminative", "hybrid"])
@pytest.mark.parametrize("depth", ["ordered", "infinite"])
def test_the_depths_have_their_exact_probabilities(depth, objective, monkeypatch):
    """z_pos ~ p(z | v, y); z_neg ~ p(z | v_neg, y_neg), or p(z | v) where there is no chain."""
    small = small_machine(depth, "constant")
    machine, n = as_machine(small), 20_000
    w = enumerate_all(small).w
    given, summed = w / w.sum(2, keepdims=True), w.sum(1) / w.sum((1, 2))[:, None]
    # The state and label that say most about z, and the state farthest from it: what could be confused differs.
    here, label = np.unravel_index(np.abs(given - summed[:, None]).sum(2).argmax(), (8, 3))
    there, other = np.unravel_index(np.abs(given - given[here, label]).sum(2).argmax(), (8, 3))
    states = torch.tensor(visible_states(3))
    v, y = states[[here]].repeat(n, 1), torch.full((n,), int(label))
    negative = states[[there]].repeat(n, 1), torch.full((n,), int(other))
    monkeypatch.setattr(objectives, "advance_", lambda *_: negative)
    noise = uniform_noise(2, dtype=torch.float64)
    phases = objectives.gradients(machine, v, y, Chains(), Settings(objective=objective), noise)
    below = summed[here] if objective == "discriminative" else given[there, other]
    assert np.abs(below - given[here, label]).sum() > 0.2
    for z, p in ((phases.z_pos_B, given[here, label]), (phases.z_neg_N, below)):
        counts = torch.bincount(z, minlength=5)[1:].numpy()
        possible = p > 0
        assert counts[~possible].sum() == 0
        assert chisquare(counts[possible], n * p[possible]).pvalue > 1e-4
