"""The only room that changes parameters."""

from irbm.training.callbacks import Callback, EarlyStopping
from irbm.training.checkpoint import Checkpointer
from irbm.training.settings import Settings
from irbm.training.trainer import DivergenceError, Report, Trainer, TrainingState

__all__ = [
    "Callback",
    "Checkpointer",
    "DivergenceError",
    "EarlyStopping",
    "Report",
    "Settings",
    "Trainer",
    "TrainingState",
]
