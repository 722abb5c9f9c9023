"""The sizes at which the library is timed, and the result of timing them."""

import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from irbm.bench import errors, peers, steps
from irbm.bench.steps import Case
from irbm.bench.timing import Call, Timing, interleaved
from irbm.experiments.results import processor, stamp
from irbm.ops.dispatch import has_products

OURS = "irbm"
CASES: dict[str, tuple[Case, ...]] = {
    "cpu": (Case(784, 500, 100, 1), Case(784, 500, 100, 10), Case(64, 100, 50, 1)),
    "cuda": (Case(784, 640, 100, 10), Case(784, 640, 100, 10, 1000), Case(784, 4000, 100, 10, 1000)),
}
SCALING: dict[str, tuple[int, ...]] = {
    "l": (100, 200, 500, 600, 1000, 1100, 2000, 2100, 4000),  # some just above a capacity
    "D": (64, 256, 784, 2048),
    "B": (10, 30, 100, 300, 1000),
    "N": (100, 300, 1000, 3000),
    "k": (1, 3, 10, 25),
}
FLOORS = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}
EPOCH = {"cpu": 96, "cuda": 32}  # steps timed together: fewer on a CPU would count how its threads wake
SERIES_EPOCH = 32  # the same in a series, which has large sizes
GROWTH_STEPS = {"cpu": 250, "cuda": 500}  # to a pass; the paper's 50,000 examples make 500
GROWTH_PASSES = {"cpu": 4, "cuda": 10}  # to some 400 units, and beyond the capacity of 512
CHAINS = {"cpu": 100, "cuda": 1000}
POINTS = {"cpu": 100, "cuda": 2000}  # of annealing, or sweeps, timed together: a GPU's are recorded first
SCORED, SCORING_PASSES = 2000, {"cpu": 4, "cuda": 32}
SERIES_REPETITIONS = 5
THREADING = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PACKAGES = ("scikit-learn", "numba", "scipy", "rbms")


def run(
    device: torch.device | str,
    *,
    scaling: bool = False,
    repetitions: int = 15,
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Time every case of the device, in seconds; ``report`` is told what comes next."""
    device = torch.device(device)
    kind = CASES[device.type]
    load = os.getloadavg()
    result: dict[str, Any] = {
        "kind": device.type,
        "hardware": hardware(device),
        "seed": seed,
        "steps": [_step(case, repetitions, seed, device, report) for case in kind],
        "annealing": [_annealing(kind[0], repetitions, seed, device, report)],
        "sampling": [_sampling(kind[0], repetitions, seed, device, report)],
        "scoring": [_scoring(kind[0], repetitions, seed, device, report)],
        "growth": _growth(kind[0], seed, device, report),
        "scaling": _scaling(kind[0], seed, device, report) if scaling else {},
        "load_average": {"before": load, "after": os.getloadavg()},
        "environment": {name: os.environ.get(name) for name in THREADING},
        **stamp(device),
    }
    if has_products(torch.empty(1, 1, device=device), 1):
        result["errors"] = _errors(kind[0], seed, device)
    result["versions"] |= {name: version for name in PACKAGES if (version := _version(name))}
    return result


def _step(
    case: Case, repetitions: int, seed: int, device: torch.device, report: Callable[[str], None], *, alone: bool = False
) -> dict[str, Any]:
    """Our step with its floors and, but for a series, its peers."""
    report(case.name)
    n = SERIES_EPOCH if alone else EPOCH[device.type]
    calls = {OURS: (steps.training(case, n, seed, device), n)}
    for dtype in FLOORS[device.type]:
        name = str(dtype).removeprefix("torch.")
        floor = steps.recorded(steps.products(case, dtype, device), device)
        calls[f"its matrix products in {name}"] = (_repeated(floor, n), n)
    for name, peer in {} if alone else peers.able(case, device).items():
        calls[name] = (_repeated(peer(case, seed, device), n), n)
    timed = interleaved(calls, repetitions, device)
    row: dict[str, Any] = {"name": case.name, **asdict(case), "seconds": _seconds(timed)}
    if device.type == "cuda":
        row["peak_bytes"] = _peak_bytes(case, seed, device)
    return row


def _repeated(call: Call, times: int) -> Call:
    def repeated() -> None:
        for _ in range(times):
            call()

    return repeated


def _peak_bytes(case: Case, seed: int, device: torch.device) -> int:
    """The most memory that a trainer of its own allocates over two epochs."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    training = steps.training(case, EPOCH[device.type], seed, device)
    for _ in range(2):
        training()
    return torch.cuda.max_memory_allocated(device) - before


def _annealing(
    case: Case, repetitions: int, seed: int, device: torch.device, report: Callable[[str], None]
) -> dict[str, Any]:
    chains, n = CHAINS[device.type], POINTS[device.type]
    ours = steps.annealing(case.D, case.l, chains, n + 1, seed, device), n
    name = f"{case.D} x {case.l}, {chains} chains, one temperature"
    return _of_chains(name, case, ours, repetitions, device, report)


def _sampling(
    case: Case, repetitions: int, seed: int, device: torch.device, report: Callable[[str], None]
) -> dict[str, Any]:
    chains, n = CHAINS[device.type], POINTS[device.type]
    ours = steps.sampling(case.D, case.l, chains, n, seed, device), n
    return _of_chains(f"{case.D} x {case.l}, {chains} chains, one sweep", case, ours, repetitions, device, report)


def _of_chains(
    name: str,
    case: Case,
    ours: tuple[Call, int],
    repetitions: int,
    device: torch.device,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """A step of many chains with its floor, the two products of a sweep."""
    report(name)
    chains, n = CHAINS[device.type], EPOCH[device.type]
    sweep = steps.recorded(steps.sweep(Case(case.D, case.l, chains, 1), device), device)
    timed = interleaved({OURS: ours, "its matrix products in float32": (_repeated(sweep, n), n)}, repetitions, device)
    return {"name": name, "D": case.D, "l": case.l, "chains": chains, "seconds": _seconds(timed)}


def _scoring(
    case: Case, repetitions: int, seed: int, device: torch.device, report: Callable[[str], None]
) -> dict[str, Any]:
    name = f"{case.D} x {case.l}, free energies of {SCORED} examples in float64"
    report(name)
    n, who = SCORING_PASSES[device.type], (OURS, "its matrix product in float64", "torch, operation by operation")
    calls = steps.scoring(case.D, case.l, SCORED, seed, device)
    timed = interleaved(
        {one: (_repeated(call, n), n) for one, call in zip(who, calls, strict=True)}, repetitions, device
    )
    return {"name": name, "D": case.D, "l": case.l, "examples": SCORED, "seconds": _seconds(timed)}


def _growth(case: Case, seed: int, device: torch.device, report: Callable[[str], None]) -> dict[str, Any]:
    report("growth")
    timed = steps.growth(case, GROWTH_STEPS[device.type], GROWTH_PASSES[device.type], seed, device)
    return {"name": replace(case, l=1).name, **timed}


def _errors(case: Case, seed: int, device: torch.device) -> dict[str, Any]:
    return {"name": f"{case.D} x {case.l}, {case.B} examples", **errors.of_products(case, seed, device)}


def _scaling(
    base: Case, seed: int, device: torch.device, report: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """One size after the other, all others as in the base case."""

    def series(axis: str, values: Sequence[int]) -> list[dict[str, Any]]:
        sized = (replace(base, **{axis: value}) for value in values)
        return [_step(case, SERIES_REPETITIONS, seed, device, report, alone=True) for case in sized]

    return {axis: series(axis, values) for axis, values in SCALING.items()}


def _seconds(timed: dict[str, Timing]) -> dict[str, dict[str, Any]]:
    return {name: timing._asdict() for name, timing in timed.items()}


def hardware(device: torch.device) -> str:
    """The processor or the GPU by name, with its cores or its memory."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return processor()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
