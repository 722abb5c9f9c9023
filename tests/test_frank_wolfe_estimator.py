"""FrankWolfeRBM: scikit-learn's manners, files, the RBM it becomes, features for a classifier."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import irbm
from brute import enumerate_all, visible_states
from irbm import RBM, FrankWolfeRBM
from irbm.training import frank_wolfe
from machines import random_small

rng = np.random.default_rng(0)
X = (rng.random((40, 3)) < 0.5)[:, [0, 0, 0, 1, 1, 1, 2, 2]].astype(np.uint8)

pytestmark = pytest.mark.usefixtures("one_thread")


def build(**more):
    """Small and quick; ``more`` wins."""
    quick = {"n_components": 3, "inner_steps": 20, "gibbs_steps": 5, "n_chains": 200, "random_state": 0}
    return FrankWolfeRBM(**(quick | {"device": "cpu"} | more))


def parameters(model):
    return [model.components_, model.intercept_hidden_, model.intercept_visible_]


def assert_same_parameters(a, b):
    for ours, theirs in zip(parameters(a), parameters(b), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


# -- probabilities ------------------------------------------------------------------------------------------


def test_probabilities_against_enumeration():
    small = random_small(np.random.default_rng(3), depth="fixed", permuted=True)
    model = FrankWolfeRBM.from_parameters(small.W, small.c, small.b, order=small.order)
    truth, states = enumerate_all(small), visible_states(4)
    np.testing.assert_allclose(model.free_energy(states), truth.free_energy(), atol=1e-12)
    np.testing.assert_allclose(model.transform(states), truth.p_h(), atol=1e-12)
    np.testing.assert_allclose(model.score_samples(states), -truth.free_energy() - truth.log_z, atol=1e-12)
    assert model.log_partition().value == pytest.approx(truth.log_z, abs=1e-12)
    assert (model.log_prob_z(states) == np.zeros((16, 1))).all()
    p = np.exp(-truth.free_energy())
    flips = [p / (p + p[np.arange(16) ^ (8 >> j)]) for j in range(4)]
    np.testing.assert_allclose(model.pseudo_log_likelihood(states), np.log(flips).sum(0), atol=1e-12)


def test_samples_have_the_machine_s_frequencies():
    model = build().fit(X)
    states = visible_states(8)
    p = np.exp(model.score_samples(states))
    assert p.sum() == pytest.approx(1.0, abs=1e-6)
    drawn = model.sample(20_000, n_steps=50, random_state=1)
    counts = np.bincount((drawn @ 2 ** np.arange(7, -1, -1)).astype(int), minlength=256)
    # five standard errors, and half a count for the rarest
    assert (np.abs(counts - 20_000 * p) < 5 * np.sqrt(20_000 * p * (1 - p)) + 5).all()


# -- learning -----------------------------------------------------------------------------------------------


def test_one_unit_a_step():
    assert build(n_components=5).fit(X).n_components_ == 5
    assert build(n_components=5, n_iter=2).fit(X).n_components_ == 2
    assert build(n_components=2, n_iter=5).fit(X).n_components_ == 2
    model = build().fit(X)
    assert [row["n_components"] for row in model.history_] == [1, 2, 3]
    assert model.effective_size_ == 3
    norms = [row["norm"] for row in model.history_]
    np.testing.assert_allclose(norms, np.linalg.norm(model.components_, axis=1), rtol=1e-6)


def test_calls_of_partial_fit_are_a_fit():
    model = build()
    for _ in range(3):
        assert model.partial_fit(X) is model
    assert_same_parameters(model, build().fit(X))


def test_partial_fit_goes_on_where_it_stands():
    model = build().fit(X)
    old = parameters(model)
    model.partial_fit(X)
    assert model.n_components_ == 4
    np.testing.assert_array_equal(model.components_[:3], old[0])  # units stay as they are
    np.testing.assert_array_equal(model.intercept_hidden_[:3], old[1])
    assert (model.intercept_visible_ != old[2]).any()


def test_partial_fit_follows_new_settings():
    model = build().fit(X)
    assert min(row["ess"] for row in model.history_) > 70
    model.set_params(n_chains=70).partial_fit(X)
    assert model.n_components_ == 4
    assert model.history_[-1]["ess"] <= 70


def test_an_interrupted_call_leaves_no_half_added_unit(monkeypatch):
    model = build().fit(X)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(frank_wolfe, "refit_biases_", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X)
    assert model.n_components_ == 3
    assert model.partial_fit(X).n_components_ == 4


def test_partial_fit_of_given_parameters():
    model = FrankWolfeRBM.from_parameters(np.ones((2, 8)), np.zeros(2), np.zeros(8))
    model.set_params(inner_steps=20, gibbs_steps=5, n_chains=200, random_state=0).partial_fit(X)
    assert model.n_components_ == 3
    assert model.components_.dtype == np.float64
    assert len(model.history_) == 1


def test_the_same_seed_gives_the_same_machine():
    assert_same_parameters(build().fit(X), build().fit(X))
    assert (build(random_state=1).fit(X).components_ != build().fit(X).components_).any()


def test_sparse_and_torch_input():
    model = build().fit(X)
    assert_same_parameters(build().fit(sparse.csr_matrix(X)), model)
    assert_same_parameters(build().fit(torch.from_numpy(X)), model)
    assert_same_parameters(build(binarize=2.0).fit(X * 5.0), model)


def test_a_failed_fit_leaves_the_old_machine():
    model = build().fit(X)
    before = parameters(model)
    with pytest.raises(irbm.training.DivergenceError):
        model.set_params(learning_rate=1e38).fit(X[:, :5])
    assert model.n_features_in_ == X.shape[1]
    for ours, theirs in zip(parameters(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_bar_is_shown(capfd):
    build(n_components=2, verbose=1).fit(X)
    assert "adding hidden units" in capfd.readouterr().err


# -- what becomes of it -------------------------------------------------------------------------------------


def test_an_rbm_from_it_trains_on():
    """The same distribution at first; CD then raises its exact likelihood, well above that from a random start."""
    model = build(n_components=4, l2=0.01).fit(X)
    rbm = model.to_rbm()
    assert type(rbm) is RBM
    np.testing.assert_array_equal(rbm.score_samples(X), model.score_samples(X))
    start = rbm.score(X)
    training = {"persistent": False, "optimizer": "constant", "learning_rate": 0.1, "batch_size": 20}
    for _ in range(100):
        rbm.set_params(**training).partial_fit(X)
    assert rbm.n_components_ == 4
    assert rbm.score(X) > start + 0.15
    from_noise = RBM(4, n_iter=100, random_state=0, device="cpu", **training).fit(X)
    assert rbm.score(X) > from_noise.score(X) + 0.8


def test_the_rbm_keeps_large_units():
    model = FrankWolfeRBM.from_parameters(np.full((1, 8), 10.0), [0.0], np.zeros(8))
    rbm = model.to_rbm().set_params(learning_rate=1e-6, l1=0.0, random_state=0).partial_fit(X)
    np.testing.assert_allclose(rbm.components_, model.components_, atol=1e-4)


def test_features_for_a_classifier():
    """Sixty greedy units tell digits apart as well as a linear rule on all 64 pixels does, or nearly."""
    digits = irbm.data.load("digits")
    features = FrankWolfeRBM(n_components=60, l2=0.01, n_chains=500, gibbs_steps=10, inner_steps=50, random_state=0)
    pipeline = make_pipeline(features, LogisticRegression(max_iter=2000))
    accuracy = pipeline.fit(digits.train.X, digits.train.y).score(digits.test.X, digits.test.y)
    pixels = LogisticRegression(max_iter=2000).fit(digits.train.X, digits.train.y)
    assert accuracy > pixels.score(digits.test.X, digits.test.y) - 0.02
    assert accuracy > 0.9


def test_a_grid_search_and_clone():
    search = GridSearchCV(build(), {"l2": np.array([0.01, 1.0]), "inner": ["unit", "linear"]}, cv=2).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["l2"] == 0.01  # a penalty of one leaves no unit worth its name
    copy = clone(search.best_estimator_)
    assert copy.get_params() == search.best_estimator_.get_params()
    assert not hasattr(copy, "n_features_in_")


# -- files --------------------------------------------------------------------------------------------------


def test_files_and_pickles_keep_every_bit(tmp_path):
    model = build().fit(X)
    model.save(tmp_path / "model.safetensors")
    for other in (FrankWolfeRBM.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert_same_parameters(other, model)
        assert other.history_ == model.history_
        np.testing.assert_array_equal(other.score_samples(X), model.score_samples(X))
        np.testing.assert_array_equal(other.sample(5, n_steps=20), model.sample(5, n_steps=20))
    with pytest.raises(ValueError, match="FrankWolfeRBM"):
        RBM.load(tmp_path / "model.safetensors")


def test_a_loaded_model_goes_on(tmp_path):
    build().fit(X).save(tmp_path / "model.safetensors")
    model = FrankWolfeRBM.load(tmp_path / "model.safetensors").partial_fit(X)
    assert model.n_components_ == 4
    assert [row["n_components"] for row in model.history_] == [1, 2, 3, 4]


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "examples", "words"),
    [
        ({"n_components": 0}, X, "n_components must be a whole number >= 1, got 0"),
        ({"n_iter": 1.5}, X, "n_iter must be None or a whole number >= 1, got 1.5"),
        ({"inner": "best"}, X, "inner must be one of 'unit', 'linear', got 'best'"),
        ({"l2": -1}, X, "l2 must be a finite number >= 0, got -1"),
        ({"learning_rate": float("nan")}, X, "learning_rate must be a finite number > 0, got nan"),
        ({"n_chains": None}, X, "n_chains must be a whole number >= 1, got None"),
        ({"device": "tpu"}, X, "device must be None or a name"),
        ({}, X * 2, "X must hold only 0 and 1"),
        ({}, np.full((3, 2), np.nan), "NaN"),
        ({}, np.empty((0, 4)), "0 sample"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_input(method, settings, examples, words):
    model = build(**settings)
    with pytest.raises(ValueError, match=words):
        getattr(model, method)(examples)
    assert not hasattr(model, "history_")


def test_wrong_width():
    model = build().fit(X)
    with pytest.raises(ValueError, match="8 features"):
        model.partial_fit(X[:, :5])
    assert model.n_components_ == 3


def test_no_history_without_training():
    model = FrankWolfeRBM.from_parameters([[1.0]], [0.0], [0.0])
    with pytest.raises(AttributeError, match="has not been trained"):
        _ = model.history_
