"""Pixels from 0 to 1: probabilities by summing over z in plain NumPy, gradients by differences of these."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from irbm import InfiniteRBMClassifier, RBMClassifier, data
from irbm.experiments import classification
from irbm.experiments.intensities import IntensityInfiniteRBMClassifier, IntensityRBMClassifier
from irbm.experiments.paper import INTENSITIES

REAL_DATA = os.environ.get("IRBM_DATA")
N, D, L, C, BETA = 7, 5, 3, 3, 1.3
DEEPEST = 400  # beyond which sums over z gain nothing: every unit there has 2^-0.3 of the weight of the one before
RATE = 0.5
KINDS = {"infinite": IntensityInfiniteRBMClassifier, "fixed": IntensityRBMClassifier}


@pytest.fixture
def parameters():
    rng = np.random.default_rng(0)
    shapes = {"weights": (L, D), "hidden_bias": (L,), "visible_bias": (D,), "label_weights": (L, C), "label_bias": (C,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


@pytest.fixture
def examples():
    rng = np.random.default_rng(1)
    return rng.uniform(size=(N, D)), rng.integers(0, C, N)


def log_prob(kind, p, X):
    """ln p(y | v)."""
    inputs = (X @ p["weights"].T + p["hidden_bias"])[:, :, None] + p["label_weights"]  # (N, L, C)
    gain = np.logaddexp(0, inputs)
    if kind == "fixed":
        score = gain.sum(1)
    else:
        beyond = np.full((len(X), DEEPEST, C), np.log(2))
        depths = np.concatenate([gain, beyond], axis=1) - BETA * np.log(2)
        score = np.logaddexp.reduce(np.cumsum(depths, axis=1), axis=1)
    score = score + p["label_bias"]
    return score - np.logaddexp.reduce(score, axis=1, keepdims=True)


def machine(kind, parameters, **settings):
    names = {"classes": np.arange(C)} | ({"beta": BETA} if kind == "infinite" else {})
    return KINDS[kind].from_parameters(**parameters, **names).set_params(**settings)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_labels(kind, parameters, examples):
    X, _ = examples
    found = machine(kind, parameters).predict_log_proba(X)
    np.testing.assert_allclose(found, log_prob(kind, parameters, X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_the_gradient_by_differences(kind, parameters, examples):
    X, y = examples
    plain = {"optimizer": "constant", "l1": 0.0, "max_norm": None, "label_max_norm": None, "learning_rate": RATE}
    rest = {"regroup": None} if kind == "infinite" else {}
    model = machine(kind, parameters, objective="discriminative", batch_size=N, device="cpu", **plain, **rest)
    model.partial_fit(X, y)
    after = {
        "weights": model.components_,
        "hidden_bias": model.intercept_hidden_,
        "label_weights": model.label_components_,
        "label_bias": model.intercept_label_,
    }
    for name, now in after.items():
        slope = (parameters[name] - now[: len(parameters[name])]) / RATE
        np.testing.assert_allclose(slope, differences(kind, parameters, name, X, y), atol=1e-6, err_msg=name)


def differences(kind, parameters, name, X, y, step=1e-5):
    """The gradient of the mean of -ln p(y | v)."""
    found = np.empty_like(parameters[name])
    for at in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = parameters | {name: parameters[name].copy()}
            moved[name][at] += sign * step
            ends.append(-log_prob(kind, moved, X)[np.arange(N), y].mean())
        found[at] = (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.mark.parametrize(
    ("kind", "usual"), [(KINDS["infinite"], InfiniteRBMClassifier), (KINDS["fixed"], RBMClassifier)]
)
def test_of_pixels_that_are_0_or_1_comes_what_the_library_has(kind, usual):
    digits = data.load("digits")
    X, y = digits.train.X, digits.train.y
    of = [
        one(n_iter=2, batch_size=50, random_state=0, device="cpu").fit(pixels, y)
        for one, pixels in ((kind, X.astype(np.float32)), (usual, X))
    ]
    assert np.array_equal(of[0].components_, of[1].components_)
    assert np.array_equal(*(model.predict_proba(digits.test.X) for model in of))


@pytest.mark.parametrize("kind", KINDS)
def test_the_data_of_a_hybrid_step_are_intensities_and_what_chains_draw_is_not(kind, parameters, examples):
    """Visible biases move by the data's mean less that of N drawn rows of 0 and 1."""
    X, y = examples
    plain = {"optimizer": "constant", "learning_rate": RATE, "alpha": 0.5, "batch_size": N, "gibbs_steps": 1}
    rest = {"regroup": None} if kind == "infinite" else {}
    model = machine(kind, parameters, objective="hybrid", persistent=False, device="cpu", **plain, **rest)
    moved_D = model.partial_fit(X, y).intercept_visible_ - parameters["visible_bias"]
    drawn_D = N * (X.mean(0) - moved_D / (0.5 * RATE))
    np.testing.assert_allclose(drawn_D, np.round(drawn_D), atol=1e-5)
    assert ((drawn_D > -0.5) & (drawn_D < N + 0.5)).all()


@pytest.mark.parametrize("wrong", [-0.01, 1.01])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_other_numbers_are_refused(wrong, form, parameters, examples):
    X, y = examples
    X[2, 3] = wrong
    with pytest.raises(ValueError, match=r"from 0 to 1, got -?[01]\.01 "):
        machine("infinite", parameters).partial_fit(form(X), y)


def test_they_are_not_cut(parameters, examples):
    X, y = examples
    with pytest.raises(ValueError, match=r"binarize .* 0\.5"):
        machine("infinite", parameters, binarize=0.5).partial_fit(X, y)


def test_sparse_ones_are_the_same(parameters, examples):
    X, _ = examples
    X[X < 0.3] = 0
    model = machine("infinite", parameters)
    assert np.array_equal(model.predict_proba(sparse.csr_matrix(X)), model.predict_proba(X))


def test_intensities_lie_as_drawn_pixels_do():
    if not REAL_DATA or not all((Path(REAL_DATA) / source.file).is_file() for source in data.SOURCES["mnist"]):
        pytest.skip("needs IRBM_DATA=<folder> with the real files of mnist")
    drawn, found = data.load("mnist"), classification.load(INTENSITIES)
    for split in ("train", "validation", "test"):
        ours, theirs = getattr(found, split), getattr(drawn, split)
        assert np.array_equal(ours.y, theirs.y)
        assert ours.X.dtype == np.float32
        assert (ours.X.min(), ours.X.max()) == (0, 1)
        assert (theirs.X[ours.X == 1] == 1).all()
        assert (theirs.X[ours.X == 0] == 0).all()
    assert found.name == INTENSITIES
    assert "intensities" in found.note
