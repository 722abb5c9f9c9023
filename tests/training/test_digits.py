"""How training behaves on the bundled digits. Figures in comments are of five seeds."""

import numpy as np
import pytest
import torch

import irbm
from irbm import data
from irbm.training import DivergenceError

DIGITS = data.load("digits")
X = DIGITS.train.X


@pytest.fixture(scope="module")
def regrouped():
    return irbm.InfiniteRBM(n_iter=30, random_state=0, device="cpu").fit(X)


@pytest.fixture(scope="module")
def ordinary():
    return irbm.InfiniteRBM(n_iter=30, random_state=0, regroup=None, device="cpu").fit(X)


def test_growth_slows_by_itself(regrouped):
    """l was 159 to 171 after 15 epochs and 173 to 215 after 30: the second half added 5 to 28 % of the first."""
    sizes = [row["n_components"] for row in regrouped.history_]
    assert sizes == sorted(sizes)
    assert sizes[14] > 100
    assert 0 < sizes[29] - sizes[14] < 0.6 * sizes[14]
    assert sizes[29] < 300


def test_an_epoch_cannot_add_more_units_than_it_has_steps(regrouped):
    sizes = [1] + [row["n_components"] for row in regrouped.history_]
    assert np.diff(sizes).max() <= 13


def test_the_digits_are_learned(regrouped):
    """Against the pixels' means alone: mean |v - reconstruction| 0.16 to 0.19 (theirs: 0.26), and a
    pseudo-log-likelihood of -20.6 to -20.1 (theirs: -25.1)."""
    means = X.mean(0)
    assert regrouped.history_[-1]["reconstruction_error"] < 0.22 < 0.25 < np.abs(X - means).mean()
    independent = X * np.log(means.clip(1e-3, 1)) + (1 - X) * np.log1p(-means.clip(0, 1 - 1e-3))
    assert regrouped.pseudo_log_likelihood(X).mean() > independent.sum(1).mean() + 3


def neighbours(weights):
    """The mean correlation of each filter with the next one."""
    centred = weights - weights.mean(1, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return float((unit[1:] * unit[:-1]).sum(1).mean())


def test_random_permutation_makes_neighbouring_filters_differ(regrouped, ordinary):
    """Over the first half of the units, after 30 epochs each.

    By position: 0.26 to 0.39 with RP, 0.97 to 0.98 without. That counts the shuffle itself, so also by age, which no
    shuffle touches: 0.67 to 0.75 with RP, 0.97 to 0.98 without, and at least 0.21 less for the same seed.
    """
    half = [model.n_components_ // 2 for model in (regrouped, ordinary)]
    by_position = [neighbours(m.components_[:n]) for m, n in zip((regrouped, ordinary), half, strict=True)]
    assert by_position[0] < 0.6 < 0.85 < by_position[1]
    by_age = [neighbours(m.machine_.weights[:n].numpy()) for m, n in zip((regrouped, ordinary), half, strict=True)]
    assert by_age[0] < by_age[1] - 0.1


def test_regrouping_follows_its_schedule(regrouped, ordinary):
    rows = regrouped.history_
    assert rows[0]["regrouped"] == 0
    for row in rows[1:10]:
        assert row["regrouped"] == int(0.75 * row["n_components"])
    for epoch, row in enumerate(rows[10:], start=10):
        past = [r["mean_z"] for r in rows[:epoch]]
        recent = past[-round(0.2 * epoch) :]
        most = max(sum(recent) / len(recent) - 10, 0)
        assert row["regrouped"] == int(min(0.9 * row["n_components"], most))
    assert {row["regrouped"] for row in ordinary.history_} == {0}


# -- lifelong -----------------------------------------------------------------------------------------------


def test_partial_fit_on_a_stream_goes_on_growing():
    """Ten lots of new digits: a row of history a call. So early on every step adds a unit: 51 after 50 steps."""
    model = irbm.InfiniteRBM(batch_size=20, gibbs_steps=2, random_state=0, device="cpu")
    sizes = []
    for n in range(10):
        assert model.partial_fit(X[100 * n : 100 * (n + 1)]) is model
        sizes.append(model.n_components_)
        assert len(model.history_) == n + 1
        assert model.history_[-1]["n_components"] == sizes[-1] == len(model.components_)
        assert [row["epoch"] for row in model.history_] == list(range(1, n + 2))
        assert model.history_[-1]["step"] == 5 * (n + 1)
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[4] < sizes[9]
    assert sizes[9] > 40
    assert model.training_state_.epoch == 10


def test_partial_fit_is_one_epoch_of_fit():
    """On the same data, passes one by one are the passes of a fit, bit by bit."""
    more = {"batch_size": 50, "gibbs_steps": 1, "random_state": 3, "device": "cpu"}
    whole = irbm.InfiniteRBM(n_iter=3, **more).fit(X[:300])
    passes = irbm.InfiniteRBM(n_iter=99, **more)
    for _ in range(3):
        passes.partial_fit(X[:300])
    np.testing.assert_array_equal(passes.components_, whole.components_)
    np.testing.assert_array_equal(passes.intercept_visible_, whole.intercept_visible_)


def test_partial_fit_goes_on_from_given_parameters_and_with_other_settings():
    start = irbm.InfiniteRBM.from_parameters(np.zeros((2, 64)), np.zeros(2), np.zeros(64))
    start.set_params(batch_size=30, random_state=0, learning_rate=0.02, momentum=True)
    start.partial_fit(X[:300])
    assert start.n_components_ > 2
    assert len(start.history_) == 1
    assert start.training_state_.optimizer.velocity
    start.set_params(momentum=False, optimizer="constant", n_chains=17, batch_size=60).partial_fit(X[:300])
    assert start.training_state_.optimizer.tensors().keys() == {"age", "step"}
    assert len(start.training_state_.chains) == 17
    assert [row["step"] for row in start.history_] == [10, 15]


def test_estimators_keep_averages():
    """And passes one by one go on from the parameters, not from their averages."""
    more = {"batch_size": 50, "gibbs_steps": 1, "random_state": 3, "device": "cpu"}
    plain = irbm.InfiniteRBM(n_iter=3, **more).fit(X[:300])
    averaged = irbm.InfiniteRBM(n_iter=3, averaging=6, **more).fit(X[:300])
    passes = irbm.InfiniteRBM(averaging=6, **more)
    for _ in range(3):
        passes.partial_fit(X[:300])
    assert torch.equal(averaged.training_state_.machine.weights, plain.training_state_.machine.weights)
    assert averaged.components_.shape == plain.components_.shape
    assert np.abs(averaged.components_ - plain.components_).max() > 1e-3
    np.testing.assert_array_equal(passes.components_, averaged.components_)
    passes.set_params(averaging=None).partial_fit(X[:300])
    np.testing.assert_array_equal(passes.components_, plain.partial_fit(X[:300]).components_)


def test_fit_starts_afresh():
    model = irbm.InfiniteRBM(n_iter=1, gibbs_steps=1, random_state=0, device="cpu").fit(X[:300])
    first = model.components_
    model.partial_fit(X[:300])
    np.testing.assert_array_equal(model.fit(X[:300]).components_, first)
    assert len(model.history_) == 1


def test_what_is_known_of_ln_z_is_forgotten_when_parameters_change():
    model = irbm.RBM(4, n_iter=1, gibbs_steps=1, random_state=0, device="cpu").fit(X[:300])
    before = model.log_partition().value
    model.partial_fit(X[:300])
    assert model.log_partition().value != before


def test_a_pass_that_diverges_leaves_the_fitted_machine_alone():
    model = irbm.InfiniteRBM.from_parameters(np.ones((2, 64)), np.zeros(2), np.zeros(64))
    before = model.free_energy(X[:5])
    with pytest.raises(DivergenceError):
        model.set_params(learning_rate=1e300, max_norm=None, batch_size=10, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(model.free_energy(X[:5]), before)


@pytest.mark.parametrize("again", ["fit", "partial_fit"])
def test_training_goes_on_after_a_pass_that_diverged(again):
    model = irbm.InfiniteRBM(n_iter=2, batch_size=50, gibbs_steps=1, random_state=0, device="cpu").fit(X[:200])
    before = model.components_
    with pytest.raises(DivergenceError):
        getattr(model.set_params(learning_rate=1e300, max_norm=None), again)(X[:200])
    np.testing.assert_array_equal(model.components_, before)
    model.set_params(learning_rate=0.05, max_norm=10.0).partial_fit(X[:200])
    assert np.abs(model.components_[: len(before)] - before).max() < 1
    assert [row["epoch"] for row in model.history_] == [1, 2, 3]


class StopAtOnce(irbm.training.Callback):
    def after_segment(self, trainer):
        trainer.stop()


def test_partial_fit_after_a_stop_is_a_whole_pass():
    model = irbm.InfiniteRBM(batch_size=10, gibbs_steps=1, random_state=0, device="cpu")
    model.fit(X[:200], callbacks=[StopAtOnce()])
    assert model.training_state_.step == 1
    model.partial_fit(X[200:210])
    assert model.training_state_.step == 2
    assert np.isfinite(model.history_[-1]["reconstruction_error"])


# -- classifiers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "objective", "epochs"),
    [  # and the accuracies of five seeds
        (irbm.RBMClassifier, "discriminative", 5),  # 0.79 to 0.86
        (irbm.RBMClassifier, "hybrid", 5),  # 0.78 to 0.81
        (irbm.InfiniteRBMClassifier, "discriminative", 20),  # 0.84 to 0.92; new units learn slowly at first
    ],
)
def test_classifiers_learn_the_digits(cls, objective, epochs):
    """Far above the 10 % of guessing; far more epochs would be needed to be good."""
    size = {"n_components": 40} if cls is irbm.RBMClassifier else {}
    more = {"batch_size": 50, "gibbs_steps": 1, "learning_rate": 0.1, "random_state": 0, "device": "cpu"}
    model = cls(n_iter=epochs, objective=objective, **more, **size).fit(X, DIGITS.train.y)
    assert model.score(DIGITS.test.X, DIGITS.test.y) > 0.65
    assert model.n_components_ == 40 if size else model.n_components_ > 40
