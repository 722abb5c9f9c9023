"""What a discriminative training step costs: in hidden units, in classes, in visible units.

``python benchmarks/discriminative.py`` prints a table and writes results/discriminative_cost.json. W v is shared by the
labels, so that an example costs O(l (D + C)): the time must grow no faster than in proportion to each of them.
"""

import time
from typing import Any

import numpy as np
import torch

from irbm.experiments.results import stamp, write_json
from irbm.models import Infinite
from irbm.models.build import from_arrays
from irbm.training import Settings, Trainer, TrainingState

OUT = "results/discriminative_cost.json"
BATCH = 100
STEPS = 40
SIZES = {"n_visible": 784, "n_classes": 10, "n_hidden": 400}
OVER = {"n_hidden": [100, 200, 400, 800, 1600], "n_classes": [5, 10, 20, 50, 101], "n_visible": [98, 196, 392, 784]}
OTHERS = [{"n_visible": 64, "n_classes": 10, "n_hidden": 200}, {"n_visible": 784, "n_classes": 101, "n_hidden": 700}]


def milliseconds(n_visible: int, n_classes: int, n_hidden: int, gradient: str = "expected") -> float:
    """Processor time of the quickest of a few steps of the trainer, growth held: others use the machine too."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    labels = {"label_weights": draw(n_hidden, n_classes), "label_bias": draw(n_classes)}
    machine = from_arrays(draw(n_hidden, n_visible), draw(n_hidden), draw(n_visible), depth=Infinite(), **labels)
    settings = Settings(objective="discriminative", max_components=n_hidden, batch_size=BATCH, gradient=gradient)
    X = torch.from_numpy((rng.random((BATCH, n_visible)) < 0.3).astype(np.uint8))
    y = torch.from_numpy(rng.integers(0, n_classes, BATCH))
    trainer = Trainer(TrainingState.start(machine, settings, seed=0), X, y, settings=settings)
    times = []
    for _ in range(STEPS):
        began = time.process_time()
        trainer.step(torch.arange(BATCH))
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of ln time over ln size, between the two largest sizes: 1 where time is in proportion."""
    return float(np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2]))


def main() -> None:
    torch.set_num_threads(1)
    rows, slopes = [], {}
    for name, values in OVER.items():
        found = [{**SIZES, name: value} for value in values]
        times = [milliseconds(**sizes) for sizes in found]
        rows += [{**sizes, "milliseconds": t} for sizes, t in zip(found, times, strict=True)]
        slopes[name] = exponent(values, times)
    rows += [{**sizes, "milliseconds": milliseconds(**sizes)} for sizes in OTHERS]
    sampled = milliseconds(**SIZES, gradient="sampled")
    print(f"{'D':>5} {'C':>5} {'l':>5} {'ms a step':>10}")
    for row in rows:
        print(f"{row['n_visible']:5} {row['n_classes']:5} {row['n_hidden']:5} {row['milliseconds']:10.2f}")
    print("time grows like size to the power " + ", ".join(f"{s:.2f} ({name})" for name, s in slopes.items()))
    print(f"sampled gradient (29) at {SIZES}: {sampled:.2f} ms")
    result = {"batch_size": BATCH, "steps": rows, "exponents": slopes, "sampled_milliseconds": sampled, **stamp("cpu")}
    write_json(OUT, result)


if __name__ == "__main__":
    main()
