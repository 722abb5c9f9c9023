"""The verdict on machines whose ln Z is known: brackets hold, nothing wrong is called reliable, most are called so.

A short version of ``python -m irbm.experiments.trust small``, with less effort.
"""

import json
import math

import pytest
import torch

from irbm.evaluation import ais, modes
from irbm.evaluation import estimate as record
from irbm.experiments import known, trust
from irbm.experiments.results import stamp
from irbm.experiments.trust import WRONG, judge, summary

KINDS = tuple(known.SUITES["small"])
BUDGET = 300


@pytest.fixture(scope="module")
def rows():
    """The first machine of each kind with the depth of its own number, and with the next: ten in all."""
    pairs = [(n, (n + step) % len(known.DEPTHS)) for n in range(len(KINDS)) for step in (0, 1)]
    machines = [known.known(KINDS[kind], known.DEPTHS[depth], seed=0, n=0) for kind, depth in pairs]
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CHAINS": 100, "FIRST_POINTS": 150, "SWEEPS": 50, "LADDER": 10}.items():
            patch.setattr(record, name, value)
        for room, name, value in ((modes, "STARTS", 200), (ais, "PILOT_POINTS", 64), (trust, "NAIVE_POINTS", 200)):
            patch.setattr(room, name, value)
        yield [judge(one, seed, "cpu", BUDGET) for seed, one in enumerate(machines)]
    torch.set_num_threads(before)


def test_ten_machines_of_every_kind_and_depth(rows):
    names = [row["machine"].replace(" ", "_") for row in rows]
    assert len(names) == 10
    for word in (*KINDS, "Fixed", "Ordered", "Infinite(1.01", "Infinite(1.1", "softplus"):
        assert sum(word in name for name in names) == 2, word


def test_every_bracket_holds_the_exact_value(rows):
    assert [row["machine"] for row in rows if not row["lower"] <= row["exact"] <= row["upper"]] == []


def test_nothing_wrong_is_called_reliable(rows):
    assert [row["machine"] for row in rows if row["reliable"] and abs(row["value"] - row["exact"]) > 0.5] == []


def test_most_are_called_reliable(rows):
    assert sum(row["reliable"] for row in rows) >= 7


def test_all_stay_within_the_budget(rows):
    assert all(row["n_points"] * row["n_chains"] <= BUDGET * 100 for row in rows)


def test_the_usual_estimate_is_wrong_in_every_trap(rows):
    traps = [row["naive"] for row in rows if row["machine"].startswith("deep trap")]
    assert all(naive["off"] < -WRONG for naive in traps)


def test_a_summary_counts_both_kinds_of_error():
    def row(off, contained, reliable):
        verdict = {"off": off, "contained": contained, "reliable": reliable}
        return {**verdict, "naive": {"off": -off}, "off_by_rule": {"largest": 2 * off}}

    found = summary([row(0.1, True, True), row(-0.7, False, True), row(0.2, True, False), row(0.6, False, False)])
    assert found.pop("root mean square off by rule") == {"largest": pytest.approx(2 * math.sqrt(0.9 / 4))}
    assert found == {
        "machines": 4,
        "contained": 0.5,
        "reliable": 0.5,
        "wrongly called reliable": 1,
        "rightly contained but called unreliable": 1,
        "naive off by more than 0.5 nat": 2,
    }


def test_a_suite_goes_on_where_it_ended_and_not_with_other_settings(tmp_path):
    out, settings = tmp_path / "trust.json", {"seed": 0, "per_kind": 3, "budget": 100}
    assert trust._rows_of(out, settings) == []
    found = {"settings": settings, "rows": [{"machine": "one"}], "commit": stamp("cpu")["commit"]}
    out.write_text(json.dumps(found))
    assert trust._rows_of(out, settings) == [{"machine": "one"}]
    with pytest.raises(ValueError, match="has other settings"):
        trust._rows_of(out, settings | {"budget": 200})
    out.write_text(json.dumps(found | {"commit": "another"}))
    with pytest.raises(ValueError, match="of commit another"):
        trust._rows_of(out, settings)
