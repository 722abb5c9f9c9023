"""``irbm sample``."""

import io
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from irbm.cli.console import say
from irbm.estimators.base import check_count, check_seed
from irbm.files import write_bytes
from irbm.runs import Run


def sample(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that has ended training.")],
    out: Annotated[Path, typer.Option(help="The file to write: a picture (.png), or an array (.npy) of 0 and 1.")],
    n_samples: Annotated[int, typer.Option(help="How many, each from a chain of its own.")] = 100,
    n_steps: Annotated[int, typer.Option(help="Gibbs steps from uniform noise.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Draw samples from a trained machine into a picture or an array.

    Examples: irbm sample runs/digits --out samples.png

    irbm sample runs/digits --out samples.npy --n-samples 10000 --n-steps 500 --seed 1
    """
    if out.suffix not in (".png", ".npy"):
        raise ValueError(f"out must end in .png or .npy, got {str(out)!r}")
    if out.exists() and not force:
        raise ValueError(f"{out} exists already: --force overwrites it")
    check_count("n_samples", n_samples)
    check_count("n_steps", n_steps)
    check_seed(seed)
    shape = _image_shape(Run(run)) if out.suffix == ".png" else None
    from irbm.report import run_chains  # matplotlib is slow to import

    drawn = run_chains(Run(run).model(), n_samples, n_steps, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, _as_npy(drawn) if shape is None else _as_png(drawn.reshape(-1, *shape)))
    say(str(out))


def _image_shape(run: Run) -> tuple[int, int]:
    examples = run.config().load_data()
    if examples.image_shape is None:
        raise ValueError(f"{examples.name} has no image shape to draw: use --out with a name that ends in .npy")
    return examples.image_shape


def _as_png(images: NDArray[np.uint8]) -> bytes:
    from irbm import plots  # matplotlib is slow to import

    return plots.to_png(plots.image_grid(images, columns=math.ceil(math.sqrt(len(images)))))


def _as_npy(samples: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, samples)
    return buffer.getvalue()
