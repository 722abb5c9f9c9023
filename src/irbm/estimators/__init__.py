"""The machines with scikit-learn's manners: NumPy in, NumPy out, settings as constructor arguments."""

from irbm.estimators.classifier import InfiniteRBMClassifier, RBMClassifier
from irbm.estimators.density import RBM, InfiniteRBM, OrderedRBM
from irbm.estimators.frank_wolfe import FrankWolfeRBM

__all__ = ["RBM", "FrankWolfeRBM", "InfiniteRBM", "InfiniteRBMClassifier", "OrderedRBM", "RBMClassifier"]
