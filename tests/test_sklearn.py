"""scikit-learn's manners: its own checks, its tools around our estimators, and bad input before any work."""

import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import irbm
from irbm.training import Settings, Trainer

DENSITIES = [irbm.RBM, irbm.OrderedRBM, irbm.InfiniteRBM]
CLASSIFIERS = [irbm.RBMClassifier, irbm.InfiniteRBMClassifier]
ALL = [*DENSITIES, *CLASSIFIERS]
SIZED = [irbm.RBM, irbm.OrderedRBM, irbm.RBMClassifier]
GROWING = [irbm.InfiniteRBM, irbm.InfiniteRBMClassifier]

rng = np.random.default_rng(0)
X = (rng.random((60, 12)) < 0.4).astype(np.float64)
Y = np.array(["ash", "birch", "cedar"])[X[:, :3].argmax(1)]


# scikit-learn casts labels to integers before it looks for NaN among them.
CAST = "ignore:invalid value encountered in cast:RuntimeWarning:sklearn"

pytestmark = pytest.mark.usefixtures("one_thread")


def build(cls, **more):
    """Small and quick; ``more`` wins."""
    settings = {"n_iter": 2, "batch_size": 20, "gibbs_steps": 1, "random_state": 0, "device": "cpu"}
    if cls in SIZED:
        settings["n_components"] = 4
    return cls(**(settings | more))


def fit(model, X=X, Y=Y):
    return model.fit(X, Y) if isinstance(model, tuple(CLASSIFIERS)) else model.fit(X)


def partial_fit(model, X=X, Y=Y, **more):
    return model.partial_fit(X, Y, **more) if isinstance(model, tuple(CLASSIFIERS)) else model.partial_fit(X)


def parameters(model):
    names = ["components_", "intercept_hidden_", "intercept_visible_"]
    if isinstance(model, tuple(CLASSIFIERS)):
        names += ["label_components_", "intercept_label_"]
    return [getattr(model, name) for name in names]


def assert_same_parameters(a, b):
    for ours, theirs in zip(parameters(a), parameters(b), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


# -- scikit-learn's own checks ------------------------------------------------------------------------------


@pytest.mark.filterwarnings(CAST)
@parametrize_with_checks([cls(n_iter=2, binarize=0.0) for cls in [*ALL, irbm.FrankWolfeRBM]])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", [*ALL, irbm.FrankWolfeRBM])
def test_nothing_is_skipped(cls):
    tags = cls().__sklearn_tags__()
    assert not tags._skip_test
    assert not tags.no_validation
    assert not tags.non_deterministic
    assert tags.classifier_tags is None or tags.classifier_tags.poor_score


# -- scikit-learn's tools -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_clone_and_settings(cls):
    model = fit(build(cls, learning_rate=0.02, l1=0.5))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "n_features_in_")
    assert_same_parameters(fit(copy), model)
    assert copy.set_params(l1=0.0).l1 == 0.0
    assert "learning_rate=0.02" in repr(model)


@pytest.mark.parametrize("cls", ALL)
def test_settings_are_stored_untouched(cls):
    """Nothing is checked or changed before fit, and fit changes none."""
    odd = {"learning_rate": -3, "n_iter": "many", "binarize": [1]}
    assert cls(**odd).get_params().items() >= odd.items()
    model = build(cls)
    before = model.get_params()
    assert fit(model).get_params() == before


@pytest.mark.parametrize("cls", DENSITIES)
def test_a_density_model_in_a_pipeline(cls):
    pipeline = Pipeline([("features", build(cls)), ("classifier", LogisticRegression(max_iter=500))])
    assert pipeline.fit(X, Y).predict(X).shape == (60,)
    features = build(cls).fit(X).transform(X)
    np.testing.assert_array_equal(pipeline[:-1].transform(X), features)
    assert list(pipeline[:-1].get_feature_names_out()) == [
        f"{cls.__name__.lower()}{i}" for i in range(features.shape[1])
    ]


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_a_classifier_in_a_pipeline(cls):
    pipeline = Pipeline([("scale", MinMaxScaler()), ("classifier", build(cls, binarize=0.5))])
    assert pipeline.fit(X * 7 + 3, Y).classes_.tolist() == ["ash", "birch", "cedar"]
    np.testing.assert_array_equal(pipeline.predict(X * 7 + 3), fit(build(cls)).predict(X))


@pytest.mark.parametrize("cls", ALL)
def test_a_grid_search(cls):
    grid = {"learning_rate": [0.01, 0.2], "gibbs_steps": np.array([1, 2])}
    search = GridSearchCV(build(cls), grid, cv=2)
    search.fit(X, Y if cls in CLASSIFIERS else None)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    if cls in DENSITIES:  # six steps do not change what a classifier says
        assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.best_estimator_.n_features_in_ == 12


def test_cross_validation_scores_are_log_likelihoods():
    scores = cross_val_score(build(irbm.RBM, n_components=3), X, cv=3)
    # 12 bits: a uniform guess has -12 ln 2 = -8.3; a model that trained for six steps is near it.
    assert ((scores > -12) & (scores < -6)).all()


@pytest.mark.parametrize("cls", ALL)
def test_a_pickled_model_goes_on_where_it_was(cls):
    model = fit(build(cls, momentum=True))
    again = pickle.loads(pickle.dumps(model))
    assert_same_parameters(again, model)
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    for _ in range(2):
        assert partial_fit(again) is again
        partial_fit(model)
    assert_same_parameters(again, model)
    assert len(again.history_) == 4
    if cls in CLASSIFIERS:
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("format", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("cls", ALL)
def test_sparse_input_is_dense_input(cls, format):
    dense, thin = fit(build(cls)), fit(build(cls), format(X))
    assert_same_parameters(thin, dense)
    np.testing.assert_array_equal(thin.transform(format(X)), dense.transform(X))
    np.testing.assert_array_equal(thin.score_samples(format(X)), dense.score_samples(X))
    assert_same_parameters(partial_fit(thin, format(X)), partial_fit(dense))


@pytest.mark.parametrize("kind", [np.float32, np.uint8, bool, np.int64, torch.float32, torch.uint8, torch.bool])
@pytest.mark.parametrize("cls", ALL)
def test_every_type_of_input_trains_the_same(cls, kind):
    other = torch.tensor(X).to(kind) if isinstance(kind, torch.dtype) else X.astype(kind)
    assert_same_parameters(fit(build(cls), other), fit(build(cls)))


@pytest.mark.parametrize("cls", ALL)
def test_float32_is_kept(cls):
    model = fit(build(cls), X.astype(np.float32))
    assert all(array.dtype == np.float32 for array in parameters(model))
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    assert model.transform(X).dtype == np.float64
    np.testing.assert_allclose(model.transform(X.astype(np.float32)), model.transform(X), atol=1e-6)


@pytest.mark.parametrize("cls", ALL)
def test_binarize(cls):
    grey = X * 0.6 + 0.2
    assert_same_parameters(fit(build(cls, binarize=0.5), grey), fit(build(cls)))
    assert_same_parameters(fit(build(cls, binarize=0.5), sparse.csr_matrix(grey)), fit(build(cls)))


@pytest.mark.parametrize("cls", ALL)
def test_pandas_output(cls):
    pandas = pytest.importorskip("pandas")
    frame = fit(build(cls).set_output(transform="pandas")).transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns[0] == f"{cls.__name__.lower()}0"


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, -1, 7], [2.5, 0.5, 1.5], [True, False, True]])
def test_labels_of_every_kind_come_back(cls, labels):
    y = np.array(labels)[rng.integers(0, 3, 60)]
    if y.dtype.kind == "f":
        with pytest.raises(ValueError, match="continuous"):
            fit(build(cls), Y=y)
        return
    model = fit(build(cls), Y=y)
    assert model.classes_.tolist() == sorted(set(labels))
    assert model.predict(X).dtype == y.dtype
    assert_same_parameters(model, fit(build(cls), Y=np.unique(y, return_inverse=True)[1]))


@pytest.mark.parametrize("cls", ALL)
def test_the_first_partial_fit_is_a_fit_of_one_epoch(cls):
    classes = {"classes": ["cedar", "ash", "birch"]} if cls in CLASSIFIERS else {}
    assert_same_parameters(partial_fit(build(cls), **classes), fit(build(cls, n_iter=1)))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_partial_fit_learns_classes_it_has_not_seen_yet(cls):
    model = build(cls)
    model.partial_fit(X[Y == "ash"], Y[Y == "ash"], classes=["birch", "ash", "cedar"])
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert set(model.predict(X)) == {"ash"}
    for _ in range(20):
        model.partial_fit(X[Y != "ash"], Y[Y != "ash"], classes=["cedar", "ash", "birch"])
    assert set(model.predict(X)) & {"birch", "cedar"}


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.fixture
def no_training(monkeypatch):
    """Entering the trainer fails the test."""
    monkeypatch.setattr(Trainer, "__init__", lambda self, *_, **__: pytest.fail("a trainer was made"))
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))


NO_COUNT = [0, -1, 1.5, "3", None, True, float("nan")]
NO_RATE = [0, -0.1, float("nan"), float("inf"), "fast", None, True]
NO_WEIGHT = [-1e-9, float("nan"), float("inf"), "much", None]
NO_BOUND = [0, -1.0, float("nan"), float("inf"), "tight"]
BAD = {
    "n_iter": NO_COUNT,
    "batch_size": NO_COUNT,
    "gibbs_steps": NO_COUNT,
    "n_chains": [0, -5, 2.5, "all"],
    "learning_rate": NO_RATE,
    "optimizer": ["adam", None, 3],
    "momentum": [0.9, "yes", None],
    "averaging": [0, -1, 2.5, "all", True],
    "persistent": [1, "yes", None],
    "gradient": ["exact", None],
    "l1": NO_WEIGHT,
    "l2": NO_WEIGHT,
    "max_norm": NO_BOUND,
    "binarize": [float("nan"), float("inf"), "half"],
    "device": ["abacus", 7],
}
BAD_SIZED = {"n_components": NO_COUNT}
BAD_GROWING = {
    "beta": [1.0, 0.5, -1.0, float("nan"), float("inf")],
    "penalty": ["linear", None],
    "regroup": ["random", -0.1, 1.1, float("nan"), True],
    "max_components": [0, -1, 2.5, "all"],
}
BAD_ORDERED = {"beta": [0, -1.0, float("nan"), float("inf")], "penalty": ["linear", None]}
BAD_LABELLED = {
    "objective": ["accuracy", None],
    "alpha": NO_WEIGHT,
    "label_max_norm": NO_BOUND,
}
BAD_AVERAGED = {"n_permutations": [0, -1, 2.5, "all", True]}


def bad_settings():
    for cls in ALL:
        bad = dict(BAD)
        bad |= BAD_SIZED if cls in SIZED else {}
        bad |= BAD_GROWING if cls in GROWING else {}
        bad |= BAD_ORDERED if cls is irbm.OrderedRBM else {}
        bad |= BAD_LABELLED if cls in CLASSIFIERS else {}
        bad |= BAD_AVERAGED if cls is irbm.InfiniteRBMClassifier else {}
        for name, values in bad.items():
            for value in values:
                yield pytest.param(cls, name, value, id=f"{cls.__name__}-{name}={value!r}")


def test_every_setting_is_among_the_bad_ones():
    known = {*BAD, *BAD_SIZED, *BAD_GROWING, *BAD_ORDERED, *BAD_LABELLED, *BAD_AVERAGED}
    settings = {f.name for cls in ALL for f in fields(cls)} | {f.name for f in fields(Settings)}
    assert settings - known == {"random_state", "verbose"}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("cls", "name", "value"), list(bad_settings()))
def test_a_bad_setting_is_refused_before_any_work(cls, name, value):
    """A ValueError that names the setting and the value, from fit and from partial_fit."""
    message = rf"{name}\b.*{value!r}"
    with pytest.raises(ValueError, match=message):
        fit(build(cls, **{name: value}))
    with pytest.raises(ValueError, match=message):
        partial_fit(build(cls, **{name: value}), **({"classes": np.unique(Y)} if cls in CLASSIFIERS else {}))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (irbm.InfiniteRBM, "beta", "1.01"),
        (irbm.InfiniteRBM, "beta", None),
        (irbm.OrderedRBM, "beta", "1.01"),
        (irbm.InfiniteRBM, "beta", 10**400),
        (irbm.RBM, "learning_rate", 10**400),
    ],
)
def test_a_setting_of_another_type_is_refused(cls, name, value):
    with pytest.raises(ValueError, match=name):
        fit(build(cls, **{name: value}))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("cls", ALL)
def test_chains_need_persistence(cls):
    with pytest.raises(ValueError, match="n_chains=30 needs persistent=True"):
        fit(build(cls, n_chains=30, persistent=False))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("value", ["x", -1, 2**40, 1.5])
def test_a_bad_seed_is_refused(value):
    with pytest.raises(ValueError, match=r"[Ss]eed"):
        fit(build(irbm.InfiniteRBM, random_state=value))


BAD_X = {
    "grey": (X * 0.5, "must hold only 0 and 1, got 0.5.*binarize"),
    "twos": (X * 2, "must hold only 0 and 1, got 2.*binarize"),
    "negative": (X - 1, "must hold only 0 and 1, got -1.*binarize"),
    "sparse twos": (sparse.csr_matrix(X * 2), "must hold only 0 and 1"),
    "NaN": (np.where(X, np.nan, 0.0), "NaN"),
    "infinity": (np.where(X, np.inf, 0.0), "infinity"),
    "no rows": (X[:0], "0 sample"),
    "no columns": (X[:, :0], "0 feature"),
    "one-dimensional": (X[0], "2D array"),
    "three-dimensional": (X[None], "dim 3"),
    "words": (np.full((60, 12), "a"), "numeric|could not convert"),
    "complex": (X * 1j, "[Cc]omplex"),
}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", BAD_X)
@pytest.mark.parametrize("cls", ALL)
def test_bad_examples_are_refused_before_any_work(cls, name):
    examples, message = BAD_X[name]
    with pytest.raises(ValueError, match=message):
        fit(build(cls), examples)
    with pytest.raises(ValueError, match=message):
        partial_fit(build(cls), examples, **({"classes": np.unique(Y)} if cls in CLASSIFIERS else {}))


@pytest.mark.parametrize("cls", ALL)
def test_another_width_is_refused(cls, monkeypatch):
    model = fit(build(cls))
    before = parameters(model)
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
    for wrong in (X[:, :5], np.hstack([X, X])):
        with pytest.raises(ValueError, match=f"{wrong.shape[1]} features.*expecting 12"):
            partial_fit(model, wrong)
    assert all(map(np.array_equal, parameters(model), before))


BAD_Y = {
    "none": (None, "y.*None"),
    "too few": (Y[:5], r"inconsistent.*\[60, 5\]"),
    "fractions": (np.linspace(0, 1, 60), "continuous"),
    "NaN": (np.where(X[:, 0] > 0, np.nan, 1.0), "NaN"),
    "two columns": (np.stack([X[:, 0], X[:, 1]], 1), "1d array"),
}


@pytest.mark.filterwarnings(CAST)
@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", BAD_Y)
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_bad_labels_are_refused_before_any_work(cls, name):
    labels, message = BAD_Y[name]
    with pytest.raises(ValueError, match=message):
        fit(build(cls), Y=labels)
    with pytest.raises(ValueError, match=message):
        build(cls).partial_fit(X, labels, classes=np.unique(Y))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_classes_must_come_with_the_first_call(cls):
    with pytest.raises(ValueError, match="classes must be given at the first call"):
        build(cls).partial_fit(X, Y)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_unseen_labels_are_refused(cls, monkeypatch):
    model = fit(build(cls))
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
    for labels, named in ((np.where(Y == "ash", "yew", Y), "yew"), (np.arange(60) % 2, "[01]")):
        with pytest.raises(ValueError, match=f"labels unseen before, such as .*{named}.*ash"):
            model.partial_fit(X, labels)
    with pytest.raises(ValueError, match=r"labels unseen before, such as .*cedar"):
        build(cls).partial_fit(X, Y, classes=["ash", "birch"])
    with pytest.raises(ValueError, match=r"classes must be those of the first call, .*ash.*, got .*yew"):
        model.partial_fit(X, Y, classes=["ash", "birch", "cedar", "yew"])


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_no_classes_are_refused(cls):
    with pytest.raises(ValueError, match="classes"):
        build(cls).partial_fit(X, Y, classes=[])


@pytest.mark.parametrize("cls", ALL)
def test_a_refused_fit_leaves_the_old_one(cls):
    model = fit(build(cls))
    before = parameters(model)
    with pytest.raises(ValueError, match="learning_rate"):
        fit(model.set_params(learning_rate=-1))
    assert all(map(np.array_equal, parameters(model), before))


def refused_by_value(model, **_):
    with pytest.raises(ValueError, match="only 0 and 1"):
        fit(model, X[:, :5] * 2)


def refused_by_labels(model, **_):
    with pytest.raises(ValueError, match="inconsistent"):
        fit(model, X[:, :5], Y[:3])


def refused_by_validation(model, **_):
    with pytest.raises(ValueError, match=r"12 features.*expecting 5"):
        model.fit(X[:, :5], Y, validation=(X, Y) if isinstance(model, tuple(CLASSIFIERS)) else X)


def failed_in_training(model, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, X[:, :5])


def fits_that_fail():
    for cls in ALL:
        for fails in (refused_by_value, refused_by_validation, failed_in_training):
            yield cls, fails
    for cls in CLASSIFIERS:
        yield cls, refused_by_labels


@pytest.mark.parametrize(("cls", "fails"), list(fits_that_fail()))
def test_a_fit_that_fails_leaves_a_model_of_the_columns_it_had(cls, fails, monkeypatch):
    model = fit(build(cls))
    before = model.transform(X)
    fails(model, monkeypatch=monkeypatch)
    assert model.n_features_in_ == 12
    np.testing.assert_array_equal(model.transform(X), before)
    with pytest.raises(ValueError, match=r"5 features.*expecting 12"):
        model.transform(X[:, :5])


def test_a_refused_fit_leaves_the_names_of_the_columns():
    pandas = pytest.importorskip("pandas")
    model = build(irbm.RBM).fit(pandas.DataFrame(X, columns=[f"c{i}" for i in range(12)]))
    for other in (pandas.DataFrame(2 * X, columns=[f"d{i}" for i in range(12)]), 2 * X):
        with pytest.raises(ValueError, match="only 0 and 1"):
            model.fit(other)
        assert list(model.feature_names_in_) == [f"c{i}" for i in range(12)]
