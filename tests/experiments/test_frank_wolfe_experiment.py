"""The Frank-Wolfe baseline: the choice of its penalty, CD from there, and its row of table 2."""

import numpy as np
import pytest

from irbm import data
from irbm.experiments import frank_wolfe

QUICK = {"device": "cpu", "rows": 200, "n_chains": 100, "inner_steps": 10, "gibbs_steps": 2}


@pytest.fixture
def judged(monkeypatch):
    """Likelihoods without annealing: brackets that are wide for the first, so that lower ends and values disagree."""
    brackets = iter([(-20.0, -30.0), (-21.0, -22.0), (-24.0, -25.0)])

    def likelihood(model, X, base, seed, budget):
        value, lower = next(brackets)
        return {"value": value, "lower": lower, "upper": value, "reliable": False}

    monkeypatch.setattr(frank_wolfe, "likelihood", likelihood)


def test_the_penalty_with_the_highest_lower_end_on_validation_is_taken(judged):
    model, tried = frank_wolfe.chosen("digits", 2, 0, [0.01, 0.03, 0.1], **QUICK)
    assert model.l2 == 0.03
    assert [about["l2"] for about in tried] == [0.01, 0.03, 0.1]
    assert model.n_components_ == 2


def test_cd_goes_on_from_the_greedy_units():
    X = data.load("digits").train.X[:200]
    model = frank_wolfe.greedy("digits", 3, 0, l2=0.01, **QUICK)
    before = model.components_.copy()
    moved = [frank_wolfe.then_cd(model, X, 1, {"learning_rate": rate}, 0).components_ for rate in (1e-6, 0.05)]
    np.testing.assert_allclose(moved[0], before, atol=1e-5)  # two steps at the plain rate
    assert np.abs(moved[1] - before).max() > 1e-3
    np.testing.assert_array_equal(model.components_, before)  # the model itself stays


def test_softmax_regression_on_the_units_beats_chance_and_is_judged_on_the_test_split():
    run = frank_wolfe.train_classifier("digits", 0, units=12, l2=0.01, **QUICK)
    assert run["n_components"] == 12
    assert run["test_error"]["n"] == 296
    assert run["test_error"]["rate"] < 0.6
    assert run["C"] in frank_wolfe.STRENGTHS
