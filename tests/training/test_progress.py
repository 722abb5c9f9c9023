import io
import re
from types import SimpleNamespace

import numpy as np
import torch
from rich.console import Console

from irbm.models import Infinite
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.initial import initial_machine
from irbm.training.progress import ProgressBar


def test_steps_before_a_resume_do_not_count_as_speed():
    bar = ProgressBar(Console(file=io.StringIO()))
    state = SimpleNamespace(epoch=3, batch=0, step=3000)
    bar.after_segment(SimpleNamespace(state=state, n_batches=10, n_iter=5, known_size=7))
    assert bar._progress.tasks[0].fields["figures"] == "l 7  0 steps/s"
    assert bar._progress.tasks[0].completed == 3


def test_a_bar_that_ended_shows_the_last_epoch():
    bar = ProgressBar(Console(file=io.StringIO()))
    settings = Settings(n_iter=5, batch_size=10, gibbs_steps=1, learning_rate=0.3)  # epochs shorter than a segment
    X = torch.from_numpy((np.random.default_rng(0).random((40, 6)) < 0.4).astype(np.uint8))
    state = TrainingState.start(initial_machine(Infinite(), 6), settings, seed=0)
    last = Trainer(state, X, settings=settings, callbacks=[bar]).run().history[-1]
    shown = re.match(
        r"l (\d+)  M (\d+)  rate 0.3  error (\S+)  (\d+) steps/s", bar._progress.tasks[0].fields["figures"]
    )
    assert shown.groups()[:3] == (str(last.n_components), str(last.regrouped), f"{last.reconstruction_error:.4f}")
    assert int(shown[4]) > 0
    assert bar._progress.finished
