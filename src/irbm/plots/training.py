"""Training over epochs: sizes, growth, errors, and times over sizes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter, StrMethodFormatter
from numpy.typing import NDArray

from irbm.plots.style import BLUE, FAINT, GAP, GREEN, INK, PURPLE, VERMILION, WIDTH, plain_axes, shade, titled

SIZES = {
    "n_components": ("hidden units $l$", INK, "-"),
    "effective_size": ("effective size $N_h$", BLUE, "-"),
    "mean_z": ("mean likeliest $z$", VERMILION, "-"),
    "regrouped": ("regrouped units $M_t$", GREEN, "--"),
}


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
    titled(left, "Size", "epoch", "hidden units")
    titled(right, "Reconstruction error", "epoch", "mean |v - p(v | h)| a pixel")
    for axes in (left, right):
        plain_axes(axes)
    return figure


def growth(panels: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """l after each epoch: a panel for each name, a line for each way to train, (seeds, epochs), with one sd."""
    figure = Figure(figsize=(WIDTH, 3.0), facecolor="white", layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, sizes) in enumerate(lines.items()):
            colour = shade(number, len(lines))
            epoch = np.arange(1, sizes.shape[1] + 1)
            mean, spread = sizes.mean(0), sizes.std(0, ddof=min(1, len(sizes) - 1))
            axes.plot(epoch, mean, color=colour, label=name, linewidth=1.6, marker="o" if len(epoch) == 1 else None)
            axes.fill_between(epoch, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        spread_out = any(len(sizes) > 1 for sizes in lines.values())
        titled(axes, title, "epoch", "hidden units $l$; band: 1 sd" if spread_out else "hidden units $l$")
        plain_axes(axes)
        axes.legend(title="$M_t$", title_fontsize=8, frameon=False, fontsize=8, labelcolor=INK)
    return figure


def error_curves(panels: Mapping[str, Mapping[str, NDArray[Any]]], columns: int) -> Figure:
    """Errors after each epoch, (seeds, epochs), on a log scale: a panel for each rate, mean and range of each way."""
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 0.1 + 2.8 * n_rows), facecolor="white", layout="constrained")
    grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True).ravel()
    looks = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"))
    for place, (axes, (title, lines)) in enumerate(zip(grid, panels.items(), strict=True)):
        for (name, errors), (colour, marker) in zip(lines.items(), looks[: len(lines)], strict=True):
            epoch, percent = np.arange(1, errors.shape[1] + 1), 100 * errors
            axes.plot(epoch, percent.mean(0), color=colour, marker=marker, markersize=4, label=name)
            axes.fill_between(epoch, percent.min(0), percent.max(0), color=colour, alpha=0.18, linewidth=0)
        axes.set_yscale("log")
        titled(axes, title, "epoch", "" if place % columns else "validation error, %")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7)))  # labels of 8 and 9 would touch that of 10
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        axes.tick_params(axis="y", which="minor", labelsize=7, colors=FAINT)
        plain_axes(axes, zero=False)
    legend = {"title": "mean; band: range", "title_fontsize": 8} if len(errors) > 1 else {}
    grid[columns - 1].legend(frameon=False, fontsize=8, labelcolor=INK, **legend)
    return figure


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
        titled(axes, "", label, "" if place % columns else "ms a step")
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
