"""Times that can be compared: repetitions of all candidates take turns, so that a busy moment hits them alike."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

Call = Callable[[], None]
WARM_UPS = 2
SETTLED = 0.1  # seconds after which the threads of the candidate before have gone to sleep: each library has its own


class Timing(NamedTuple):
    """Seconds a step: the median over repetitions, the fastest, and the middle half."""

    median: float
    fastest: float
    quartiles: tuple[float, float]
    repetitions: int


def interleaved(
    calls: Mapping[str, tuple[Call, int]], repetitions: int, device: torch.device | str
) -> dict[str, Timing]:
    """Time calls that each take so many steps, in turn; every call has run before the first of them counts."""
    for call, _ in calls.values():
        for _ in range(WARM_UPS):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, (call, steps) in calls.items():
            seconds[name].append(_seconds(call, torch.device(device)) / steps)
    return {name: _timing(values) for name, values in seconds.items()}


def _seconds(call: Call, device: torch.device) -> float:
    if device.type == "cuda":
        return _cuda_seconds(call, device)
    time.sleep(SETTLED)
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _cuda_seconds(call: Call, device: torch.device) -> float:
    """Between two events of the device's own clock, with nothing left to do before the first and after the second."""
    with torch.cuda.device(device):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3


def _timing(seconds: list[float]) -> Timing:
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return Timing(middle, min(seconds), (low, high), len(seconds))
