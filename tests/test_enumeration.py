"""Every probability of every kind of machine against brute force over (v, h, z, y)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from brute import enumerate_all, tail_sum, visible_states
from irbm.evaluation import partition
from irbm.ops import reference as ops
from machines import KINDS, as_machine, random_small, smalls

TOLERANCE = 1e-10


def close(ours, truth):
    np.testing.assert_allclose(np.asarray(ours), truth, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(drawn=st.data())
def test_every_probability_agrees_with_enumeration(kind, drawn):
    """8 machines of each of 48 kinds."""
    small = drawn.draw(smalls(st.just(kind)))
    truth, machine = enumerate_all(small), as_machine(small)
    v = torch.tensor(visible_states(machine.n_visible))
    l = len(small.c)

    close(machine.free_energy(v), truth.free_energy())
    close(machine.log_prob_z(v).exp(), truth.p_z())
    close(machine.hidden_mean(v)[:, machine.order], truth.p_h())
    close(partition.sum_over_visible(machine), truth.log_z)
    close(partition.sum_over_hidden(machine), truth.log_z)
    close(partition.exact(machine).value, truth.log_z)
    if machine.n_classes:
        close(machine.log_prob_y(v).exp(), truth.p_y())
        for y in range(machine.n_classes):
            y_B = torch.full((len(v),), y)
            close(machine.free_energy(v, y_B), truth.joint_free_energy()[:, y])
            p_z = truth.w[:, y] / truth.w[:, y].sum(1, keepdims=True)
            close(machine.log_prob_z(v, y_B).exp(), p_z)
            close(machine.hidden_mean(v, y_B)[:, machine.order], truth.on[:, y] / truth.w[:, y].sum(1)[:, None])
    assert machine.log_prob_z(v).shape == (len(v), l + 1)


@pytest.mark.parametrize("depth", ["fixed", "ordered", "infinite"])
def test_exact_sums_do_not_depend_on_the_chunks(depth, monkeypatch):
    machine = as_machine(random_small(np.random.default_rng(4), depth=depth, labels=2, n_visible=9, n_hidden=7))
    whole = partition.sum_over_visible(machine), partition.sum_over_hidden(machine)
    monkeypatch.setattr(partition, "CHUNK_BYTES", 8 * 20 * 10)  # a few states at a time
    close([partition.sum_over_visible(machine), partition.sum_over_hidden(machine)], whole)
    close(whole[0], whole[1])


@pytest.mark.parametrize("beta", [1.001, 1.01, 1.5, 4.0])
def test_closed_form_tail_is_the_long_sum(beta):
    small = random_small(np.random.default_rng(0), depth="infinite", beta=beta)
    assert math.log(tail_sum(small)) == pytest.approx(ops.log_tail(beta), abs=1e-10)


def test_the_tail_at_beta_1_01_weighs_143_8_terms():
    assert math.exp(ops.log_tail(1.01)) == pytest.approx(143.8, abs=0.05)
