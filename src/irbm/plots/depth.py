"""How deep examples reach: p(z | v) of n examples and l hidden units."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from irbm.plots.style import BLUE, FAINT, GAP, GREEN, INK, PURPLE, VERMILION, WIDTH, plain_axes, titled


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
    titled(axes[0], "p(z | v) of each example", "z, hidden units that take part", "examples, by likeliest z")
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
        titled(axes, title, "$z_m$", "test examples")
        plain_axes(axes)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _edges(first: int, regrouped: int, l: int) -> NDArray[np.float64]:
    """Edges of about 60 bins of z in first + 1..l, one of them between M and M + 1: no bar lies on both sides."""
    width = -(-(l - first) // 60)
    edges = np.arange(regrouped - width * -(-(regrouped - first) // width), l + width, width)
    return np.unique(edges.clip(first, l)) + 0.5


def depth_panels(panels: Mapping[str, Mapping[str, tuple[NDArray[Any], int]]]) -> Figure:
    """p(z | v) of examples sorted by likeliest z, (n, l), and how many units were regrouped (0: no line).

    A column for each data set, a row for each way that any of them has.
    """
    ways = list(dict.fromkeys(way for column in panels.values() for way in column))
    figure = Figure(figsize=(WIDTH, 2.6 * len(ways)), facecolor="white", layout="constrained")
    grid = figure.subplots(len(ways), len(panels), squeeze=False)
    for row, way in zip(grid, ways, strict=True):
        for axes, (title, column) in zip(row, panels.items(), strict=True):
            if way not in column:
                axes.set_axis_off()
                continue
            p_z, regrouped = column[way]
            n, l = p_z.shape
            scale = max(float(np.quantile(p_z.max(1), 0.9)), 1e-6)
            axes.imshow(p_z, aspect="auto", extent=(0.5, l + 0.5, n + 0.5, 0.5), cmap="GnBu", vmin=0, vmax=scale)
            axes.axvline(l + 0.5, color=INK, linewidth=0.8)
            axes.text(l + 0.5, 0.98 * n, " $l$", color=INK, fontsize=9, va="bottom")
            if regrouped:
                axes.axvline(regrouped + 0.5, color=VERMILION, linestyle="--", linewidth=1.2)
                axes.text(regrouped, 0.98 * n, "$M_T$ ", color=VERMILION, fontsize=9, ha="right", va="bottom")
            titled(axes, "", "z", "examples, by likeliest z")
            axes.set_title(f"{title}, {way}", fontsize=9, color=INK, loc="left")
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
            plain_axes(axes, zero=False)
        titled(column[0], title, "", "p(z ≤ i | v)")
        titled(column[1], "", "i", "ln p(z ≤ i | v)")
    grid[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left")
    note = "Lines: medians; bands: 5 % to 95 %, and all examples; dashed: $M_T$"
    figure.supxlabel(note, fontsize=8, color=INK)
    return figure
