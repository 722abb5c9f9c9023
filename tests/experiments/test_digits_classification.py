"""What the digits experiment may see, and how it counts."""

import json
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from irbm import InfiniteRBMClassifier, data
from irbm.experiments import digits_classification as digits

ONE, THREE = digits.INPUTS.values()


def test_folds_hold_out_every_image_of_train_and_validation_once_and_none_of_test():
    X, y = digits.seen(ONE)
    splits = data.load("digits")
    np.testing.assert_array_equal(X, np.concatenate([splits.train.X, splits.validation.X]))
    assert len(y) == 1204 + 297
    held = np.concatenate([held for _, held in digits.folds()])
    assert sorted(held) == list(range(len(y)))
    assert all(not set(kept) & set(held) for kept, held in digits.folds())


def test_three_cuts_are_the_same_images_in_the_same_order():
    X, y = digits.seen(THREE)
    once, labels = digits.seen(ONE)
    np.testing.assert_array_equal(y, labels)
    low, middle, high = X.reshape(len(X), 3, 64).swapaxes(0, 1)
    np.testing.assert_array_equal(middle, once)
    assert (low >= middle).all()
    assert (middle >= high).all()
    assert (low > middle).any()
    assert (middle > high).any()


def test_images_are_shifted_plane_by_plane_where_the_settings_say_so():
    X, y = digits.seen(THREE)
    moved, labels, others = digits.shown(X[:2], y[:2], {"shifts": True, "C": 3})
    assert others == {"C": 3}
    np.testing.assert_array_equal(labels, np.tile(y[:2], 5))
    planes = X[:2].reshape(2, 3, 8, 8)
    np.testing.assert_array_equal(moved[2:4].reshape(2, 3, 8, 8)[:, :, 1:], planes[:, :, :-1])
    assert digits.shown(X, y, {"C": 3})[0] is X
    assert digits.passes({"shifts": True}) == (digits.WARM // 2, digits.COOL // 2)


def test_errors_of_a_fold_are_the_mean_over_the_last_passes(monkeypatch):
    monkeypatch.setattr(digits, "WARM", 2)
    monkeypatch.setattr(digits, "COOL", 4)
    settings = {"alpha": 0.1, "learning_rate": 0.2}
    (X, y), (kept, held) = digits.seen(ONE), digits.folds()[2]
    model = InfiniteRBMClassifier(**digits.COMMON, **settings, n_iter=2, random_state=7, device="cpu")
    model.fit(X[kept], y[kept]).set_params(learning_rate=0.02)
    wrong = [(model.partial_fit(X[kept], y[kept]).predict(X[held]) != y[held]).sum() for _ in range(4)]
    assert wrong[2] != wrong[3]
    assert digits.fold_errors(ONE, settings, 2, 7) == np.mean(wrong[2:])


class Here:
    """A pool that does the work where it stands, and says what it was asked for."""

    def __init__(self, results):
        self.results, self.asked = results, []

    def submit(self, function, cuts, settings, fold, seed):
        self.asked.append((settings["name"], fold, seed))
        job = Future()
        job.set_result(self.results[settings["name"]])
        return job


def test_the_setting_with_the_fewest_errors_over_the_folds_comes_first_and_folds_have_seeds_of_their_own():
    pool = Here({"a": 3.0, "b": 1.5, "c": 2.0})
    candidates = [{"name": name} for name in "abc"]
    found = digits.search(pool, ONE, candidates)
    assert [t["settings"]["name"] for t in found] == ["b", "c", "a"]
    assert found[0]["cross_validation_error"] == pytest.approx(5 * 1.5 / 1501)
    assert pool.asked == [(name, fold, fold) for name in "abc" for fold in range(5)]


def test_a_search_is_not_repeated_for_the_same_candidates(tmp_path):
    assert digits.known_inputs(str(tmp_path / "none.json")) == {}
    candidates = [{"l1": 0.1}, {"l1": 0.2}]
    known = {"candidates": [{"settings": c, "cross_validation_error": 0.1} for c in reversed(candidates)]}
    (tmp_path / "found.json").write_text(json.dumps({"inputs": {"one cut": known}}))
    known = digits.known_inputs(str(tmp_path / "found.json"))["one cut"]
    assert digits.searched(known, candidates)
    assert not digits.searched(known, [{"l1": 0.1}, {"l1": 0.3}])
    assert not digits.searched(known, candidates[:1])
    assert not digits.searched({}, candidates)


def test_what_is_known_is_kept_and_only_the_rest_is_done(monkeypatch):
    done, saved = [], []
    monkeypatch.setattr(digits, "landmarks", lambda cuts: {})
    monkeypatch.setattr(digits, "best_logistic", lambda pool, cuts, kinds: done.append(kinds) or {"kinds": kinds})
    monkeypatch.setattr(digits, "final", lambda cuts, settings, seed: done.append(seed) or {"seed": seed})
    known = next(iter(digits.BASELINES))
    found = {
        "candidates": [{"settings": {"l1": 0.1}}, {"settings": {"l1": 0.2}}],
        "baselines": {known: "kept"},
        "runs": [{"seed": 1}],
    }
    with ThreadPoolExecutor(1) as pool:
        digits.compared(pool, ONE, found, 3, lambda: saved.append(len(found["runs"])))
    assert done == [digits.FEATURES, 0, 2]
    assert found["baselines"][known] == "kept"
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]
    assert found["chosen"]["l1"] == 0.1
    assert saved[-1] == 3
    assert len(saved) == 3
