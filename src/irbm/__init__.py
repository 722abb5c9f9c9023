"""Restricted Boltzmann machines that choose their own size, with likelihoods that can be trusted."""

from irbm import data
from irbm.estimators import RBM, FrankWolfeRBM, InfiniteRBM, InfiniteRBMClassifier, OrderedRBM, RBMClassifier
from irbm.evaluation.partition import LogPartition
from irbm.version import __version__

__all__ = [
    "RBM",
    "FrankWolfeRBM",
    "InfiniteRBM",
    "InfiniteRBMClassifier",
    "LogPartition",
    "OrderedRBM",
    "RBMClassifier",
    "__version__",
    "data",
]
