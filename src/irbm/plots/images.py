"""Grids of images: examples, samples, filters. n images of h x w pixels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm.plots.style import DPI, FAINT, GAP, INK, WIDTH, bare

COLUMNS = 10  # of a grid


def image_grid(images: NDArray[Any], columns: int = COLUMNS, *, diverging: bool = False) -> Figure:
    """Images (n, h, w), row by row.

    0 is white and 1 is black; or, ``diverging``, for weights: white at 0, red above it, blue below, one scale for all.
    """
    cells = _tiled(np.asarray(images, np.float64), columns)
    enlarged = max(1, int(WIDTH * DPI) // cells.shape[1])  # whole pixels a cell, so that all gaps look alike
    height, width = (enlarged * count / DPI for count in cells.shape)
    side = 0.75 if diverging else 0.0
    figure = Figure(figsize=(width + side, height), facecolor="white")
    axes = figure.add_axes((0, 0, width / (width + side), 1), facecolor=GAP)
    bare(axes)
    limit = _limit(images) if diverging else 1.0
    lowest, colours = (-limit, "RdBu_r") if diverging else (0.0, "Greys")
    picture = axes.imshow(cells, cmap=colours, vmin=lowest, vmax=limit, interpolation="nearest", aspect="auto")
    if diverging:
        key = figure.add_axes(((width + 0.1) / (width + side), 0.02, 0.1 / (width + side), 0.9))
        bar = figure.colorbar(picture, cax=key, extend="both")
        bar.ax.tick_params(labelsize=8, colors=FAINT)
        bar.set_label("weight", fontsize=8, color=FAINT)
    return figure


def image_grids(grids: Mapping[str, NDArray[Any]], *, diverging: bool = False) -> Figure:
    """Several grids of images side by side, two in a row, each under its name; colours as in ``image_grid``."""
    across = min(2, len(grids))
    down = -(-len(grids) // across)
    cells = {name: _tiled(np.asarray(images, np.float64), COLUMNS) for name, images in grids.items()}
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
        bare(axes)
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
