"""What the digits experiment may see, and how it counts."""

import numpy as np

from irbm import InfiniteRBMClassifier, data
from irbm.experiments import digits_classification as digits


def test_folds_hold_out_every_image_of_train_and_validation_once_and_none_of_test():
    X, y = digits.seen()
    splits = data.load("digits")
    np.testing.assert_array_equal(X, np.concatenate([splits.train.X, splits.validation.X]))
    assert len(y) == 1204 + 297
    held = np.concatenate([held for _, held in digits.folds()])
    assert sorted(held) == list(range(len(y)))
    assert all(not set(kept) & set(held) for kept, held in digits.folds())


def test_errors_of_a_fold_are_the_mean_over_the_last_passes(monkeypatch):
    monkeypatch.setattr(digits, "WARM", 2)
    monkeypatch.setattr(digits, "COOL", 2)
    monkeypatch.setattr(digits, "LOOKS_AT", (1, 2))
    settings = {"alpha": 0.1, "learning_rate": 0.2}
    (X, y), (kept, held) = digits.seen(), digits.folds()[2]
    model = InfiniteRBMClassifier(**digits.COMMON, **settings, n_iter=2, random_state=7, device="cpu")
    model.fit(X[kept], y[kept]).set_params(learning_rate=0.02)
    wrong = [(model.partial_fit(X[kept], y[kept]).predict(X[held]) != y[held]).sum() for _ in range(2)]
    assert wrong[0] != wrong[1]
    assert digits.fold_errors(settings, 2, 7) == np.mean(wrong)


def test_the_best_by_one_seed_are_tried_again_and_the_best_of_them_by_all_seeds_comes_first(monkeypatch):
    rates = {0: {"a": 0.05, "b": 0.04, "c": 0.06, "d": 0.03}, 1: {"b": 0.05, "d": 0.07}, 2: {"b": 0.04, "d": 0.06}}
    monkeypatch.setattr(digits, "CANDIDATES", [{"name": name} for name in "abcd"])
    monkeypatch.setattr(digits, "FINALISTS", 2)
    monkeypatch.setattr(
        digits, "cross_validated", lambda pool, candidates, seed: [rates[seed][c["name"]] for c in candidates]
    )
    found = digits.search(None)
    assert [t["settings"]["name"] for t in found] == ["b", "d", "a", "c"]
    assert found[0]["errors"] == [0.04, 0.05, 0.04]
