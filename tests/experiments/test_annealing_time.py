"""The time of annealing, as it is measured and written."""

import json
import sys

import pytest
import torch

from irbm.experiments import annealing_time


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
