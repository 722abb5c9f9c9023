"""Estimates of ln Z and the likelihoods that come of them, with brackets and verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from irbm.plots.style import BLUE, GAP, GREEN, INK, VERMILION, WIDTH, plain_axes, titled

MARKERS = {"forward": (BLUE, "oshX*d"), "reverse": (VERMILION, "v^<>P8"), "both": (INK, "D")}
WAYS = (BLUE, VERMILION, GREEN, INK)  # to train
ASIDE = 0.006  # of the longest run, between curves of the same epochs


def annealing(trials: Sequence[Mapping[str, Any]], lower: float, upper: float, exact: float | None = None) -> Figure:
    """Estimates of ln Z, forward, back and by both sides, with 4 standard errors, by length of path; the bracket.

    A side has a colour, and each of its paths or starts a marker of its own.
    """
    figure = Figure(figsize=(WIDTH, 3.6), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    rounds = sorted({(t["n_points"], t["n_chains"]) for t in trials})
    names = list(dict.fromkeys((t["side"], t["name"]) for t in trials))
    markers = {side: iter(shapes) for side, (_, shapes) in MARKERS.items()}
    for number, (side, name) in enumerate(names):
        own = [t for t in trials if (t["side"], t["name"]) == (side, name)]
        aside = 0.6 * ((number + 0.5) / len(names) - 0.5)
        axes.errorbar(
            [rounds.index((t["n_points"], t["n_chains"])) + aside for t in own],
            [t["value"] for t in own],
            [4 * t["stderr"] for t in own],
            label=f"{side}: {name}",
            color=MARKERS[side][0],
            marker=next(markers[side]),
            linestyle="none",
            linewidth=1,
            capsize=2,
            markersize=6,
        )
    # Beside estimates that are far off a bracket is thin: its edges are drawn, and its ends written.
    face, edge = to_rgba(GREEN, 0.2), to_rgba(GREEN, 0.8)
    axes.axhspan(lower, upper, facecolor=face, edgecolor=edge, label=f"bracket: {lower:.2f} to {upper:.2f}")
    if exact is not None:
        axes.axhline(exact, color=INK, linewidth=1, linestyle=":", label=f"exact: {exact:.2f}")
    axes.set_xlim(-0.5, len(rounds) - 0.5)
    axes.set_xticks(range(len(rounds)), [f"{points}\n{chains}" for points, chains in rounds])
    titled(axes, "Estimates of ln Z", "points of the path, and chains below", "ln Z; bars: 4 standard errors")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def likelihood_curves(panels: Mapping[str, Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]]) -> Figure:
    """Mean log-likelihood over epochs with its bracket, hollow where it is not reliable: a panel for each setting.

    A way to train has a colour, a seed a mark. Curves are a little apart.
    """
    figure = Figure(figsize=(WIDTH, 3.6), facecolor="white", layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    every = [p for ways in panels.values() for runs in ways.values() for points in runs.values() for p in points]
    longest = max(p["epoch"] for p in every)
    seeds = sorted({seed for ways in panels.values() for runs in ways.values() for seed in runs})
    colours = dict(zip(dict.fromkeys(way for ways in panels.values() for way in ways), WAYS, strict=False))
    for axes, (title, ways) in zip(grid, panels.items(), strict=True):
        curves = [(way, seed, points) for way, runs in ways.items() for seed, points in runs.items()]
        for place, (way, seed, points) in enumerate(curves):
            aside = ASIDE * (place - (len(curves) - 1) / 2) * longest  # or bars would hide others
            label = way if seed == min(ways[way]) else None
            _curve(axes, points, aside, label, colours[way], "os^vDP"[seeds.index(seed) % 6])
        titled(axes, title, "epoch", "mean test log-likelihood, nats" if axes is grid[0] else "")
        plain_axes(axes, zero=False)
    notes = ["a mark for each seed"] if len(seeds) > 1 else []
    notes += ["bar: bracket"] + ["hollow: not reliable"] * (not all(p["reliable"] for p in every))
    keys = {label: key for axes in grid for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(keys.values()),
        list(keys),
        title="; ".join(notes),
        title_fontsize=8,
        loc="outside lower center",
        ncols=len(keys),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure


def _curve(
    axes: Axes, points: Sequence[Mapping[str, Any]], aside: float, label: str | None, colour: str, marker: str
) -> None:
    epochs, values = [p["epoch"] + aside for p in points], [p["value"] for p in points]
    ends = [[p["value"] - p["lower"] for p in points], [p["upper"] - p["value"] for p in points]]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
    axes.errorbar(epochs, values, ends, label=label, linewidth=1, elinewidth=1, capsize=2, **look)
    unsure = [n for n, p in enumerate(points) if not p["reliable"]]
    x, y = [epochs[n] for n in unsure], [values[n] for n in unsure]
    axes.plot(x, y, **look, markerfacecolor="white", linestyle="none", zorder=3)


class Compared(NamedTuple):
    """A figure of ours with its bracket and verdict, beside another's."""

    name: str
    value: float
    lower: float
    upper: float
    reliable: bool
    other: float | None
    singles: tuple[float, ...] = ()  # what a mean is of


def comparison(panels: Mapping[str, Sequence[Compared]], label: str, ours: str = "ours, with bracket") -> Figure:
    """Ours with brackets (hollow: not reliable) beside the paper's: a line for each name, one above the other in it."""
    every = [row for rows in panels.values() for row in rows]
    named = [dict.fromkeys(row.name for row in rows) for rows in panels.values()]
    n_columns = min(len(panels), 2)
    n_rows = -(-len(panels) // n_columns)
    height = 0.5 + n_rows * (0.9 + 0.28 * max(map(len, named)))
    figure = Figure(figsize=(WIDTH, height), facecolor="white", layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, names, (title, rows) in zip(grid, named, panels.items(), strict=False):
        for place, name in enumerate(names):
            own = [row for row in rows if row.name == name]
            for number, row in enumerate(own):
                y = place + 0.6 * ((number + 0.5) / len(own) - 0.5)
                # Caps taller than the mark show brackets that are shorter than it.
                axes.plot([row.lower, row.upper], [y, y], "|-", color=BLUE, linewidth=1.2, markersize=9)
                axes.plot(row.singles, [y] * len(row.singles), "|", color=INK, markersize=5)
                axes.plot(
                    row.value, y, "o", color=BLUE, markerfacecolor=BLUE if row.reliable else "white", markersize=4
                )
            if own[0].other is not None:
                axes.plot(own[0].other, place, "x", color=VERMILION, markersize=7, markeredgewidth=1.8)
        axes.set_yticks(range(len(names)), list(names))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.margins(x=0.07)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        titled(axes, title, label, "")
        axes.grid(axis="x", color=GAP, linewidth=0.6, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    keys = _verdict_keys([row.reliable for row in every], ours)
    if any(row.singles for row in every):
        keys.append(Line2D([], [], color=INK, marker="|", linestyle="none", label="seeds"))
    if any(row.other is not None for row in every):
        keys.append(Line2D([], [], color=VERMILION, marker="x", linestyle="none", label="the paper's"))
    figure.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _verdict_keys(verdicts: Sequence[bool], name: str) -> list[Line2D]:
    """Entries of a legend, for those kinds of points alone that occur."""
    kinds = {name: BLUE} if any(verdicts) else {}
    if not all(verdicts):
        kinds["not reliable" if kinds else f"{name}; not reliable"] = "white"
    style: dict[str, Any] = {"color": BLUE, "marker": "o", "markersize": 4.5, "linewidth": 1.2}
    return [Line2D([], [], markerfacecolor=face, label=label, **style) for label, face in kinds.items()]


class Valued(NamedTuple):
    """A likelihood with its bracket and verdict, and the effective size, at a value of a setting."""

    x: float
    value: float
    lower: float
    upper: float
    reliable: bool
    effective_size: float


def sensitivity(panels: Mapping[str, Sequence[Valued]], label: str) -> Figure:
    """Likelihoods with brackets (hollow: not reliable), and sizes below them, over a setting: a column each."""
    figure = Figure(figsize=(WIDTH, 4.2), facecolor="white", layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False, sharex=True, height_ratios=[2, 1])
    for (upper, lower), (title, points) in zip(grid.T, panels.items(), strict=True):
        for p in points:
            # Caps wider than the mark show brackets that are shorter than it.
            upper.plot([p.x, p.x], [p.lower, p.upper], "_-", color=BLUE, linewidth=1.2, markersize=12)
            upper.plot(p.x, p.value, "o", color=BLUE, markerfacecolor=BLUE if p.reliable else "white", markersize=4.5)
        lower.plot(
            [p.x for p in points], [p.effective_size for p in points], "s", color=INK, markersize=5, clip_on=False
        )
        titled(upper, title, "", "mean test log-likelihood, nats" if upper is grid[0, 0] else "")
        titled(lower, "", label, "effective size $N_h$" if lower is grid[1, 0] else "")
        for axes in (upper, lower):
            plain_axes(axes, zero=axes is lower)
            axes.set_xticks(sorted({p.x for p in points}))
    verdicts = [p.reliable for points in panels.values() for p in points]
    keys = _verdict_keys(verdicts, "value, with bracket")
    figure.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return figure
