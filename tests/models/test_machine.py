"""The machine's gradients, samplers, padding and order, each against an independent route."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from brute import energy, transition, visible_states
from irbm.evaluation import partition
from irbm.models import Frozen, Machine
from irbm.ops import reference as ops
from irbm.ops.noise import uniform_noise
from machines import DEPTHS, as_machine, random_small, smalls

PARAMETERS = ("weights", "hidden_bias", "visible_bias", "label_weights", "label_bias")


def batch(machine: Machine, seed=0, n=7):
    rng = np.random.default_rng(seed)
    v = torch.tensor(rng.integers(0, 2, (n, machine.n_visible))).double()
    y = torch.tensor(rng.integers(0, machine.n_classes, n)) if machine.n_classes else None
    return v, y


def labels_given_and_summed_out(machine, y):
    return [y] if y is None else [y, None]


# -- gradients ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True)
@given(smalls())
def test_gradients_agree_with_autograd(small):
    machine = as_machine(small)
    v, y = batch(machine)
    names = [n for n in PARAMETERS if getattr(machine, n) is not None]
    leaves = {n: getattr(machine, n).clone().requires_grad_() for n in names}
    for labels in labels_given_and_summed_out(machine, y):
        mean = replace(machine, **leaves).free_energy(v, labels).mean()
        expected = torch.autograd.grad(mean, list(leaves.values()), allow_unused=True)
        ours = machine.free_energy_gradients(v, labels)
        for name, value in zip(names, expected, strict=True):
            torch.testing.assert_close(getattr(ours, name), value, rtol=1e-10, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(smalls())
def test_gradients_agree_with_finite_differences(small):
    machine = as_machine(small)
    v, y = batch(machine)
    step = 1e-5
    for labels in labels_given_and_summed_out(machine, y):
        ours = machine.free_energy_gradients(v, labels)
        for name in PARAMETERS:
            if getattr(machine, name) is None:
                continue
            flat = getattr(machine, name).view(-1)
            for i in range(len(flat)):
                old = flat[i].item()
                flat[i] = old + step
                above = machine.free_energy(v, labels).mean()
                flat[i] = old - step
                below = machine.free_energy(v, labels).mean()
                flat[i] = old
                slope = (above - below) / (2 * step)
                assert getattr(ours, name).reshape(-1)[i].item() == pytest.approx(slope.item(), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("penalty", ["constant", "softplus"])
def test_sampled_z_gradient_averages_to_the_exact_one(depth, penalty):
    small = random_small(np.random.default_rng(3), depth=depth, penalty=penalty, labels=2)
    machine = as_machine(small)
    v, y = batch(machine, n=2)
    n = 40_000
    many_v, many_y = v.repeat(n, 1), y.repeat(n)
    z, _ = machine.sample_hidden(many_v, many_y, uniform_noise(0, dtype=torch.float64))
    sampled, exact = machine.free_energy_gradients(many_v, many_y, z), machine.free_energy_gradients(v, y)
    for name in ("weights", "hidden_bias", "label_weights"):
        # Each entry is a mean of 2 n values bounded by 1 + beta: five standard errors.
        torch.testing.assert_close(getattr(sampled, name), getattr(exact, name), rtol=0, atol=5 * 2.3 / (2 * n) ** 0.5)


@pytest.mark.parametrize("depth", DEPTHS)
def test_gradients_leave_padding_alone(depth):
    machine = as_machine(random_small(np.random.default_rng(0), depth=depth, labels=2)).with_capacity(9)
    v, y = batch(machine)
    gradients = machine.free_energy_gradients(v, y)
    for name in ("weights", "hidden_bias", "label_weights"):
        assert not getattr(gradients, name)[4:].any()


# -- samplers -----------------------------------------------------------------------------------------------


def gibbs_p_value(depth, penalty="constant", labels=0, seed=5, n=60_000):
    """How likely the visible states and labels after one sweep are under the exact transition probabilities."""
    small = random_small(np.random.default_rng(seed), depth=depth, penalty=penalty, labels=labels, n_visible=3)
    machine = as_machine(small)
    start, start_y = np.array([1.0, 0.0, 1.0]), 1 if labels else 0
    v = torch.tensor(start).repeat(n, 1)
    y = torch.full((n,), start_y) if labels else None
    v, y = machine.gibbs_step(v, y, uniform_noise(seed, dtype=torch.float64))
    code = (v.long() * torch.tensor([4, 2, 1])).sum(1) * max(labels, 1) + (0 if y is None else y)
    observed = torch.bincount(code, minlength=8 * max(labels, 1)).numpy()
    return chisquare(observed, n * transition(small, start, start_y).ravel()).pvalue


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("penalty", ["constant", "softplus"])
@pytest.mark.parametrize("labels", [0, 3])
def test_gibbs_step_has_the_exact_transition_probabilities(depth, penalty, labels):
    assert gibbs_p_value(depth, penalty, labels) > 1e-4


BREAKS = {
    "sample_z": lambda s, u: 1 + (u[..., None] < 0.9 * s[..., 1:]).sum(-1),
    "sample_bernoulli": lambda logit, u: (u < torch.sigmoid(logit + 0.1)).to(logit.dtype),
    "within": lambda rank, z: rank <= z[..., None],
    "sample_categorical": lambda logits, u: (u[..., None] >= torch.softmax(logits, -1).cumsum(-1)).sum(-1) % 2,
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_transition_test_sees_a_broken_sampler(name, monkeypatch):
    monkeypatch.setattr(ops, name, BREAKS[name])
    assert gibbs_p_value("infinite", labels=3) < 1e-6


@pytest.mark.parametrize("depth", DEPTHS)
def test_sampled_z_and_h_have_their_exact_probabilities(depth):
    machine = as_machine(random_small(np.random.default_rng(8), depth=depth))
    n = 50_000
    v = torch.tensor([[1.0, 0.0, 1.0, 1.0]]).double()
    z, h = machine.sample_hidden(v.repeat(n, 1), None, uniform_noise(1, dtype=torch.float64))
    p_z = machine.log_prob_z(v).exp()[0].numpy()
    counts = torch.bincount(z, minlength=len(p_z) + 1)[1:].numpy()
    possible = p_z > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert chisquare(counts[possible], n * p_z[possible]).pvalue > 1e-4
    p_h = machine.hidden_mean(v)[0]
    assert ((h.mean(0) - p_h).abs() < 5 * (p_h * (1 - p_h) / n).sqrt() + 1e-12).all()
    assert not (h.bool() & (machine.rank >= z[:, None])).any()


def test_clamped_visibles_and_labels_keep_their_values():
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite", labels=3))
    v, y = batch(machine, n=50)
    keep = torch.tensor([True, False, True, False])
    after, label = Frozen.of(machine).gibbs(v, y, uniform_noise(0), 5, clamp_visible=keep, clamp_label=True)
    assert torch.equal(after[:, keep], v[:, keep])
    assert torch.equal(label, y)
    assert not torch.equal(after[:, ~keep], v[:, ~keep])


def test_clamped_gibbs_reaches_the_exact_conditional():
    machine = as_machine(random_small(np.random.default_rng(2), depth="infinite", n_visible=3))
    states = torch.tensor(visible_states(3))
    consistent = states[:, 0] == 1
    p = torch.softmax(-machine.free_energy(states[consistent]), 0).numpy()
    n = 20_000
    v, _ = Frozen.of(machine).gibbs(
        torch.tensor([[1.0, 0.0, 0.0]]).double().repeat(n, 1),
        None,
        uniform_noise(4),
        60,
        clamp_visible=torch.tensor([True, False, False]),
    )
    counts = torch.bincount((v[:, 1] * 2 + v[:, 2]).long(), minlength=4).numpy()
    assert chisquare(counts, n * p).pvalue > 1e-4


# -- energies, padding, order -------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None, derandomize=True)
@given(smalls(), st.integers(0, 2**32 - 1))
def test_energy_is_the_definition(small, seed):
    machine = as_machine(small)
    rng = np.random.default_rng(seed)
    l, D = small.W.shape
    v, h = rng.integers(0, 2, D).astype(float), rng.integers(0, 2, l)
    z, y = int(rng.integers(1, l + 1)), int(rng.integers(max(machine.n_classes, 1)))
    by_unit = np.zeros(l)
    by_unit[small.order] = h
    labels = torch.tensor([y]) if machine.n_classes else None
    ours = machine.energy(torch.tensor(v)[None], torch.tensor(by_unit)[None], torch.tensor([z]), labels)
    assert ours.item() == pytest.approx(energy(small, v, h, y, z), rel=1e-10, abs=1e-10)


def probabilities(machine, v):
    """Every probability that must not depend on how the machine is stored; hidden columns by position."""
    log_p_z = machine.log_prob_z(v)
    l = int(machine.size)
    out = {
        "F": machine.free_energy(v),
        "z": log_p_z[:, :l].exp(),
        "z > l": log_p_z[:, l:].exp().sum(1),
        "h": machine.hidden_mean(v)[:, machine.order[:l]],
        "ln Z by v": torch.tensor(partition.sum_over_visible(machine)),
        "ln Z by h": torch.tensor(partition.sum_over_hidden(machine)),
    }
    return out | ({"y": machine.log_prob_y(v)} if machine.n_classes else {})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(smalls(), st.integers(1, 40))
def test_padding_to_any_capacity_changes_nothing(small, extra):
    machine = as_machine(small)
    padded = machine.with_capacity(machine.capacity + extra)
    v = torch.tensor(visible_states(machine.n_visible))
    for name, value in probabilities(padded, v).items():
        torch.testing.assert_close(value, probabilities(machine, v)[name], rtol=1e-12, atol=1e-12, msg=name)
    for before, after in zip(machine.free_energy_gradients(v[:3]), padded.free_energy_gradients(v[:3]), strict=True):
        if before is not None:
            torch.testing.assert_close(after[: len(before)], before, rtol=1e-12, atol=1e-12)


def test_a_padded_machine_is_padded_further_and_cut_back_to_itself():
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite", labels=2))
    at_once, cut = machine.with_capacity(40), machine.with_capacity(9).with_capacity(40).with_capacity(4)
    for name, tensor in machine.with_capacity(9).with_capacity(40).tensors().items():
        assert torch.equal(tensor, at_once.tensors()[name]), name
        assert torch.equal(cut.tensors()[name], machine.tensors()[name]), name


@settings(max_examples=100, deadline=None, derandomize=True)
@given(smalls())
def test_a_permuted_order_equals_permuted_parameters(small):
    machine = as_machine(small)
    order = machine.order
    rows = {n: getattr(machine, n)[order] for n in ("weights", "hidden_bias")}
    if machine.label_weights is not None:
        rows["label_weights"] = machine.label_weights[order]
    moved = replace(machine, order=torch.arange(machine.capacity), **rows)
    v = torch.tensor(visible_states(machine.n_visible))
    for name, value in probabilities(moved, v).items():
        torch.testing.assert_close(value, probabilities(machine, v)[name], rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("depth", DEPTHS)
def test_nothing_is_asked_of_no_examples(depth, dtype):
    machine = as_machine(random_small(np.random.default_rng(0), depth=depth, labels=3), dtype)
    v_BD, y_B = torch.zeros(0, 4, dtype=dtype), torch.zeros(0, dtype=torch.int64)
    found = machine.label_contrast(v_BD, y_B, uniform_noise(0, dtype=dtype))
    shapes = {name: tuple(value.shape) for name, value in found._asdict().items()}
    assert shapes.pop("on_KC") == (4, 3)
    assert not found.on_KC.any()
    assert shapes.pop("error_BC") == (0, 3)
    assert shapes.pop("reach_BK") == shapes.pop("on_BK") == (0, 4)
    assert set(shapes.values()) == {(0,)}
    assert [t.shape for t in machine.sample_depth_and_label(v_BD, y_B, uniform_noise(0, dtype=dtype), 2)] == [(0,)] * 2
    assert machine.log_prob_y(v_BD).shape == (0, 3)


def test_capacity_must_hold_the_trained_units():
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"))
    with pytest.raises(ValueError, match="capacity must hold the 4 trained units"):
        machine.with_capacity(3)
