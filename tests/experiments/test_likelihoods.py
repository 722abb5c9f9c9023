"""Usual estimates of ln Z beside ours: what is run, and what the page says of it."""

import pytest
import torch

from irbm.evaluation import partition
from irbm.experiments import likelihoods
from irbm.experiments.known import DEPTHS, known

OURS = {"value": 100.2, "lower": 100.0, "upper": 100.4, "ess": 55.0, "reliable": True, "reason": "because"}


def _found(values, **ours):
    """A result whose likelihood is 10 less ln Z."""
    run = {"n_points": 7, "n_chains": 9, "ess": 2.5}
    return {
        "dataset": "binarized_mnist",
        "note": "a note",
        "settings": {"persistent": False, "gibbs_steps": 3, "n_iter": 4},
        "n_components": 6,
        "test_mean_of_minus_free_energy": 10.0,
        "naive": {f"way {n}": {**run, "value": value} for n, value in enumerate(values)},
        "ours": OURS | ours,
        "device": "a device",
        "commit": "a commit",
    }


@pytest.mark.parametrize(
    ("log_z", "words", "off"),
    [
        (5.0, "impossible, 95.0 nats above our bracket", 1),
        (97.0, "3.0 nats above our bracket", 1),
        (99.6, "about our bracket", 0),
        (100.1, "about our bracket", 0),
        (102.4, "2.0 nats below our bracket", 1),
    ],
)
def test_a_usual_estimate_is_told_by_its_side_of_the_bracket(log_z, words, off):
    said = likelihoods._case_words(_found([log_z]))
    assert f"base of way 0 {words} (effective sample size 2.5)" in said
    assert f"{off} of 1 usual estimates are off" in said


@pytest.mark.parametrize(("reliable", "off"), [(True, 1), (False, 0)])
def test_a_bracket_that_is_not_reliable_speaks_only_against_what_lies_further_off_than_it_is_wide(reliable, off):
    wide = {"lower": 99.0, "upper": 100.4, "reliable": reliable}
    assert f"{off} of 1 usual estimates are off" in likelihoods._case_words(_found([98.0], **wide))
    assert "1 of 1 usual estimates are off" in likelihoods._case_words(_found([97.0], **wide))


def test_the_table_has_likelihoods_and_puts_ours_in_parentheses_where_it_is_not_believed():
    yes, no = (likelihoods._case_rows(_found([97.0, 98.0], reliable=reliable)) for reliable in (True, False))
    title = "binarized MNIST, CD-3, 4 epochs, 6 units"
    assert yes[0] == f"| {title} | usual, base of way 0, 7 temperatures | -87.00 | | 2.5 of 9 | none |"
    assert yes[2] == "|  | **ours** | -90.20 | [-90.40, -90.00] | 55.0 | reliable |"
    assert no[2] == "|  | **ours** | (-90.20) | [-90.40, -90.00] | 55.0 | not reliable |"
    assert "Ours is **not reliable**: because." in likelihoods._case_words(_found([97.0], reliable=False))


def test_cases_are_trained_as_their_names_say():
    for name, case in likelihoods.CASES.items():
        data, kind, epochs = name.split("_")
        settings = case.settings(None)
        assert data in case.dataset
        assert (settings.n_iter, settings.persistent) == (int(epochs), kind == "pcd")
        assert settings.gibbs_steps == {"mnist": 10, "caltech": 25}[data]


def test_usual_estimates_are_right_on_an_easy_machine():
    machine = known("plain", DEPTHS[2], seed=0, n=0).machine
    found = likelihoods.in_use(machine, torch.full((machine.n_visible,), 0.5), 300, seed=0)
    exact = partition.exact(machine).value
    assert len({run["value"] for run in found.values()}) == 3
    for name, run in found.items():
        assert abs(run["value"] - exact) < 4 * run["stderr"] < 0.4, name


def test_estimates_that_look_well_and_are_off_are_counted():
    """Of 9 chains 2.5 count in those that do not; a likelihood is 10 less ln Z, and the bracket ends at -90."""
    healthy, few = _found([60.0, 85.0, 99.9]), _found([50.0])
    for run in healthy["naive"].values():
        run["ess"] = 8.0
    said = likelihoods._healthy_words([healthy, few])
    assert "2 usual estimates" in said
    assert "flatter by 15 to 40 nats" in said
    assert likelihoods._healthy_words([few]) == ""
