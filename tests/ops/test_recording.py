"""How work is recorded, with a stand-in for CUDA; training/test_cuda.py has the real thing."""

from contextlib import contextmanager

import pytest
import torch

from irbm.ops import recording
from irbm.ops.recording import Recording, repeat


@pytest.fixture
def cuda(monkeypatch):
    """What is asked of CUDA, in order."""
    did = []

    class Graph:
        def capture_begin(self, pool, mode):
            did.append(f"begin in {pool}, {mode}")

        def capture_end(self):
            did.append("end")

        def pool(self):
            return "its pool"

        def replay(self):
            did.append("replay")

    @contextmanager
    def stream(which):
        assert recording._one_at_a_time.locked()
        did.append(which)
        yield
        did.append("back")

    recording._stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda index: f"stream of {index}")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: did.append("empty"))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "new pool")
    yield did
    recording._stream.cache_clear()


def test_work_is_recorded_on_its_own_device_and_replayed(cuda):
    recorded = Recording(lambda: cuda.append("work"), torch.device("cuda", 1))
    assert cuda == ["stream of 1", "empty", "begin in new pool, thread_local", "work", "end", "back"]
    assert not recording._one_at_a_time.locked()
    recorded.replay()
    assert cuda[-1] == "replay"


def test_a_device_without_a_number_is_the_current_one_each_time(cuda, monkeypatch):
    Recording(lambda: None, torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    Recording(lambda: None, torch.device("cuda"))
    assert [one for one in cuda if one.startswith("stream")] == ["stream of 3", "stream of 2"]


def test_a_recording_in_place_of_another_takes_its_memory_and_gives_none_back(cuda):
    before = Recording(lambda: None, torch.device("cuda", 0))
    cuda.clear()
    Recording(lambda: None, torch.device("cuda", 0), before)
    assert cuda == ["stream of 0", "begin in its pool, thread_local", "end", "back"]


def test_work_that_fails_ends_the_recording_and_lets_the_next_begin(cuda):
    def fails():
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        Recording(fails, torch.device("cuda", 0))
    assert "end" in cuda
    assert not recording._one_at_a_time.locked()


@pytest.mark.parametrize("times", [1, 2, 5])
def test_repeated_work_is_done_once_and_then_replayed(times, cuda):
    repeat(lambda: cuda.append("work"), times, torch.device("cuda", 0))
    assert cuda[0] == "work"
    assert cuda.count("work") == 1 + (times > 1)  # done, and recorded
    assert cuda.count("replay") == times - 1
