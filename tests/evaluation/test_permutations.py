"""Averages over orders against enumeration, order by order."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from brute import enumerate_all, visible_states
from irbm import InfiniteRBM
from irbm.evaluation import partition
from irbm.evaluation.permutations import averaged_likelihood, permuted
from irbm.ops.noise import uniform_noise
from machines import as_machine, random_small

N = 6


@pytest.fixture(scope="module")
def small():
    return random_small(np.random.default_rng(4), depth="infinite", n_visible=3, n_hidden=4, scale=1.5)


@pytest.fixture(scope="module")
def X():
    return visible_states(3)[[0, 3, 3, 5, 6]]


def fresh_noise():
    return uniform_noise(8, dtype=torch.float64)


def truths(small, m, n):
    """ln p(v | order) of every state for the orders that the same noise gives: (n, 8)."""
    noise, machine = fresh_noise(), as_machine(small)
    orders = [permuted(machine, m, noise).order.tolist() for _ in range(n)]
    found = [enumerate_all(replace(small, order=order)) for order in orders]
    return orders, np.stack([-truth.free_energy() - truth.log_z for truth in found])


def rows_of(X):
    return (X @ [4, 2, 1]).astype(int)


@pytest.mark.parametrize("m", [2, 4])
def test_the_average_is_over_the_orders_that_were_drawn(small, X, m):
    orders, log_p_NV = truths(small, m, N)
    assert len({tuple(order) for order in orders}) > 1
    assert all(order[m:] == small.order[m:] for order in orders)
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    log_p_NX = log_p_NV[:, rows_of(X)]
    found = averaged_likelihood(as_machine(small), torch.tensor(X), m, N, partition.exact, fresh_noise())
    assert found.value == pytest.approx(np.log(np.exp(log_p_NX).mean(0)).mean(), abs=1e-10)
    assert found.stderr == pytest.approx(log_p_NX.mean(1).std(ddof=1) / math.sqrt(N), rel=1e-8)
    assert found.lower == found.value == found.upper
    assert found.reliable
    assert (found.n_permutations, found.regrouped) == (N, m)


def test_the_bracket_is_that_of_the_orders(small, X):
    """Each ln Z has a bracket of its own; one that is not reliable spoils the average."""
    widths = iter([0.1, 0.7, 0.2])

    def bracketed(machine):
        exact, width = partition.exact(machine), next(widths)
        bracket = {"lower": exact.value - width, "upper": exact.value + 2 * width}
        return replace(exact, **bracket, reliable=width < 0.5, reason=f"{width} wide")

    _, log_p_NV = truths(small, 4, 3)
    log_p_NX, width_N1 = log_p_NV[:, rows_of(X)], np.array([[0.1], [0.7], [0.2]])
    found = averaged_likelihood(as_machine(small), torch.tensor(X), 4, 3, bracketed, fresh_noise())
    assert found.lower == pytest.approx(np.log(np.exp(log_p_NX - 2 * width_N1).mean(0)).mean(), abs=1e-10)
    assert found.upper == pytest.approx(np.log(np.exp(log_p_NX + width_N1).mean(0)).mean(), abs=1e-10)
    assert found.lower < found.value < found.upper
    assert not found.reliable
    assert found.reason == "1 of 3 orders: 0.7 wide"


def test_errors_of_ln_z_are_part_of_the_standard_error(small, X):
    errors = [0.1, 0.7, 0.2]
    said = iter(errors)
    log_p_NX = truths(small, 4, 3)[1][:, rows_of(X)]
    found = averaged_likelihood(
        as_machine(small),
        torch.tensor(X),
        4,
        3,
        lambda machine: replace(partition.exact(machine), stderr=next(said)),
        fresh_noise(),
    )
    of_orders, of_sums = log_p_NX.mean(1).var(ddof=1) / 3, sum(e**2 for e in errors) / 3**2
    assert found.stderr == pytest.approx(math.sqrt(of_orders + of_sums), rel=1e-8)


def test_one_order_has_no_standard_error(small, X):
    found = averaged_likelihood(as_machine(small), torch.tensor(X), 4, 1, partition.exact, fresh_noise())
    assert found.stderr is None
    assert found.value == pytest.approx(truths(small, 4, 1)[1][0, rows_of(X)].mean(), abs=1e-10)


@pytest.mark.parametrize("m", [0, -1, 5])
def test_no_more_units_change_places_than_there_are(small, X, m):
    with pytest.raises(ValueError, match=rf"regrouped.* 1\.\.4, got {m}"):
        averaged_likelihood(as_machine(small), torch.tensor(X), m, 2, partition.exact, fresh_noise())


# -- the estimator ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(1).integers(0, 2, (60, 5), np.uint8)
    X[:, 1] = X[:, 0]
    return InfiniteRBM(n_iter=6, learning_rate=0.3, batch_size=10, random_state=0, device="cpu").fit(X), X


def test_a_fitted_model_permutes_what_training_did(fitted):
    model, X = fitted
    m = model.history_[-1]["regrouped"]
    assert m > 1
    found = model.averaged_likelihood(X, 4, random_state=3)
    assert found == model.averaged_likelihood(X, 4, regrouped=m, random_state=3)
    assert (found.n_permutations, found.regrouped) == (4, m)
    assert found.reliable
    assert found.lower == found.value == found.upper
    noise, examples = model._noise(3), torch.tensor(X, dtype=model.machine_.weights.dtype)
    orders = [permuted(model.machine_, m, noise) for _ in range(4)]
    log_p = torch.stack([-order.free_energy(examples) - partition.exact(order).value for order in orders])
    assert found.value == pytest.approx(float((torch.logsumexp(log_p, 0) - math.log(4)).mean()), abs=1e-9)


def test_every_order_has_its_own_chances(fitted, monkeypatch):
    """Errors of ln Z that all orders shared would not average out as the standard error says."""
    model, X = fitted
    seeds = []

    def recorded(machine, *, seed, **_):
        seeds.append(seed)
        return partition.exact(machine)

    monkeypatch.setattr("irbm.estimators.base.estimate", recorded)
    monkeypatch.setattr(partition, "is_small", lambda machine: False)
    found = model.averaged_likelihood(X, 4, random_state=3)
    assert len(set(seeds)) == 4
    assert found == model.averaged_likelihood(X, 4, random_state=3)
    assert seeds[:4] == seeds[4:]


def test_the_model_stays_as_it_was(fitted):
    model, X = fitted
    order, before = model.machine_.order.clone(), model.log_partition().value
    model.averaged_likelihood(X, 2, random_state=1)
    assert torch.equal(model.machine_.order, order)
    assert model._log_partition.value == before


def test_an_epoch_that_validated_best_permutes_its_own_units(fitted):
    _, X = fitted
    model = InfiniteRBM(n_iter=6, learning_rate=0.3, batch_size=10, random_state=0, device="cpu")
    model.fit(X, validation=X[:2])
    model._best_epoch = 1  # whatever these two examples chose
    model._history[0] = replace(model._history[0], regrouped=1)
    model._history[-1] = replace(model._history[-1], regrouped=2)
    assert model.averaged_likelihood(X, 2, random_state=0).regrouped == 1


@pytest.mark.parametrize("n", [0, -3, 2.5, True])
def test_a_bad_number_of_permutations_is_named(fitted, n):
    with pytest.raises(ValueError, match=r"n_permutations must be .*got"):
        fitted[0].averaged_likelihood(fitted[1], n)


@pytest.mark.parametrize("regrouped", [0, 10_000])
def test_a_bad_number_of_regrouped_units_is_named(fitted, regrouped):
    with pytest.raises(ValueError, match=rf"regrouped.*got {regrouped}"):
        fitted[0].averaged_likelihood(fitted[1], 2, regrouped=regrouped)


def test_a_model_from_arrays_must_be_told_how_many():
    model = InfiniteRBM.from_parameters([[1.0, -1.0], [0.5, 2.0]], [0.1, 0.2], [0.0, 0.3])
    with pytest.raises(AttributeError, match="has not been trained"):
        model.averaged_likelihood([[0, 1]], 2)
    assert model.averaged_likelihood([[0, 1]], 2, regrouped=2, random_state=0).regrouped == 2
