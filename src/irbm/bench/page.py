"""Timings as tables in the terminal, and as the page docs/performance.md with its pictures.

``python -m irbm.bench`` writes the page from results/bench_*.json and whole_runs.json.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from irbm.bench.cases import OURS, POINTS
from irbm.files import write_bytes

QUIET = 0.5  # load average of a machine that does nothing else
OLDER = " Older than products by look-up, sweeps, the peer that draws by comparison and some sizes."
AXES = {
    "l": "hidden units $l$",
    "D": "visible units $D$",
    "B": "examples in a minibatch",
    "N": "persistent chains",
    "k": "Gibbs steps $k$",
}


def duration(seconds: float) -> str:
    """Three digits, in the unit that suits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def rows(row: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Who, the median time of a step, how much of it ours takes, and the same of the fastest times."""

    def share(timing: dict[str, Any], which: str) -> str:
        ours = row["seconds"][OURS]
        return "" if timing is ours else f"{ours[which] / timing[which]:.2f}"

    return [
        (name, duration(timing["median"]), share(timing, "median"), share(timing, "fastest"))
        for name, timing in row["seconds"].items()
    ]


def growth_line(growth: dict[str, Any]) -> str:
    ratio = growth["growing"] / growth["held"]
    but = "compilation and a first recording" if "untimed" in growth else "the first compilation of kernels"
    whole = growth.get("growing_with_first")  # some files are older
    also = "" if whole is None else f" ({whole / growth['held']:.2f} with the first steps)"
    return (
        f"From {growth['first_size']} to {growth['last_size']} units in {growth['steps']} steps on enlarged digits, "
        f"through {len(growth['capacities'])} capacities: "
        f"{duration(growth['growing'])} a step on average, with all that growth brings but {but}, "
        f"and {duration(growth['held'])} at the same sizes held, a ratio of {ratio:.2f}{also}."
    )


def fit_line(series: list[dict[str, Any]]) -> str:
    """How near the times over l are to a straight line, the one with the least relative errors."""
    sizes, seconds = np.array([[row["l"], row["seconds"][OURS]["median"]] for row in series]).T
    fixed, each = np.linalg.lstsq(np.stack([1 / seconds, sizes / seconds], 1), np.ones(len(sizes)), rcond=None)[0]
    off = float(np.abs((fixed + each * sizes) / seconds - 1).max())
    return (
        f"Over l, from {sizes[0]:.0f} to {sizes[-1]:.0f} units: {duration(fixed)} and {duration(100 * each)} for each "
        f"hundred units, a straight line that no size is further from than {100 * off:.0f} %."
    )


def memory_lines(result: dict[str, Any]) -> list[str]:
    rows_ = (row for row in result["steps"] if "peak_bytes" in row)
    return [f"Peak memory of tensors, {row['name']}: {row['peak_bytes'] / 2**20:.1f} MiB." for row in rows_]


def error_lines(result: dict[str, Any]) -> list[str]:
    """The largest error of each product by precision, as a share of the product's root mean square."""
    found = dict(result.get("errors", {}))  # only of GPUs
    sizes = found.pop("name", None)
    return [
        f"Largest error of the {what} ({sizes}) against float64, as a share of their root mean square: "
        + ", ".join(f"{errors['largest']:.1e} in {how}" for how, errors in of.items())
        + "."
        for what, of in found.items()
    ]


def run_line(row: dict[str, Any], note: str) -> str:
    """A whole training at the paper's settings."""
    settings = row["settings"]
    kind = f"{'P' if settings['persistent'] else ''}CD-{settings['gibbs_steps']}"
    return (
        f"{row['dataset']} ({note}), {kind}, minibatch {settings['batch_size']}, {row['epochs']} epochs, "
        f"{row['steps']:,} steps, {row['n_components']} units at the end: {row['wall_seconds']:.0f} s on "
        f"{row['device']}. Commit {row['commit']}."
    )


# -- the terminal -----------------------------------------------------------------------------------------------


def tables(result: dict[str, Any]) -> list[Table]:
    """One table for each kind of step, for the series where there are any, and for what is no step."""
    titles = {
        "steps": "one training step",
        "annealing": "one annealing step",
        "sampling": "one Gibbs sweep",
        "scoring": "scores",
    }
    made = [_table(titles[part], result[part]) for part in titles]
    if result["scaling"]:
        made.append(_table("scaling", [row for series in result["scaling"].values() for row in series]))
    also = Table(title="growth, memory, precision", show_header=False)
    fits = [fit_line(result["scaling"]["l"])] if result["scaling"] else []
    for line in (growth_line(result["growth"]), *fits, *memory_lines(result), *error_lines(result)):
        also.add_row(line)
    return [*made, also]


def _table(title: str, timed: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for heading in ("sizes", "who", "median", "irbm takes of it"):
        table.add_column(heading, justify="left" if heading in ("sizes", "who") else "right")
    for row in timed:
        for i, (*cells, _) in enumerate(rows(row)):
            table.add_row("" if i else row["name"], *cells)
        table.add_section()
    return table


# -- the page ---------------------------------------------------------------------------------------------------


def page(results: dict[str, dict[str, Any]], runs: Sequence[str] = ()) -> str:
    """The page in Markdown, with a section for each result and its picture's file; ``runs`` tell of whole ones."""
    parts = [
        "# Performance",
        "",
        "Written by `python -m irbm.bench` from `results/bench_*.json`, which `irbm bench` wrote: medians of "
        "repetitions in which all candidates took turns. `irbm` is the infinite RBM with random permutation, growth "
        "(at its bound in the tables, so that sizes are what they say), AdaGrad, L1 and max-norm, by the trainer's own "
        "step; the others are RBMs of a fixed size. The last "
        "columns are irbm's time as a share of the other's, of the medians and of the fastest repetitions, which say "
        "less about a machine's other work: below 1 irbm is faster. The matrix products of the same "
        "step, alone, are the floor; on a GPU from a CUDA graph, as the step is. Training multiplies in two bfloat16 "
        "parts there, and can be faster than products in float32: its floor is that in bfloat16, by torch, which is "
        "not the fastest at every size. Annealing multiplies as exactly as float32 does. "
        "Free energies, which scores are made of, are in float64 from end to end. Where a machine is as small "
        "as 64 x 100, a step on a CPU is mostly what lies between products: plain torch and scikit-learn are faster. "
        "Products with states of 0 and 1 that are large enough are by look-up on a CPU "
        "([how](decisions/007-cpu-kernels.md)), and can be faster than BLAS, which the floor there is of. "
        f"Temperatures and sweeps are timed {POINTS['cuda']:,} together on a GPU, a recording within, and "
        f"{POINTS['cpu']:,} on a CPU.",
    ]
    for picture, result in results.items():
        parts += _section(result, picture)
    if runs:
        parts += [
            "",
            "## Whole runs",
            "",
            "iRBM RP at the paper's settings (`python -m irbm.bench.whole_runs`), by the clock: growth, "
            "every epoch's end and the machines kept for table 1 are within the time.",
        ]
        parts += [line for run in runs for line in ("", run)]
    return "\n".join(parts) + "\n"


def _section(result: dict[str, Any], picture: str) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    count = result["threads"]
    threads = f", {count} thread{'s' if count > 1 else ''}" if result["kind"] == "cpu" else ""
    before, after = (result["load_average"][when][0] for when in ("before", "after"))
    busy = (
        " Other work, beside it or just before, may have made times too long; ratios are fairer."
        if before > QUIET
        else ""
    )
    lines = [
        "",
        f"## {result['hardware']}{threads}",
        "",
        f"{versions}. Commit {result['commit']}, {result['date'][:10]}, seed {result['seed']}; "
        f"load average {before:.1f} before and {after:.1f} after{_settings(result['environment'])}.{busy}"
        f"{'' if 'rbms' in result['versions'] else ' `rbms` is not installed there.'}"
        f"{'' if 'sampling' in result else OLDER}",
        "",
        "| step | who | median | irbm takes of it | by the fastest |",
        "|---|---|---:|---:|---:|",
    ]
    some = (row for part in ("sampling", "scoring") for row in result.get(part, ()))  # some files are older
    for row in (*result["steps"], *result["annealing"], *some):
        lines += [_line(row["name"] if not i else "", *cells) for i, cells in enumerate(rows(row))]
    lines += ["", f"Growth, minibatch and chains as in the first row. {growth_line(result['growth'])}"]
    lines += [part for line in (*memory_lines(result), *error_lines(result)) for part in ("", line)]
    if result["scaling"]:
        lines += ["", fit_line(result["scaling"]["l"]), "", f"![A step's time over its sizes]({picture})"]
    return lines


def _settings(environment: dict[str, str | None]) -> str:
    """What the environment says about threads."""
    said = ", ".join(f"{name}={value}" for name, value in environment.items() if value is not None)
    return f"; {said or 'no variable set for threads'}"


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def write_page(folder: str | Path, path: str | Path) -> None:
    """The page, and a picture beside it for each result that has series."""
    from irbm import plots  # matplotlib is slow to import

    folder, path = Path(folder), Path(path)
    files = sorted(folder.glob("bench_*.json"))
    results = {f"{path.stem}{file.stem.removeprefix('bench')}.png": json.loads(file.read_text()) for file in files}
    for picture, result in results.items():
        if result["scaling"]:
            series = {AXES[axis]: (axis, timed) for axis, timed in result["scaling"].items()}
            lines = {label: _series(axis, timed) for label, (axis, timed) in series.items()}
            write_bytes(path.with_name(picture), plots.to_png(plots.scaling(lines)))
    runs = [*_whole_runs(folder / "whole_runs.json"), *_one_command(folder / "table1_one_command.json")]
    write_bytes(path, page(results, runs).encode())


def _whole_runs(path: Path) -> list[str]:
    """What ``irbm.bench.whole_runs`` wrote."""
    if not path.is_file():
        return []
    found = json.loads(path.read_text())
    return [run_line(row, found["notes"][row["dataset"]]) for row in found["rows"]]


def _one_command(path: Path) -> list[str]:
    """What one row of table 1 wrote into a folder where there was nothing before."""
    if not path.is_file():
        return []
    found = json.loads(path.read_text())
    (row,) = found["rows"]
    looks = len(row["validation"])
    return [
        f'`irbm reproduce table1 --dataset {row["dataset"]} --only "{row["model"]}" --seeds {row["seed"]}` in an empty '
        f"folder: training, {looks} looks at the validation split and the estimate for the test split, {row['epochs']} "
        f"epochs, {found['wall_seconds']:.0f} s on {found['device']}. Commit {found['commit']}."
    ]


def _series(axis: str, timed: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """name -> (size, milliseconds) of each point."""
    return {name: [(row[axis], 1e3 * row["seconds"][name]["median"]) for row in timed] for name in timed[0]["seconds"]}
