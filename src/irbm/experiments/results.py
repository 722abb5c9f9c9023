"""Results as files: what was found, and everything needed to find it again."""

import base64
import html
import json
import math
import os
import platform
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from irbm.files import write_bytes

EARLIER = "an earlier build"


def stamp(device: torch.device | str) -> dict[str, Any]:
    """Commit, device, versions, time."""
    device = torch.device(device)
    return {
        "commit": _commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    """This machine's, by name, with its cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()} ({os.cpu_count()} cores)"


def _commit() -> str:
    """$IRBM_COMMIT, for copies of the source; or the commit of the checkout, marked where it has changes."""
    if "IRBM_COMMIT" in os.environ:
        return os.environ["IRBM_COMMIT"]
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def place(name: str, *, tried: bool) -> Path:
    """The file of a result; one of a run that was only tried out never lies where real ones do."""
    return Path("results", *(["quick"] if tried else []), f"{name}.json")


def known_runs(path: str | Path) -> list[dict[str, Any]]:
    """The runs a file of results has, none where there is no file."""
    if not Path(path).is_file():
        return []
    runs: list[dict[str, Any]] = json.loads(Path(path).read_text())["runs"]
    return runs


def _data_and_seed(row: dict[str, Any]) -> Any:
    return row["dataset"], row["seed"]


def table(
    rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Any] = _data_and_seed, **more: Any
) -> dict[str, Any]:
    """Rows in their order, with the data sets and the seeds that they are of."""
    ordered = sorted(rows, key=key)
    datasets = list(dict.fromkeys(r["dataset"] for r in ordered))
    return {"datasets": datasets, "seeds": sorted({r["seed"] for r in ordered}), **more, "rows": ordered}


def shown(result: dict[str, Any], what: str = "seed") -> list[dict[str, Any]]:
    """The rows of a picture: of each data set, those of the first seed it has, of rows that keep what it shows."""
    rows = [r for r in result["rows"] if what in r]
    if not rows:
        raise ValueError(f"no row keeps {what!r}, which the picture shows: they are of an earlier build; remove them")
    first = {r["dataset"]: r["seed"] for r in sorted(rows, key=lambda r: -r["seed"])}
    return [r for r in rows if r["seed"] == first[r["dataset"]]]


def origin(row: dict[str, Any]) -> tuple[str, str | None]:
    """Where a row's machine was trained, and by which build: what looked at it may be another. None: not known.

    Rows of before say by which build it was chosen, or nothing where that was their own.
    """
    commit = row.get("trained_at", row.get("chosen_at", row.get("commit")))
    return row.get("trained_on") or row.get("device", "an unknown device"), commit


def short(commit: str | None) -> str:
    """A build for a cell of a table."""
    if commit is None:
        return EARLIER
    name, *mark = commit.split("-")
    return "-".join([name[:7], *mark])


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """An array as JSON has it: floats of 16 bits, compressed, as text. What a picture needs, not more."""
    text = base64.b64encode(zlib.compress(values.astype(np.float16).tobytes(), level=9)).decode()
    return {"shape": list(values.shape), "float16": text}


def unpacked(found: dict[str, Any]) -> NDArray[np.float32]:
    """What was packed."""
    values = np.frombuffer(zlib.decompress(base64.b64decode(found["float16"])), np.float16)
    return values.reshape(found["shape"]).astype(np.float32)


def write_json(path: str | Path, result: dict[str, Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, (json.dumps(finite(result), indent=1, allow_nan=False) + "\n").encode())


def finite(value: Any) -> Any:
    """The same as JSON has it: null for nan and infinities, lists for tuples."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def processes(jobs: int) -> ProcessPoolExecutor:
    """So many at a time, each fresh: a forked one would have a CUDA context and threads that do not work in it."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def judged(found: dict[str, Any]) -> tuple[str, str, str]:
    """A likelihood as cells of a table: its value, in parentheses where it is not reliable, bracket and verdict."""
    value = f"{found['value']:.2f}"
    bracket = f"[{found['lower']:.2f}, {found['upper']:.2f}]"
    return (value, bracket, "reliable") if found["reliable"] else (f"({value})", bracket, "not reliable")


def against(ours: dict[str, Any], other: dict[str, Any]) -> str:
    """How one likelihood stands beside another; level where brackets meet."""
    if ours["lower"] > other["upper"]:
        return "above"
    return "below" if ours["upper"] < other["lower"] else "level"


def how_often(outcomes: list[str]) -> str:
    """Outcomes with how many times each came, the commonest first."""
    return ", ".join(f"{one} ({n} of {len(outcomes)})" for one, n in Counter(outcomes).most_common())


def folded(title: str, text: str) -> str:
    """A part of a page that is read by those who open it, on GitHub and on the site."""
    return f'<details markdown="1">\n<summary>{html.escape(title)}</summary>\n\n{text}\n\n</details>'


def rounds(trials: list[dict[str, Any]]) -> list[str]:
    """Estimates of ln Z as lines of a table, one for each round: the value, its error, and the effective chains."""
    others = {(t["side"], t["name"]): "both sides" for t in trials if t["side"] == "both"}
    others = {(t["side"], t["name"]): f"back from {t['name']}" for t in trials if t["side"] == "reverse"} | others
    lines = [
        f"| points | chains | forward | {' | '.join(others.values())} |",
        "|---" * (3 + len(others)) + "|",
    ]
    for (n_points, n_chains), together in groupby(trials, lambda t: (t["n_points"], t["n_chains"])):
        found = [(t, f"{t['value']:.2f} ± {t['stderr']:.2f} ({t['ess']:.0f})") for t in together]
        forward = "; ".join(f"{t['name']}: {value}" for t, value in found if t["side"] == "forward")
        rest = {(t["side"], t["name"]): value for t, value in found}
        lines.append(f"| {n_points} | {n_chains} | {forward} | {' | '.join(rest.get(one, '') for one in others)} |")
    return lines
