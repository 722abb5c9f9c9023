"""Pictures of machines and of their training: arrays in, a matplotlib figure out. Nothing global is touched."""

from irbm.plots.confusion import NAMED_CLASSES, confusion
from irbm.plots.depth import cumulative_depth, depth_histograms, depth_map, depth_panels
from irbm.plots.images import image_grid, image_grids
from irbm.plots.likelihoods import Compared, Valued, annealing, comparison, likelihood_curves, sensitivity
from irbm.plots.style import DPI, WIDTH, to_png
from irbm.plots.training import curves, error_curves, growth, scaling

__all__ = [
    "DPI",
    "NAMED_CLASSES",
    "WIDTH",
    "Compared",
    "Valued",
    "annealing",
    "comparison",
    "confusion",
    "cumulative_depth",
    "curves",
    "depth_histograms",
    "depth_map",
    "depth_panels",
    "error_curves",
    "growth",
    "image_grid",
    "image_grids",
    "likelihood_curves",
    "scaling",
    "sensitivity",
    "to_png",
]
