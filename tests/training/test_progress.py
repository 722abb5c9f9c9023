import io
from types import SimpleNamespace

from rich.console import Console

from irbm.training.progress import ProgressBar


def test_steps_before_a_resume_do_not_count_as_speed():
    bar = ProgressBar(Console(file=io.StringIO()))
    state = SimpleNamespace(epoch=3, batch=0, step=3000)
    bar.after_segment(SimpleNamespace(state=state, n_batches=10, n_iter=5, known_size=7))
    assert bar._progress.tasks[0].fields["figures"] == "l 7  0 steps/s"
    assert bar._progress.tasks[0].completed == 3
