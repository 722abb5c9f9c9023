"""The time of annealing, as it is measured and written."""

import json
import sys
from pathlib import Path

import pytest
import torch

from irbm.experiments import annealing_time
from irbm.experiments.results import place


@pytest.mark.parametrize(("limit", "within"), [(1e-9, False), (1e9, True)])
def test_seconds_are_held_against_the_limit(tmp_path, monkeypatch, limit, within):
    out = tmp_path / "time.json"
    monkeypatch.setattr(annealing_time, "CPU_THREADS", torch.get_num_threads())
    for name, value in {"VISIBLE": 6, "CHAINS": 10, "UNITS": {"cpu": 4}, "LIMIT": {"cpu": limit}}.items():
        monkeypatch.setattr(annealing_time, name, value)
    monkeypatch.setattr(sys, "argv", ["time", "--device", "cpu", "--points", "5", "--repeats", "2", "--out", str(out)])
    annealing_time.main()
    found = json.loads(out.read_text())
    assert len(found["seconds"]) == 2
    assert min(found["seconds"]) > 0
    assert found["within"] is within
    assert (found["n_hidden"], found["n_chains"], found["n_points"]) == (4, 10, 5)
    assert {"commit", "device", "threads", "versions"} <= set(found)


def test_a_try_out_leaves_the_real_result_alone():
    assert place("annealing_time_cpu", tried=False) == Path("results/annealing_time_cpu.json")
    assert place("annealing_time_cpu", tried=True) == Path("results/quick/annealing_time_cpu.json")


def test_fewer_points_are_a_try_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(annealing_time, "measure", lambda *_: {})
    for more in ([], ["--points", "5"]):
        monkeypatch.setattr(sys, "argv", ["time", "--device", "cpu", *more])
        annealing_time.main()
        assert (tmp_path / "results/quick").exists() == bool(more)
    assert (tmp_path / "results/annealing_time_cpu.json").exists()
