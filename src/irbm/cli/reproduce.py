"""``irbm reproduce``."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.markup import escape

from irbm.cli.console import INTERRUPTED, say
from irbm.estimators.base import check_count, choose_device

WHAT = (
    "table1 likelihoods, table2 errors, fig4 growth, fig5 and fig6 p(z|v), fig7 regularisation, fig8 filters, "
    "fig9 samples, fig10 depths, fig11 speed, beta the cost of a unit, or all."
)


def reproduce_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=WHAT)],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="The bundled digits, a minute or two each: shows that it runs and what comes out, and is no evidence "
            "for the paper. Written to OUT/quick.",
        ),
    ] = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="One data set alone: binarized_mnist or caltech101_silhouettes; of table2 also mnist_intensities. "
            "Not with --quick."
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help='Some rows of table1, table2 or fig7 alone, with commas, such as "iRBM RP,RBM" of table1.'),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="With commas, such as 0,1,2; by default the experiment's own: seed 0 alone for table1."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Train for at most so many, to try things out.")] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help=escape(
                "Annealing work for the last likelihoods of table1 and fig7: given, these alone are done again, not "
                "the trainings. Larger costs time in proportion. [8000]"
            )
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help=escape("cpu or cuda. [the GPU where there is one]"))] = None,
    out: Annotated[Path, typer.Option(help="The folder for results, pictures and trainings.")] = Path("results"),
    jobs: Annotated[
        int, typer.Option(help="Trainings at the same time: several fill a GPU better, best where NVIDIA's MPS runs.")
    ] = 1,
) -> None:
    """Reproduce a figure or a table of the paper: OUT/NAME.json and OUT/NAME.png.

    Stopped and started again it goes on where it was; trainings that figures share happen once.

    On a GPU most take minutes; all rows of table1, table2 or fig7 an hour or two.
    One row of table1 is a few minutes there, and half an hour or more on a CPU.

    Examples: irbm reproduce table1 --dataset caltech101_silhouettes --only "iRBM RP"

    irbm reproduce all --quick
    """
    from irbm.experiments.lab import Lab  # matplotlib is slow to import
    from irbm.experiments.reproduce import names, reproduce

    check_count("jobs", jobs)
    for option, value in (("epochs", epochs), ("budget", budget)):
        if value is not None:
            check_count(option, value)
    lab = Lab(
        out=out,
        device=str(choose_device(device)),
        quick=quick,
        seeds=None if seeds is None else _numbers("seeds", seeds),
        datasets=None if dataset is None else (dataset,),
        only=None if only is None else tuple(part.strip() for part in only.split(",")),
        epochs=epochs,
        budget=budget,
        jobs=jobs,
    )
    chosen = names(name, lab)
    if quick:
        torch.set_num_threads(1)  # digits are too small to gain by a second one, which on a busy machine costs tenfold
    for one in chosen:
        try:
            result = reproduce(one, lab)
        except KeyboardInterrupt:
            say(f"{one}: stopped; the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None
        say(f"{one}: {lab.folder / one}.json and .png, {result['wall_seconds']:.0f} s")


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers >= 0, with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"{name} must be whole numbers with commas, such as 0,1,2, got {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))
