"""Gradients of the objectives against enumeration, finite differences and long chains."""

import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from brute import enumerate_all, visible_states
from irbm.models import Gradients, Machine
from irbm.models import machine as models_machine
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
    small = random_small(rng, depth=depth, penalty=penalty, labels=labels, n_visible=3, n_hidden=3)
    return replace(small, order=[2, 0, 1])  # not its own inverse: order and rank cannot be confused


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


def padded(small, padding):
    """The machine with so many rows of padding behind its units."""
    return as_machine(small).with_capacity(len(small.c) + padding)


def without_padding(gradients, padding):
    """The trained units' rows; padding's must be zero."""
    if not padding:
        return gradients
    rows = {n: t for n, t in gradients._asdict().items() if n in ("weights", "hidden_bias", "label_weights")}
    assert not any(t[-padding:].any() for t in rows.values() if t is not None)
    return gradients._replace(**{n: None if t is None else t[:-padding] for n, t in rows.items()})


def with_the_exact_model_term(small, settings, monkeypatch, labelled=True, padding=0):
    """The settings' gradient with each state in turn as the negative sample, weighted by its exact probability."""
    machine, (v, y) = padded(small, padding), tensors(labelled)
    joint = enumerate_all(small).w.sum(2)
    weights, found = [], []
    for n, state in enumerate(visible_states(3)):
        for label in range(joint.shape[1]):
            negative = torch.tensor(state[None]), torch.tensor([label]) if labelled else None
            monkeypatch.setattr(objectives, "advance_", lambda *_, negative=negative: negative)
            found.append(objectives.gradients(machine, v, y, Chains(), settings, uniform_noise(0)).gradients)
            weights.append(joint[n, label] / joint.sum())
    return without_padding(weighted_sum(weights, found), padding)


# -- generative ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_generative_gradient_is_that_of_the_exact_likelihood(depth, penalty, labelled, padding, monkeypatch):
    small = small_machine(depth, penalty, labels=3 if labelled else 0)
    found = with_the_exact_model_term(small, Settings(), monkeypatch, labelled, padding)
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


@pytest.mark.parametrize("entries", [None, 1], ids=["one chunk", "a row at a time"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_discriminative_gradient_is_that_of_the_exact_conditional(depth, penalty, padding, entries, monkeypatch):
    if entries:
        monkeypatch.setitem(models_machine.LABEL_ENTRIES, "cpu", entries)
    machine, (v, y) = padded(small_machine(depth, penalty), padding), tensors(labelled=True)
    settings = Settings(objective="discriminative")
    found = objectives.gradients(machine, v, y, Chains(), settings, uniform_noise(0)).gradients
    assert_descends(without_padding(found, padding), slopes(depth, penalty)["y | v"], 1e-8)
    assert not found.visible_bias.any()  # p(y | v) does not know b


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_hybrid_gradient_is_that_of_its_exact_objective(depth, penalty, alpha, padding, monkeypatch):
    """(1 + alpha) ln p(y | v) + alpha ln p(v). Eq. 18."""
    small = small_machine(depth, penalty)
    settings = Settings(objective="hybrid", alpha=alpha)
    found = with_the_exact_model_term(small, settings, monkeypatch, padding=padding)
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


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_conditional_in_single_precision(depth):
    """The step's own path through float32 agrees with the closed form in float64, sharp weights included."""
    rng = np.random.default_rng(8)
    small = random_small(rng, depth=depth, labels=5, n_visible=12, n_hidden=60, scale=3.0, beta=1.01)
    v, y = torch.tensor(rng.integers(0, 2, (40, 12)), dtype=torch.float64), torch.tensor(rng.integers(0, 5, 40))
    exact = as_machine(small)
    given, summed = exact.free_energy_gradients(v, y), exact.free_energy_gradients(v)
    single, settings = as_machine(small, torch.float32), Settings(objective="discriminative")
    found = objectives.gradients(single, v.float(), y, Chains(), settings, uniform_noise(0)).gradients
    for ours, a, b in zip(found, given, summed, strict=True):
        torch.testing.assert_close(ours.double(), a - b, rtol=0, atol=2e-5)


def test_the_conditional_takes_bounded_memory():
    """A table of all examples, labels and z would take 1.1 GB, several times over; the process is given 256 MB more."""
    code = """
        import re, resource, numpy as np, torch
        from irbm.models import Infinite
        from irbm.models.build import from_arrays
        from irbm.ops.noise import uniform_noise
        from irbm.training import Settings, objectives
        from irbm.training.chains import Chains
        rng = np.random.default_rng(0)
        draw = lambda *s: rng.normal(0, 0.1, s).astype(np.float32)
        labels = {"label_weights": draw(700, 101), "label_bias": draw(101)}
        machine = from_arrays(draw(700, 20), draw(700), draw(20), depth=Infinite(), **labels)
        v, y = torch.from_numpy(draw(2000, 20) > 0).float(), torch.from_numpy(rng.integers(0, 101, 2000))
        step = lambda n, s: objectives.gradients(machine, v[:n], y[:n], Chains(), s, uniform_noise(0)).gradients
        exact, sampled = (Settings(objective="discriminative", gradient=g) for g in ("expected", "sampled"))
        step(2, exact)
        used = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + 2**28, resource.RLIM_INFINITY))
        print(step(2000, exact).weights.shape, step(2000, sampled).weights.shape)
        try:
            np.ones(2**28, np.uint8)
        except MemoryError:
            print("and no more")
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux, to limit the memory of a process")
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    shape = "torch.Size([700, 20])"
    assert out.stdout.splitlines() == [f"{shape} {shape}", "and no more"], out.stderr[-500:]


# -- the sampled discriminative gradient, eq. 29 ------------------------------------------------------------


def one_example_gradients(depth, penalty, settings, n, padding=0):
    """The gradient of each of n copies of the batch's last example alone, (n, parameters), and those of eq. 30."""
    machine = padded(small_machine(depth, penalty), padding)
    v, y = torch.tensor(V[-1:]).repeat(n, 1), torch.tensor(Y[-1:]).repeat(n)
    noise = uniform_noise(5, dtype=torch.float64)
    phases = []
    real = Machine.phase_gradients

    def each(self, v, y, reach, active):
        on = reach * active
        slope = self.depth.penalty_slopes(self.hidden_bias)
        label = torch.nn.functional.one_hot(y, 3).double()
        parts = on[:, :, None] * v[:, None], on - reach * slope, on[:, :, None] * label[:, None], label
        phases.append(-torch.cat([p.flatten(1) for p in parts], 1))
        return real(self, v, y, reach, active)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "phase_gradients", each)
        mean = objectives.gradients(machine, v, y, Chains(), settings, noise).gradients
    data, model = phases
    samples = (data - model).numpy()
    flat = torch.cat([t.flatten() for name, t in mean._asdict().items() if name != "visible_bias"])
    np.testing.assert_allclose(flat.numpy(), samples.mean(0), rtol=0, atol=1e-12)
    assert not mean.visible_bias.any()
    given, summed = machine.free_energy_gradients(v[:1], y[:1]), machine.free_energy_gradients(v[:1])
    names = [name for name in ARRAYS if name != "visible_bias"]
    exact = torch.cat([(getattr(given, name) - getattr(summed, name)).flatten() for name in names])
    return samples, exact.numpy()


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(("depth", "penalty"), KINDS)
def test_the_sampled_conditional_gradient_is_the_exact_one_on_average(depth, penalty, padding):
    """40 Gibbs steps of (z, y) forget the label they start from."""
    settings = Settings(objective="discriminative", gradient="sampled", gibbs_steps=40)
    samples, exact = one_example_gradients(depth, penalty, settings, 20_000, padding)
    error = samples.std(0) / np.sqrt(len(samples))
    # Up to 48 entries, each normal: five standard errors leave 3e-5. An entry that never varies must be exact.
    assert (np.abs(samples.mean(0) - exact) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("depth", DEPTHS)
def test_too_few_steps_of_the_sampled_gradient_are_seen_to_be_biased(depth):
    settings = Settings(objective="discriminative", gradient="sampled", gibbs_steps=1)
    samples, exact = one_example_gradients(depth, "constant", settings, 20_000)
    error = samples.std(0) / np.sqrt(len(samples))
    off = np.abs(samples.mean(0) - exact) / (error + 1e-9)
    # A machine of fixed size has one z, from which the label is drawn exactly: one step is all it takes.
    assert off.max() < 5 if depth == "fixed" else off.max() > 7


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_sampled_conditional_gradient_varies_and_the_exact_one_does_not(depth, record_property):
    """The paper's reason for eq. 30: given the batch, eq. 29 alone has a variance."""
    settings = Settings(objective="discriminative", gradient="sampled")
    samples, exact = one_example_gradients(depth, "constant", settings, 4000)
    ratio = float(samples.var(0).sum() / (exact**2).sum())  # of the noise to the signal, for one example
    record_property("variance over squared gradient", ratio)
    print(f"{depth}: variance of eq. 29 over the squared length of eq. 30 is {ratio:.2f}")
    assert ratio > 0
    machine, (v, y) = as_machine(small_machine(depth, "constant")), tensors(labelled=True)
    for objective in (Settings(objective="discriminative"), settings):
        first, second = (
            objectives.gradients(machine, v, y, Chains(), objective, uniform_noise(seed, dtype=torch.float64))
            for seed in (0, 1)
        )
        same = all(map(torch.equal, first.gradients, second.gradients))
        assert same == (objective.gradient == "expected")


def test_the_sampled_conditional_gradient_does_not_depend_on_the_chunks(monkeypatch):
    machine, (v, y) = as_machine(small_machine("infinite", "constant")), tensors(labelled=True)
    settings = Settings(objective="hybrid", gradient="sampled", persistent=False)

    def found():
        noise = uniform_noise(0, dtype=torch.float64)
        return objectives.gradients(machine, v, y, Chains(), settings, noise).gradients

    whole = found()
    monkeypatch.setitem(models_machine.LABEL_ENTRIES, "cpu", 1)
    assert all(map(torch.equal, found(), whole))


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
