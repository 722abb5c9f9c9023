"""What all pictures share: sizes, colours, plain axes."""

import io
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

DPI = 160
WIDTH = 7.0  # inches, of a figure that fills a page
GAP = "#c3cad4"
INK = "#22262d"
FAINT = "#5c6470"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def plain_axes(axes: Axes, *, zero: bool = True) -> None:
    """A faint grid and two spines; whole numbers along x, and y from 0."""
    if zero:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=GAP, linewidth=0.6, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def titled(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=9, color=FAINT)
    axes.set_ylabel(y, fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)


def bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def shade(number: int, count: int) -> Any:
    """One of so many colours from dark to light that keep their order in grey too."""
    return colormaps["viridis"](0.9 * number / max(count - 1, 1))
