"""Pictures of machines and of their training: arrays in, a matplotlib figure out. Nothing global is touched.

Shapes: n images of h x w pixels; n examples, l hidden units.
"""

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter, StrMethodFormatter
from numpy.typing import NDArray

DPI = 160
WIDTH = 7.0  # inches, of a figure that fills a page
GAP = "#c3cad4"
INK = "#22262d"
FAINT = "#5c6470"
NAMED_CLASSES = 25  # with more of them a confusion matrix shows no counts, and not every name

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SIZES = {
    "n_components": ("hidden units $l$", INK, "-"),
    "effective_size": ("effective size $N_h$", BLUE, "-"),
    "mean_z": ("mean likeliest $z$", VERMILION, "-"),
    "regrouped": ("regrouped units $M_t$", GREEN, "--"),
}
MARKERS = {"forward": (BLUE, "oshX*d"), "reverse": (VERMILION, "v^<>P8")}


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


# -- images -------------------------------------------------------------------------------------------------


def image_grid(images: NDArray[Any], columns: int = 10, *, title: str = "", diverging: bool = False) -> Figure:
    """Images (n, h, w), row by row.

    0 is white and 1 is black; or, ``diverging``, for weights: white at 0, red above it, blue below, one scale for all.
    """
    cells = _tiled(np.asarray(images, np.float64), columns)
    enlarged = max(1, int(WIDTH * DPI) // cells.shape[1])  # whole pixels a cell, so that all gaps look alike
    height, width = (enlarged * count / DPI for count in cells.shape)
    head, side = 0.32 if title else 0.0, 0.75 if diverging else 0.0
    figure = Figure(figsize=(width + side, height + head), facecolor="white")
    axes = figure.add_axes((0, 0, width / (width + side), height / (height + head)), facecolor=GAP)
    _bare(axes)
    limit = _limit(images) if diverging else 1.0
    lowest, colours = (-limit, "RdBu_r") if diverging else (0.0, "Greys")
    picture = axes.imshow(cells, cmap=colours, vmin=lowest, vmax=limit, interpolation="nearest", aspect="auto")
    if diverging:
        key = figure.add_axes(
            ((width + 0.1) / (width + side), 0.02, 0.1 / (width + side), 0.9 * height / (height + head))
        )
        bar = figure.colorbar(picture, cax=key, extend="both")
        bar.ax.tick_params(labelsize=8, colors=FAINT)
        bar.set_label("weight", fontsize=8, color=FAINT)
    figure.text(0, 1, title, va="top", fontsize=11, color=INK)
    return figure


def image_grids(grids: Mapping[str, NDArray[Any]], columns: int = 10, *, diverging: bool = False) -> Figure:
    """Several grids of images side by side, two in a row, each under its name; colours as in ``image_grid``."""
    across = min(2, len(grids))
    down = -(-len(grids) // across)
    cells = {name: _tiled(np.asarray(images, np.float64), columns) for name, images in grids.items()}
    side = WIDTH / across
    heights = [
        max(c.shape[0] / c.shape[1] for c in list(cells.values())[row * across :][:across]) for row in range(down)
    ]
    figure = Figure(
        figsize=(WIDTH, sum(side * h for h in heights) + 0.3 * down), facecolor="white", layout="constrained"
    )
    panels = figure.subplots(down, across, squeeze=False, height_ratios=heights).ravel()
    limit = _limit(np.concatenate([np.ravel(images) for images in grids.values()])) if diverging else 1.0
    lowest, colours = (-limit, "RdBu_r") if diverging else (0.0, "Greys")
    for axes, (name, tiles) in zip(panels, cells.items(), strict=False):
        _bare(axes)
        axes.set_facecolor(GAP)
        axes.imshow(tiles, cmap=colours, vmin=lowest, vmax=limit, interpolation="nearest")
        axes.set_anchor("N")
        axes.set_title(name, fontsize=9, color=INK, loc="left")
    for axes in panels[len(grids) :]:
        axes.set_axis_off()
    return figure


def _tiled(images: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """One array of all images, with a line of NaN around each."""
    n, h, w = images.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    cells = np.full((rows * columns, h + 1, w + 1), np.nan)
    cells[:n, :h, :w] = images
    grid = cells.reshape(rows, columns, h + 1, w + 1).swapaxes(1, 2).reshape(rows * (h + 1), columns * (w + 1))
    return np.pad(grid, ((1, 0), (1, 0)), constant_values=np.nan)


def _limit(images: NDArray[Any]) -> float:
    """The end of the scale: few weights lie beyond it, and those cannot wash out all others."""
    return float(np.quantile(np.abs(images), 0.995)) or 1.0


def _bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


# -- training -----------------------------------------------------------------------------------------------


def curves(rows: Sequence[Mapping[str, float]]) -> Figure:
    """The sizes and the reconstruction error of each epoch, from rows of metrics."""
    figure = Figure(figsize=(WIDTH, 2.9), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    epoch = [row["epoch"] for row in rows]
    marker = "o" if len(rows) == 1 else None
    for name, (label, colour, style) in SIZES.items():
        values = [row[name] for row in rows]
        if any(values):
            left.plot(epoch, values, style, color=colour, label=label, linewidth=1.6, marker=marker)
    left.legend(frameon=False, fontsize=8, labelcolor=INK)
    error = [row["reconstruction_error"] for row in rows]
    right.plot(epoch, error, color=PURPLE, linewidth=1.6, marker=marker)
    _label(left, "Size", "epoch", "hidden units")
    _label(right, "Reconstruction error", "epoch", "mean |v - p(v | h)| a pixel")
    for axes in (left, right):
        _plain_axes(axes)
    return figure


def growth(panels: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """l after each epoch: a panel for each name, a line for each way to train, (seeds, epochs), with one sd."""
    figure = Figure(figsize=(WIDTH, 3.0), facecolor="white", layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, sizes) in enumerate(lines.items()):
            colour = _shade(number, len(lines))
            epoch = np.arange(1, sizes.shape[1] + 1)
            mean, spread = sizes.mean(0), sizes.std(0, ddof=min(1, len(sizes) - 1))
            axes.plot(epoch, mean, color=colour, label=name, linewidth=1.6, marker="o" if len(epoch) == 1 else None)
            axes.fill_between(epoch, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        spread_out = any(len(sizes) > 1 for sizes in lines.values())
        _label(axes, title, "epoch", "hidden units $l$; band: 1 sd" if spread_out else "hidden units $l$")
        _plain_axes(axes)
        axes.legend(title="$M_t$", title_fontsize=8, frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _shade(number: int, count: int) -> Any:
    """One of so many colours from dark to light that keep their order in grey too."""
    return colormaps["viridis"](0.9 * number / max(count - 1, 1))


def _plain_axes(axes: Axes, *, zero: bool = True) -> None:
    """A faint grid and two spines; whole numbers along x, and y from 0."""
    if zero:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=GAP, linewidth=0.6, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=9, color=FAINT)
    axes.set_ylabel(y, fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)


# -- classification -----------------------------------------------------------------------------------------


def confusion(counts: NDArray[Any], names: Sequence[str]) -> Figure:
    """Counts (C, C) of true (row) against predicted (column) labels; colours are shares of a row, errors alone.

    What is classified right would outshine every error, so the diagonal is grey.
    """
    C = len(counts)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    wrong = np.where(np.eye(C, dtype=bool), np.nan, share)
    side = WIDTH * 0.8
    figure = Figure(figsize=(side, side * 0.88), facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(GAP)
    top = max(float(np.nanmax(wrong)) if C > 1 else 0.0, 1e-6)
    picture = axes.imshow(wrong, cmap="OrRd", vmin=0, vmax=top)
    _label(axes, "", "predicted", "true")
    # A long list of labels shows every few of them.
    ticks = np.arange(0, C, -(-C // NAMED_CLASSES))
    labels = [_short(names[int(i)]) for i in ticks]
    axes.set_xticks(ticks, labels, rotation=90 if max(map(len, labels)) > 3 else 0)
    axes.set_yticks(ticks, labels)
    axes.spines[:].set_visible(False)
    if C <= NAMED_CLASSES:
        for row, column in zip(*np.nonzero(counts), strict=True):
            dark = row != column and share[row, column] > 0.6 * top
            colour = "white" if dark else INK
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(picture, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("share of the true label's examples", fontsize=9, color=FAINT)
    bar.ax.tick_params(labelsize=8, colors=FAINT)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"


def error_curves(panels: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Errors after each epoch, (seeds, epochs), on a log scale: a panel for each rate, mean and range of each way."""
    figure = Figure(figsize=(WIDTH, 2.9), facecolor="white", layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        for (name, errors), (colour, marker) in zip(lines.items(), ((BLUE, "o"), (VERMILION, "s")), strict=True):
            epoch, percent = np.arange(1, errors.shape[1] + 1), 100 * errors
            axes.plot(epoch, percent.mean(0), color=colour, marker=marker, markersize=4, label=name)
            axes.fill_between(epoch, percent.min(0), percent.max(0), color=colour, alpha=0.18, linewidth=0)
        axes.set_yscale("log")
        _label(axes, title, "epoch", "validation error, %" if axes is grid[0] else "")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7)))  # labels of 8 and 9 would touch that of 10
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        axes.tick_params(axis="y", which="minor", labelsize=7, colors=FAINT)
        _plain_axes(axes, zero=False)
    legend = {"title": "mean; band: range", "title_fontsize": 8} if len(errors) > 1 else {}
    grid[-1].legend(frameon=False, fontsize=8, labelcolor=INK, **legend)
    return figure


# -- speed --------------------------------------------------------------------------------------------------


def scaling(series: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> Figure:
    """Milliseconds a step over each size: one panel a size, one line for each (size, time) sequence in it.

    Both axes are logarithmic, and times go over the same decades in all panels: straight lines of slope 1 are costs in
    proportion to a size.
    """
    columns = 3
    n_rows = -(-len(series) // columns)
    figure = Figure(figsize=(WIDTH, 0.4 + 2.3 * n_rows), facecolor="white", layout="constrained")
    panels = figure.subplots(n_rows, columns, squeeze=False, sharey=True).ravel()
    styles = ((INK, "-"), (BLUE, "--"), (GREEN, ":"))
    for place, (axes, (label, lines)) in enumerate(zip(panels, series.items(), strict=False)):
        for (name, points), (colour, style) in zip(lines.items(), styles, strict=False):
            axes.loglog(*zip(*points, strict=True), style, color=colour, marker="o", markersize=3, label=name)
        _label(axes, "", label, "" if place % columns else "ms a step")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.grid(color=GAP, linewidth=0.6, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(series) :]:
        axes.set_axis_off()
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    return figure


# -- depth --------------------------------------------------------------------------------------------------


def depth_map(log_p_z: NDArray[Any], *, tail: bool = True) -> Figure:
    """p(z | v) of n examples, (n, l+1), sorted by their likeliest z; the last column, z > l, stands apart, framed.

    ``tail=False``: (n, l), for a machine whose z ends at l.
    """
    p_z = np.exp(np.asarray(log_p_z, np.float64))
    l = p_z.shape[1] - tail  # the tail is not one z
    p_z = p_z[np.argsort(p_z[:, :l].argmax(axis=1), kind="stable")]
    inside, n = p_z[:, :l], len(p_z)
    figure = Figure(figsize=(WIDTH, 3.6), facecolor="white", layout="constrained")
    axes = figure.subplots(1, 1 + tail, squeeze=False, width_ratios=[24, 1][: 1 + tail])[0]
    # Where most rows have their peak; the few sharper ones are beyond the scale.
    scale: dict[str, Any] = {"cmap": "GnBu", "vmin": 0, "vmax": max(float(np.quantile(p_z.max(1), 0.9)), 1e-6)}
    picture = axes[0].imshow(inside, aspect="auto", extent=(0.5, l + 0.5, n + 0.5, 0.5), **scale)
    _label(axes[0], "p(z | v) of each example", "z, hidden units that take part", "examples, by likeliest z")
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].spines[:].set_color(GAP)
    if tail:
        axes[1].imshow(p_z[:, -1:], aspect="auto", **scale)
        axes[1].set(xticks=[0], xticklabels=["z > l"], yticks=[])
        axes[1].tick_params(labelsize=8, colors=VERMILION)
        axes[1].spines[:].set_color(VERMILION)
    bar = figure.colorbar(picture, ax=axes, extend="max", pad=0.02)
    bar.set_label("p(z | v)", fontsize=9, color=FAINT)
    bar.ax.tick_params(labelsize=8, colors=FAINT)
    return figure


def depth_histograms(panels: Mapping[str, tuple[NDArray[Any], int]]) -> Figure:
    """How many examples have each likeliest z: counts of z = 1..l, and M, how many units were regrouped."""
    figure = Figure(figsize=(WIDTH, 2.8), facecolor="white", layout="constrained")
    for axes, (title, (counts, regrouped)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        l = len(counts)
        first = max(
            0, min(regrouped, int(np.flatnonzero(counts)[0])) - l // 20
        )  # what is empty on the left is left out
        axes.hist(np.arange(1, l + 1), _edges(first, regrouped, l), weights=counts, color=BLUE)
        axes.axvline(regrouped + 0.5, color=VERMILION, linestyle="--", linewidth=1.2, label=f"$M_T$ = {regrouped}")
        axes.axvline(l + 0.5, color=INK, linewidth=0.8, label=f"$l$ = {l}")
        _label(axes, title, "$z_m$", "test examples")
        _plain_axes(axes)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _edges(first: int, regrouped: int, l: int) -> NDArray[np.float64]:
    """Edges of about 60 bins of z in first + 1..l, one of them between M and M + 1: no bar lies on both sides."""
    width = -(-(l - first) // 60)
    edges = np.arange(regrouped - width * -(-(regrouped - first) // width), l + width, width)
    return np.unique(edges.clip(first, l)) + 0.5


def depth_panels(panels: Mapping[str, tuple[NDArray[Any], int]], columns: int) -> Figure:
    """ln p(z | v) of examples sorted by likeliest z, (n, l), and how many units were regrouped (0: no line).

    Panels come one data set after the other and are shown with a column for each.
    """
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 2.6 * rows), facecolor="white", layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).T.ravel()
    for axes, (title, (log_p, regrouped)) in zip(grid, panels.items(), strict=True):
        p_z = np.exp(log_p)
        n, l = p_z.shape
        scale = max(float(np.quantile(p_z.max(1), 0.9)), 1e-6)
        axes.imshow(p_z, aspect="auto", extent=(0.5, l + 0.5, n + 0.5, 0.5), cmap="GnBu", vmin=0, vmax=scale)
        axes.axvline(l + 0.5, color=INK, linewidth=0.8)
        axes.text(l + 0.5, 0.98 * n, " $l$", color=INK, fontsize=9, va="bottom")
        if regrouped:
            axes.axvline(regrouped + 0.5, color=VERMILION, linestyle="--", linewidth=1.2)
            axes.text(regrouped, 0.98 * n, "$M_T$ ", color=VERMILION, fontsize=9, ha="right", va="bottom")
        _label(axes, title, "z", "examples, by likeliest z")
        axes.set_title(title, fontsize=9, color=INK, loc="left")
        axes.set_xlim(0.5, 1.06 * l)
        axes.set_yticks([])
    return figure


def cumulative_depth(panels: Mapping[str, Mapping[str, tuple[NDArray[Any], int]]]) -> Figure:
    """ln p(z <= i | v) over i: for each way in a panel the least, 5 %, median, 95 % and largest of all examples.

    Bands are (5, l), and come with M, how many units were regrouped: a dashed line.
    """
    figure = Figure(figsize=(WIDTH, 5.0), facecolor="white", layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False, sharex="col")
    for column, (title, ways) in zip(grid.T, panels.items(), strict=True):
        for (way, (bands, regrouped)), color in zip(
            ways.items(), itertools.cycle((BLUE, VERMILION, GREEN, PURPLE)), strict=False
        ):
            i = np.arange(1, bands.shape[1] + 1)
            for axes, values in zip(column, (np.exp(bands), bands), strict=True):
                axes.fill_between(i, values[0], values[-1], color=color, alpha=0.10, linewidth=0)
                axes.fill_between(i, values[1], values[-2], color=color, alpha=0.25, linewidth=0)
                axes.plot(i, values[2], color=color, linewidth=1.4, label=way)
                axes.axvline(regrouped, color=color, linestyle="--", linewidth=1.2)
        for axes in column:
            _plain_axes(axes, zero=False)
        _label(column[0], title, "", "p(z ≤ i | v)")
        _label(column[1], "", "i", "ln p(z ≤ i | v)")
    grid[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left")
    note = "Lines: medians; bands: 5 % to 95 %, and all examples; dashed: $M_T$"
    figure.supxlabel(note, fontsize=8, color=INK)
    return figure


# -- likelihoods --------------------------------------------------------------------------------------------


def annealing(trials: Sequence[Mapping[str, Any]], lower: float, upper: float, exact: float | None = None) -> Figure:
    """Forward and reverse estimates of ln Z, with 4 standard errors, from short paths to long ones; the bracket.

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
    _label(axes, "Estimates of ln Z", "points of the path, and chains below", "ln Z; bars: 4 standard errors")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def likelihood_curves(lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Mean log-likelihood over epochs with its bracket; hollow where it is not reliable."""
    figure = Figure(figsize=(WIDTH, 3.6), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(lines.items()):
        colour, marker = _shade(number, len(lines)), "os^vDP"[number % 6]
        epoch = [p["epoch"] for p in points]
        axes.plot(
            epoch, [p["value"] for p in points], color=colour, linewidth=1.2, label=name, marker=marker, markersize=4
        )
        axes.fill_between(
            epoch, [p["lower"] for p in points], [p["upper"] for p in points], color=colour, alpha=0.15, linewidth=0
        )
        unsure = [p for p in points if not p["reliable"]]
        hollow = {"markerfacecolor": "white", "color": colour, "markersize": 4, "linestyle": "none"}
        axes.plot([p["epoch"] for p in unsure], [p["value"] for p in unsure], marker=marker, **hollow)
    _label(axes, "", "epoch", "mean test log-likelihood, nats")
    _plain_axes(axes, zero=False)
    sure = all(p["reliable"] for points in lines.values() for p in points)
    title = "band: bracket" if sure else "band: bracket\nhollow: not reliable"
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, title=title, title_fontsize=8)
    return figure


class Compared(NamedTuple):
    """A figure of ours with its bracket and verdict, beside another's."""

    name: str
    value: float
    lower: float
    upper: float
    reliable: bool
    other: float | None


def comparison(panels: Mapping[str, Sequence[Compared]], label: str, ours: str = "ours, with bracket") -> Figure:
    """Ours with brackets (hollow: not reliable) beside the paper's: a line for each name, one above the other in it."""
    every = [row for rows in panels.values() for row in rows]
    named = [dict.fromkeys(row.name for row in rows) for rows in panels.values()]
    figure = Figure(figsize=(WIDTH, 1.4 + 0.28 * max(map(len, named))), facecolor="white", layout="constrained")
    for axes, names, (title, rows) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], named, panels.items(), strict=True
    ):
        for place, name in enumerate(names):
            own = [row for row in rows if row.name == name]
            for number, row in enumerate(own):
                y = place + 0.6 * ((number + 0.5) / len(own) - 0.5)
                # Caps taller than the mark show brackets that are shorter than it.
                axes.plot([row.lower, row.upper], [y, y], "|-", color=BLUE, linewidth=1.2, markersize=9)
                axes.plot(
                    row.value, y, "o", color=BLUE, markerfacecolor=BLUE if row.reliable else "white", markersize=4
                )
            if own[0].other is not None:
                axes.plot(own[0].other, place, "x", color=VERMILION, markersize=7, markeredgewidth=1.8)
        axes.set_yticks(range(len(names)), list(names))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        _label(axes, title, label, "")
        axes.grid(axis="x", color=GAP, linewidth=0.6, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    keys = _verdict_keys([row.reliable for row in every], ours)
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
        _label(upper, title, "", "mean test log-likelihood, nats" if upper is grid[0, 0] else "")
        _label(lower, "", label, "effective size $N_h$" if lower is grid[1, 0] else "")
        for axes in (upper, lower):
            _plain_axes(axes, zero=axes is lower)
            axes.set_xticks(sorted({p.x for p in points}))
    verdicts = [p.reliable for points in panels.values() for p in points]
    keys = _verdict_keys(verdicts, "value, with bracket")
    figure.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return figure
