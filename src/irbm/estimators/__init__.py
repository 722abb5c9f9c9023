"""The machines with scikit-learn's manners: NumPy in, NumPy out, settings as constructor arguments."""

from irbm.estimators.classifier import InfiniteRBMClassifier, RBMClassifier
from irbm.estimators.density import RBM, InfiniteRBM, OrderedRBM

__all__ = ["RBM", "InfiniteRBM", "InfiniteRBMClassifier", "OrderedRBM", "RBMClassifier"]
