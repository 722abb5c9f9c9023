"""The verdict on machines whose ln Z is known: brackets hold, nothing wrong is called reliable, most are called so.

A short version of ``python -m irbm.experiments.trust small``, with less effort.
"""

from itertools import islice

import pytest
import torch

from irbm.evaluation import estimate as record
from irbm.experiments import known
from irbm.experiments.trust import WRONG, judge, summary

KINDS = ("plain", "labelled", "multimodal", "narrow")
BUDGET = 600


@pytest.fixture(scope="module")
def rows():
    """Every second of one machine of each kind and depth: ten in all."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CHAINS": 100, "FIRST_POINTS": 150, "SWEEPS": 50, "LADDER": 10}.items():
            patch.setattr(record, name, value)
        machines = islice(known.machines(KINDS, per_kind=1), 0, None, 2)
        yield [judge(one, seed, "cpu", BUDGET) for seed, one in enumerate(machines)]
    torch.set_num_threads(before)


def test_ten_machines_of_every_kind_and_depth(rows):
    names = [row["machine"] for row in rows]
    assert len(names) == 10
    for word in (*KINDS, "Fixed", "Ordered", "Infinite(1.01", "Infinite(1.1", "softplus"):
        assert any(word in name for name in names), word


def test_every_bracket_holds_the_exact_value(rows):
    assert [row["machine"] for row in rows if not row["lower"] <= row["exact"] <= row["upper"]] == []


def test_nothing_wrong_is_called_reliable(rows):
    assert [row["machine"] for row in rows if row["reliable"] and abs(row["value"] - row["exact"]) > 0.5] == []


def test_most_are_called_reliable(rows):
    assert sum(row["reliable"] for row in rows) >= 7


def test_values_are_close_and_stay_within_the_budget(rows):
    assert max(abs(row["off"]) for row in rows) < WRONG
    assert all(row["n_points"] * row["n_chains"] <= BUDGET * 100 for row in rows)


def test_a_summary_counts_both_kinds_of_error():
    def row(off, contained, reliable):
        return {"off": off, "contained": contained, "reliable": reliable}

    found = summary([row(0.1, True, True), row(-0.7, False, True), row(0.2, True, False), row(0.6, False, False)])
    assert found == {
        "machines": 4,
        "contained": 0.5,
        "reliable": 0.5,
        "wrongly called reliable": 1,
        "rightly contained but called unreliable": 1,
    }
