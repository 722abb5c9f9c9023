"""Confusion of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm.plots.style import FAINT, GAP, INK, WIDTH, titled

NAMED_CLASSES = 25  # with more of them a confusion matrix shows no counts, and not every name


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
    titled(axes, "", "predicted", "true")
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
