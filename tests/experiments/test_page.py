"""The page of results and the README's table: from nothing, from quick results, from made-up ones."""

import json
import re

import pytest
from scipy import stats

from irbm.experiments import fig7, page, table1, table2
from irbm.experiments.lab import Lab
from irbm.experiments.reproduce import EXPERIMENTS, reproduce
from irbm.experiments.results import against, short

README = f"# irbm\n\nbefore\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n"
LOOK = """
[fig8]
date = "{date}"
agrees = "mostly"
verdict = '''
but for
the ones'''
words = '''
Strokes,
and ones.

A second paragraph,
- an item
  of two lines, or
-2,
- another.'''
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "results").mkdir()
    return tmp_path


def written(root):
    page.write(root / "results", root)
    return (root / "docs" / "results.md").read_text(), (root / "README.md").read_text()


def result(name, **more):
    stamp = {"device": "a GPU", "commit": "abc", "date": "2026-01-02T03:04:05", "wall_seconds": 61.0}
    stamp |= {"training_seconds": 40.0}
    return {"name": name, "quick": False, "notes": {"binarized_mnist": "50,000 train"}, "seeds": [0], **stamp, **more}


def row(model, value, reliable, rates=(0.05,)):
    test = {"value": value, "lower": value - 0.3, "upper": value + 0.2, "reliable": reliable, "reason": ""}
    about = {"dataset": "binarized_mnist", "model": model, "seed": 0, "epoch": 800, "epochs": 1000}
    seen = [
        {"learning_rate": rate, "l1": 1e-4, "epoch": epoch, "lower": value - 2}
        for rate in rates
        for epoch in (400, 800)
    ]
    looked = {"budget": 16000, "validation": seen, "settings": {"learning_rate": rates[0], "l1": 1e-4}}
    looked |= {"log_partition": {"trials": []}, "wall_seconds": 12.5, "device": "a GPU", "commit": "abc"}
    return {**about, **looked, "n_components": 700, "after_pruning": 640, "effective_size": 610.4, "test": test}


def test_what_is_missing_is_called_not_run_yet(root):
    text, readme = written(root)
    for name, experiment in EXPERIMENTS.items():
        assert f"## {experiment.TITLE}\n\nNot run yet: `irbm reproduce {name}`." in text
    assert readme.count("not run yet") == 2
    assert readme.startswith("# irbm\n\nbefore\n")
    assert readme.endswith("after\n")
    assert "old" not in readme
    assert written(root)[1] == readme


def test_table_1_stands_beside_the_papers(root):
    rows = [row("iRBM RP", -86.0, True), row("RBM", -90.5, True, (0.05, 0.1)), row("iRBM", -85.9, False)]
    rows[1] |= {"chosen_at": None}  # of a file that does not say
    rows[2] |= {"budget": 8000, "wall_seconds": 40.6, "trained_at": "0123456789ab", "trained_on": "another GPU"}
    rows[2]["validation"][0]["epoch"] = 0
    effort = {"binarized_mnist": {"candidates": [200, 400], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=rows, effort=effort)
    (root / "results" / "table1.json").write_text(json.dumps(found))
    text, readme = written(root)
    assert (
        "| iRBM RP | 0 | 0.05, 0.0001 | 700 | 640 | 610 | 800 of 1000 | -86.00 | [-86.30, -85.80] | reliable | "
        "-85.81 (674) | -0.19 | a GPU, abc |" in text
    )
    assert "| -86.34 (500) | -4.16 | a GPU, an earlier build |" in text
    assert "| (-85.90) | [-86.20, -85.70] | not reliable | -85.65 (1208) | -0.25 | another GPU, 0123456 |" in text
    assert "| binarized MNIST | iRBM RP | -86.00, 1 | 1 of 1 | above (1 of 1) | level (1 of 1) |  |" in text
    assert "| binarized MNIST | iRBM | (-85.90), 1 | 0 of 1 |  |  |  |" in text
    assert "chooses among the epochs 400, 800; 0, 800 (iRBM) by" in text
    assert "likelihoods of the test split have budgets of 16000; 8000 (iRBM)." in text
    assert "where the paper names none: RBM among (0.05, 0.0001) and (0.1, 0.0001)." in text
    kept = "machines kept from an earlier build, 0123456789ab on another GPU"
    assert f"on a GPU, commit abc ({kept}), 2026-01-02; 12 to 41 s a row, " in text
    assert "all trainings 40 s." in text
    assert "binarized MNIST: 50,000 train.*" in text
    assert "iRBM RP: test log-likelihood | -85.81 | -86.00, 1 | -86.00 [-86.30, -85.80] | 1 of 1 |" in readme
    assert ", iRBM: test log-likelihood | -85.65 | (-85.90), 1 | (-85.90) [-86.20, -85.70] | 0 of 1 |" in readme
    assert table1.BEST not in text, "with one seed there is nothing to choose"


def test_rows_that_the_command_alone_did_not_make_say_so(root):
    rows = [row(model, -86.0, True) | {"place": ["digits", model, 0]} for model in ("iRBM RP", "RBM", "iRBM")]
    for r in rows[:2]:
        r["note"] = "copied from elsewhere"
    effort = {"binarized_mnist": {"candidates": [200, 400], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=rows, effort=effort)
    (root / "results" / "table1.json").write_text(json.dumps(found))
    assert "50,000 train. digits iRBM RP 0, digits RBM 0: copied from elsewhere.*" in written(root)[0]


def test_table_1_counts_seeds(root):
    rows = [row("iRBM RP", -86.0, True), row("RBM", -90.5, True), row("iRBM", -85.9, True)]
    again = [row("iRBM RP", -88.0, True), row("RBM", -90.5, False), row("iRBM", -89.0, True)]
    rows += [r | {"seed": 1} for r in again]
    effort = {"binarized_mnist": {"candidates": [200, 400], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=rows, effort=effort, seeds=[0, 1])
    (root / "results" / "table1.json").write_text(json.dumps(found))
    text, readme = written(root)
    beside = "above (2 of 2) | level (1 of 2), above (1 of 2) |  |"
    assert f"| binarized MNIST | iRBM RP | -87.00, 2 | 2 of 2 | {beside}" in text
    assert "| binarized MNIST | RBM | (-90.50), 2 | 1 of 2 |  |  |  |" in text
    assert "| binarized MNIST | iRBM | -87.45, 2 | 2 of 2 |  |  |  |" in text
    assert "| -85.81 | -87.00, 2 | -86.00 [-86.30, -85.80] | 2 of 2 |" in readme


def test_table_1_has_the_seed_that_validates_best(root):
    """Not the first, nor the one whose test value is the highest; and the same rule for every model."""
    seeds = {"iRBM RP": (-86.0, -88.0, -87.0), "RBM": (-87.5, -90.0, -86.5)}
    validated = {"iRBM RP": (-89.0, -89.5, -88.0), "RBM": (-90.0, -89.0, -91.0)}
    rows = [
        row(model, value, True) | {"seed": seed} for model, values in seeds.items() for seed, value in enumerate(values)
    ]
    for r in rows:
        for looked in r["validation"]:
            looked["lower"] = validated[r["model"]][r["seed"]] - (looked["epoch"] == 400)
    effort = {"binarized_mnist": {"candidates": [400, 800], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=rows, effort=effort, seeds=[0, 1, 2])
    (root / "results" / "table1.json").write_text(json.dumps(found))
    text, readme = written(root)
    ours = "iRBM RP | 2 | 3 | -87.00 | [-87.30, -86.80] | reliable | -85.81 (674) | -1.19 | above |  |  |"
    assert f"| binarized MNIST | {ours}" in text
    assert table1.BEST in text
    other = "RBM | 1 | 3 | -90.00 | [-90.30, -89.80] | reliable | -86.34 (500) | -3.66 |  |  |  |"
    assert f"| binarized MNIST | {other}" in text
    assert "| -85.81 | -87.00, 3 | -87.00 [-87.30, -86.80] | 3 of 3 |" in readme


def trial(side, name, n_points, value):
    about = {"side": side, "name": name, "n_points": n_points, "n_chains": 400}
    return {**about, "value": value, "stderr": 0.05, "ess": 99.6}


def test_table_1_tells_how_ln_z_of_rp_was_found(root):
    ours, other = row("iRBM RP", -86.0, False), row("RBM", -90.5, True)
    first = [trial("forward", "base of means", 500, 9.5), trial("forward", "base of means, deep z", 500, 9.7)]
    trials = [*first, trial("reverse", "chains", 500, 10.4), trial("forward", "base of means", 1000, 9.9)]
    trials += [trial("reverse", "chains", 1000, 10.1), trial("reverse", "tempering", 1000, 10.2)]
    ours["log_partition"] = {"value": 9.9, "lower": 9.7, "upper": 10.2, "trials": trials}
    ours["test"]["stderr_of_examples"] = 0.21
    effort = {"binarized_mnist": {"candidates": [200, 400], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=[ours, other], effort=effort)
    (root / "results" / "table1.json").write_text(json.dumps(found))
    text, _ = written(root)
    assert "| binarized MNIST | iRBM RP | (-86.00), 1 | 0 of 1 | above (1 of 1) |  |  |" in text
    assert text.count("How ln Z of ") == 1  # and none of the RBM, whose row has no trials
    assert "| points | chains | forward | back from chains | back from tempering |" in text
    paths = "base of means: 9.50 ± 0.05 (100); base of means, deep z: 9.70 ± 0.05 (100)"
    assert f"| 500 | 400 | {paths} | 10.40 ± 0.05 (100) |  |" in text
    assert "| 1000 | 400 | base of means: 9.90 ± 0.05 (100) | 10.10 ± 0.05 (100) | 10.20 ± 0.05 (100) |" in text
    assert "So ln Z is 9.90 in [9.70, 10.20]. The mean of -F(v) over the test split is -76.10;" in text
    assert (
        "(-86.00), [-86.30, -85.80], not reliable. The mean over examples has a standard error of its own, 0.21."
        in text
    )


@pytest.mark.parametrize(("value", "told"), [(19.6, False), (30.0, True)])
def test_table_1_tells_of_any_row_whose_first_round_missed_nearly_all(value, told, root):
    ours = row("iRBM RP 1000 chains", -86.0, True)
    trials = [trial("forward", "base of means", 500, 9.5), trial("forward", "base of means, deep z", 500, 9.7)]
    trials += [trial("reverse", "chains", 500, 10.4), trial("forward", "base of means", 1000, value)]
    ours["log_partition"] = {"value": value, "lower": value - 0.2, "upper": value + 0.2, "trials": trials}
    ours["test"]["stderr_of_examples"] = 0.21
    effort = {"binarized_mnist": {"candidates": [200, 400], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=[ours], effort=effort)
    (root / "results" / "table1.json").write_text(json.dumps(found))
    assert ("How ln Z of iRBM RP 1000 chains on binarized MNIST, seed 0, was found" in written(root)[0]) == told


def test_table_2_has_means_and_intervals(root):
    runs = [
        {
            "dataset": "binarized_mnist", "setting": setting, "seed": seed, "test_error": {"rate": rate},
            "test_error_5_orders": {"rate": rate}, "effective_size": 600.0, "n_components": 650,
            "best_epoch": 90, "epochs": 100,
        }
        for setting, rates in {"hybrid": (0.014, 0.015, 0.016), "hybrid_ordinary": (0.017, 0.0145, 0.018)}.items()
        for seed, rate in enumerate(rates)
    ]  # fmt: skip
    found = result("table2", datasets=["binarized_mnist"], runs=runs)
    (root / "results" / "table2.json").write_text(json.dumps(found))
    text, readme = written(root)
    assert "| 1.50 | [1.25, 1.75] | 1.50 | 1.41 (621) | +0.09 |" in text
    assert "hybrid training in 2 of 3 seeds" in text
    assert "commit abc, 2026-01-02; the last call 61 s, all trainings 40 s." in text
    assert "Dis-iRBM RP hybrid: test error, % | 1.41 | 1.50 [1.25, 1.75], 3 |" in readme


def test_the_interval_is_students():
    values = [1.4, 1.5, 1.9, 1.2]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    mean, lower, upper = table2.interval(values)
    assert (lower, upper) == pytest.approx((expected.low, expected.high))
    assert mean == pytest.approx(1.5)


def test_every_section_reads_what_its_experiment_wrote(root, out):
    """Real files, of quick results; as real ones they would lie one folder up."""
    lab = Lab(out=out, quick=True, epochs=2)
    for name in EXPERIMENTS:
        reproduce(name, lab)
    page.write(out / "quick", root)
    text = (root / "docs" / "results.md").read_text()
    assert "Not run yet" not in text
    for name in EXPERIMENTS:
        assert f"](pictures/{name}.png)" in text
        assert (root / "docs" / "pictures" / f"{name}.png").is_file()
    assert not re.search(r"\bnan\b", text)
    page.write(out, root)
    assert "Not run yet" in (root / "docs" / "results.md").read_text(), "quick results are not the page's"


def test_what_was_seen_is_said_of_the_picture_that_was_looked_at_alone(root):
    run = {"dataset": "binarized_mnist", "regroup": None, "seed": 0, "n_components": 9, "neighbour_correlation": 0.5}
    found = result("fig8", datasets=["binarized_mnist"], runs=[run, {**run, "regroup": "adaptive"}])
    (root / "results" / "fig8.json").write_text(json.dumps(found))
    for date, said in ((found["date"], True), ("2025-01-01T00:00:00", False)):
        (root / "results" / "seen.toml").write_text(LOOK.format(date=date))
        text = written(root)[0]
        assert ("Strokes, and ones.\n\nA second paragraph,\n- an item of two lines, or -2,\n- another." in text) is said
        assert (f"| {EXPERIMENTS['fig8'].CLAIM} | **mostly** | but for the ones |" in text) is said
        assert (f"| {EXPERIMENTS['fig8'].CLAIM} |  | not looked at yet |" in text) is not said
        assert text.count("not looked at yet") == len(EXPERIMENTS) - said


def test_the_readme_has_of_our_own_rows_the_one_that_validates_best_and_says_whether_the_paper_agrees(root):
    rows = [
        row("iRBM RP averaged", -85.5, True),
        row("iRBM RP 1000 chains", -87.5, True),
        row("FW-iRBM + CD", -99, True),
    ]
    effort = {"binarized_mnist": {"candidates": [400, 800], "choice_budget": 2000, "full_budget": 16000}}
    found = result("table1", datasets=["binarized_mnist"], rows=rows, effort=effort)
    (root / "results" / "table1.json").write_text(json.dumps(found))
    (root / "results" / "seen.toml").write_text(LOOK.format(date=found["date"]).replace("[fig8]", "[table1]"))
    readme = written(root)[1]
    assert "iRBM RP averaged: test log-likelihood |  | -85.50, 1 | -85.50 [-85.80, -85.30] | 1 of 1 |" in readme
    assert "1000 chains" not in readme
    assert "FW-iRBM" not in readme
    assert f"- {table1.CLAIM} **Mostly**: but for the ones." in readme


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mostly", "perhaps", r"agrees of \[fig8\] in .*seen.toml must be one of yes, .* got 'perhaps'"),
        ("fig8", "fgi8", r"\[fgi8\] in .*seen.toml is the name of no experiment"),
        ("agrees =", "agree =", r"\[fig8\] in .* must have date, agrees, verdict, words and nothing else"),
        ('"{date}"', "2026-01-02", r"date of \[fig8\] in .* must be text in quotes"),
    ],
)
def test_a_look_that_is_none_is_refused(root, old, new, said):
    (root / "results" / "seen.toml").write_text(LOOK.replace(old, new))
    with pytest.raises(ValueError, match=said):
        written(root)


def test_trials_of_momentum_are_a_table(root):
    """Looks without a likelihood are left out."""
    value = {"value": -97.0, "lower": -98.0, "upper": -96.0, "reliable": False, "reason": ""}
    look = {"epoch": 50, "n_components": 760, "effective_size": 732.9, "share_above_regrouped": 0.9999}
    look |= {"mean_log_p_z_up_to_m": -17.3, "validation": value}
    first = {name: value for name, value in look.items() if name != "validation"} | {"epoch": 10}
    last = look | {"epoch": 100, "n_components": 958, "share_above_regrouped": 0.545}
    run = {"dataset": "binarized_mnist", "change": "rate 0.1", "seed": 2, "looks": [first, look, last]}
    found = {"note": "tried", "device": "a GPU", "commit": "abc", "runs": [run]}
    (root / "results" / "momentum_trials.json").write_text(json.dumps(found))
    cells = (
        "50, 100 | 958 | 733 | 100.0%, 54.5% | -17.3, -17.3 | (-97.00), (-97.00) | [-98.00, -96.00] | not reliable |"
    )
    assert f"| binarized MNIST | rate 0.1 | 2 | {cells}" in written(root)[0]


def test_what_is_kept_of_where_a_machine_is_from_is_said():
    """Also where another row is of that build, and a mark that the tree was changed."""
    assert page._kept({"commit": "A", "device": "cpu"}) == ""
    assert page._kept({"commit": "A", "device": "cpu", "chosen_at": "B"}) == "B"
    assert page._kept({"commit": "A", "device": "cpu", "trained_at": "A", "trained_on": "a GPU"}) == "A on a GPU"
    assert [short("0123456789ab-dirty"), short(None)] == ["0123456-dirty", "an earlier build"]


def test_a_readme_without_the_marks_is_left_alone(root):
    (root / "README.md").write_text("# irbm\n")
    with pytest.raises(ValueError, match=r"README\.md must have"):
        written(root)
    assert (root / "README.md").read_text() == "# irbm\n"


def test_brackets_decide_who_is_above():
    def between(lower, upper):
        return {"lower": lower, "upper": upper}

    assert against(between(-2, -1), between(-4, -3)) == "above"
    assert against(between(-4, -3), between(-2, -1)) == "below"
    assert against(between(-4, -2), between(-3, -1)) == "level"


def fig_7_row(variant, seed, size, *brackets):
    """Looks of (lower, upper, reliable)."""
    points = [
        {"epoch": 200 * (n + 1), "value": lower, "lower": lower, "upper": upper, "reliable": reliable, "budget": 2000}
        for n, (lower, upper, reliable) in enumerate(brackets)
    ]
    about = {"dataset": "binarized_mnist", "n_components": size, "effective_size": size, "commit": "abc"}
    return about | {"variant": variant, "seed": seed, "points": points, "device": "cpu"}


def test_fig_7_tells_how_looks_of_the_same_seed_stand_beside_each_other():
    rows = [
        fig_7_row("RP L1 ADA", 0, 300, (-88, -87, True), (-90, -89, True)),
        fig_7_row("RP L1 ADA", 1, 500, (-95, -94, True), (-90, -88, False)),
        fig_7_row("RP L1 ADA", 2, 9000, (-80, -79, True), (-80, -79, True)),
        fig_7_row("ordinary L1 ADA", 0, 600, (-91, -90, True), (-92, -91, True)),
        fig_7_row("ordinary L1 ADA", 1, 800, (-91, -90, True), (-89, -87, True)),
        fig_7_row("RP L2 ADA", 0, 700, (-88, -87, True), (-90, -89, True)),
    ]
    text = fig7.section(fig7.result_of(rows))
    looks = "above (1 of 2), below (1 of 2) | above (1 of 2), level (1 of 2)"
    every = "above (2 of 4), below (1 of 4), level (1 of 4)"
    assert f"| RP beside ordinary, L1 | {looks} | {every} | above (2 of 3), below (1 of 3) |" in text
    assert "| L1 beside L2, RP | level (1 of 1) | level (1 of 1) | level (2 of 2) | level (2 of 2) |" in text
    assert "ordinary, L2" not in text
    assert "smaller (2 of 2) with L1, on average 400 beside 700 (the paper: smaller with both)" in text
    rows[3]["points"][1]["epoch"] = 900
    every = "above (1 of 3), below (1 of 3), level (1 of 3)"
    assert f"| RP beside ordinary, L1 | {looks} | {every} |" in fig7.section(fig7.result_of(rows))
    alone = fig7.section(fig7.result_of(rows[:1]))
    assert "beside" not in alone
    assert "N_h of RP" not in alone


def test_the_search_behind_table_1_is_on_the_page(root):
    held = {"value": -116.5, "lower": -118.0, "upper": -116.0, "reliable": False, "reason": ""}
    run = {"model": "RBM", "learning_rate": 0.05, "l1": 1e-3, "n_components": 500, "validation": held}
    found = {"dataset": "caltech101_silhouettes", "epochs": 500, "device": "H200", "commit": "abc", "runs": [run]}
    found["date"] = "2026-01-02"
    (root / "results" / "search_density_caltech101_silhouettes.json").write_text(json.dumps(found))
    text, _ = written(root)
    assert "| RBM | 0.05 | 0.001 | 500 | (-116.50) | [-118.00, -116.00] | not reliable |" in text
    assert text.index("## Table 1") < text.index("## The search behind table 1") < text.index("## Table 2")
