"""Runs of table 2: cut off, continued, and when they look at the test split."""

import numpy as np
import pytest

from irbm.estimators import InfiniteRBMClassifier
from irbm.experiments import classification
from irbm.experiments.classification import (
    cooled,
    is_done,
    labels_of,
    load,
    merged,
    settings_of,
    shifted,
    train,
)
from irbm.experiments.results import known_runs, write_json
from irbm.experiments.search import ranked, untried

EPOCHS = {"n_iter": 3}


@pytest.fixture(scope="module")
def whole():
    return train("digits", "hybrid", 0, device="cpu", changes=EPOCHS)


def test_a_run_that_time_cut_off_goes_on_to_the_same_end_and_only_then_looks_at_the_test_split(whole, tmp_path):
    cut = {"device": "cpu", "changes": EPOCHS, "checkpoints": tmp_path, "final": False}
    first = train("digits", "hybrid", 0, seconds=1e-6, **cut)
    assert not first["finished"]
    assert first["epochs"] < 3
    assert not any(name.startswith("test") for name in first)
    second = train("digits", "hybrid", 0, **cut)
    assert second["finished"]
    assert first["validation_errors"] == whole["validation_errors"][: first["epochs"]]
    for name in ("validation_errors", "sizes", "best_epoch", "test_error", "test_error_5_orders"):
        assert second[name] == whole[name], name


def test_a_run_cut_off_for_good_looks_at_the_test_split():
    run = train("digits", "hybrid", 0, device="cpu", changes=EPOCHS, seconds=1e-6)
    assert not run["finished"]
    assert run["test_error"]["n"] == 296


def test_a_trial_on_some_rows_does_not():
    run = train("digits", "classrbm", 0, device="cpu", changes={"n_iter": 1}, rows=100)
    assert run["finished"]
    assert run["n_components"] == 500
    assert not any(name.startswith("test") for name in run)


def test_a_file_of_runs_keeps_the_others_and_knows_what_is_done(whole, tmp_path):
    other = whole | {"seed": 1}
    write_json(tmp_path / "runs.json", {"runs": merged([other], whole)})
    kept = known_runs(tmp_path / "runs.json")
    assert [run["seed"] for run in kept] == [0, 1]
    assert merged(kept, other | {"epochs": 7})[1]["epochs"] == 7
    wanted = ("hybrid", 0, settings_of("digits", "hybrid", **EPOCHS), 1204)
    assert is_done(kept[0], *wanted)
    assert not is_done(kept[1], *wanted)
    assert not is_done(kept[0], "hybrid", 0, settings_of("digits", "hybrid"), 1204)
    assert not is_done({n: v for n, v in kept[0].items() if n != "test_error"}, *wanted)
    assert known_runs(tmp_path / "none.json") == []


def test_flags_win_over_named_settings_and_these_over_the_data_sets():
    assert settings_of("binarized_mnist", "five")["n_iter"] == 5
    assert settings_of("binarized_mnist", "five", n_iter=2, l1=None)["n_iter"] == 2
    assert settings_of("binarized_mnist", "hybrid", l1=None)["l1"] == 1e-4
    assert set(classification.CHANGES) <= set(settings_of("binarized_mnist", "hybrid"))


def test_shifted_images_are_the_images_and_each_moved_by_a_pixel_to_four_sides():
    X = np.array([[1, 0, 1, 0, 1, 1], [0, 0, 0, 0, 0, 1]], dtype=np.uint8)
    moved, labels = shifted(X, np.array([7, 8]), (2, 3))
    np.testing.assert_array_equal(labels, [7, 8] * 5)
    np.testing.assert_array_equal(moved[::2].reshape(5, 2, 3), [
        [[1, 0, 1], [0, 1, 1]],
        [[0, 0, 0], [1, 0, 1]],
        [[0, 1, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 1]],
        [[0, 1, 0], [1, 1, 0]],
    ])  # fmt: skip
    assert not moved[3].any()
    with pytest.raises(ValueError, match="no images"):
        shifted(X, np.array([7, 8]), None)


def test_a_run_on_shifted_images_takes_more_steps_and_says_what_it_learned_from():
    plain, moved = (
        train("digits", "hybrid", 0, device="cpu", changes={"n_iter": 1, "shifts": shifts}, rows=400)
        for shifts in (False, True)
    )
    assert (moved["rows"], moved["settings"]["shifts"]) == (400, True)
    assert moved["validation_error"] < plain["validation_error"]


def test_candidates_are_ranked_by_the_mean_over_their_seeds():
    runs = [
        {"change": {"l1": l1}, "seed": seed, "validation_error": error}
        for l1, seed, error in [(0.1, 1, 0.05), (0.2, 0, 0.04), (0.1, 0, 0.01), (0.2, 1, 0.03)]
    ]
    assert [(run["change"]["l1"], run["seed"]) for run in ranked(runs)] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]


def test_what_a_file_has_is_not_tried_again():
    runs = [{"change": {"l1": 0.1}, "seed": 0}, {"change": {}, "seed": 1}]
    assert untried([{}, {"l1": 0.1}], [0, 1], runs) == [({}, 0), ({"l1": 0.1}, 1)]


def test_cool_passes_follow_at_a_tenth_of_the_rate_and_one_of_them_is_chosen():
    run = train("digits", "hybrid", 0, device="cpu", changes={"n_iter": 2, "cool": 3}, rows=300)
    assert (run["epochs"], len(run["sizes"]), len(run["validation_errors"])) == (5, 5, 3)
    assert run["best_epoch"] in (3, 4, 5)
    assert run["validation_error"] == pytest.approx(run["validation_errors"][run["best_epoch"] - 3], abs=1e-6)
    assert run["validation_errors"][run["best_epoch"] - 3] == min(run["validation_errors"])


def test_the_model_of_the_best_cool_pass_is_the_one_that_is_kept():
    splits = load("digits")
    X, y = splits.train.X[:300], labels_of(splits.train)[:300]
    held = splits.validation.X, labels_of(splits.validation)
    model = InfiniteRBMClassifier(objective="discriminative", learning_rate=0.3, n_iter=1, random_state=0).fit(X, y)
    found = cooled(model, X, y, held, 4)
    assert [row["learning_rate"] for row in found.history] == pytest.approx([0.3, *[0.03] * 4])
    assert found.model.score(*held) == max(found.scores) == found.scores[found.epoch - 2]
    assert len(found.model.history_) == found.epoch
