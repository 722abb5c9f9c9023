"""The page of classifiers says what its files say."""

import json
import shutil
from pathlib import Path

from irbm.experiments import classifiers_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_files(monkeypatch, tmp_path):
    shutil.copytree(ROOT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    classifiers_page.main()
    assert (tmp_path / "docs/classification.md").read_text() == (ROOT / "docs/classification.md").read_text()


def test_errors_are_means_over_the_seeds_of_one_setting(monkeypatch, tmp_path):
    settings = {"objective": "hybrid", "alpha": 0.1, "learning_rate": 0.2, "l1": 0.0}
    run = {"setting": "hybrid", "settings": settings, "n_components": 30, "effective_size": 20.0, "best_epoch": 3,
           "epochs": 9, "device": "cpu", "commit": "abc"}  # fmt: skip
    runs = [
        run | {"seed": seed, "test_error": {"rate": rate}, "test_error_5_orders": {"rate": rate / 2}}
        for seed, rate in enumerate((0.02, 0.04))
    ]
    other, single = ({**runs[0], "settings": settings | {"alpha": alpha}} for alpha in (0.3, 0.5))
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    file = tmp_path / "results/classification_digits.json"
    file.write_text(json.dumps({"dataset": "digits", "runs": [*runs, other, other, single]}))
    monkeypatch.chdir(tmp_path)
    classifiers_page.main()
    text = (tmp_path / "docs/classification.md").read_text()
    assert "| digits | hybrid | 0.1 | 0.2 | 0 | 2 | 30 | 20 | 3 of 9, 3 of 9 | 3.00 ± 1.41 | 1.50 |" in text
    assert "| digits | hybrid | 0.3 | 0.2 | 0 | 2 | 30 | 20 | 3 of 9, 3 of 9 | 2.00 ± 0.00 | 1.00 |" in text
    assert "| digits | hybrid | 0.5 | 0.2 | 0 | 1 | 30 | 20 | 3 of 9 | 2.00 | 1.00 |" in text


def test_digits_have_a_row_for_each_candidate_and_the_first_has_the_test_error():
    of = {
        "runs": [{"test_error": {"rate": rate}} for rate in (0.02, 0.04)],
        "candidates": [
            {"settings": {"l1": 0.1, "shifts": True}, "cross_validation_error": 0.03},
            {"settings": {"l1": 0.2}, "cross_validation_error": 0.05},
        ],
        "baselines": {"linear": {"settings": {"C": 3}, "cross_validation_error": 0.1, "test_error": {"rate": 0.2}}},
        "cross_validation_errors_of_others": {"kernel": 0.07},
    }
    assert list(classifiers_page._digit_rows(of)) == [
        ("infinite RBM, hybrid, RP", "l1 0.1, shifted images too", "3.00", "3.00 ± 1.41 (2 seeds)"),
        ("infinite RBM, hybrid, RP", "l1 0.2", "5.00", ""),
        ("linear", "C 3", "10.00", "20.00"),
        ("kernel", "", "7.00", ""),
    ]
