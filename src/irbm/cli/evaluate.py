"""``irbm evaluate``."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from irbm.assessment import LIKELIHOODS, assess, doubts
from irbm.cli.console import UNRELIABLE, console, say
from irbm.estimators.base import check_count, check_seed
from irbm.experiments.results import stamp, write_json
from irbm.files import write_bytes
from irbm.runs import Run


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that has ended training.")],
    part: Annotated[str, typer.Option("--data", help="The split to judge by: train, validation or test.")] = "test",
    tol: Annotated[float, typer.Option(help="Try to close the bracket of ln Z to so many nats.")] = 0.1,
    budget: Annotated[
        int | None,
        typer.Option(
            help=escape(
                "Points of the longest annealing path, and with them the time. 1000: a first look; 32000 where it is "
                "not reliable. [8000]"
            ),
            show_default=False,
        ),
    ] = None,
    permutations: Annotated[
        int,
        typer.Option(
            help="Average p(v) over so many orders of the hidden units too (infinite models); each costs an "
            "estimate of its own."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Judge a trained machine: likelihood with its bracket and a verdict, sizes, errors of a classifier.

    Writes RUN/evaluation.json, and RUN/evaluation.png where something was annealed.
    Exit status 3: a likelihood is not reliable, and why is printed.

    Examples: irbm evaluate runs/digits

    irbm evaluate runs/digits --data validation --budget 32000 --permutations 5
    """
    if part not in ("train", "validation", "test"):
        raise ValueError(f"data must be train, validation or test, got {part!r}")
    check_seed(seed)
    if permutations < 0:
        raise ValueError(f"permutations must be >= 0, got {permutations}")
    if budget is not None:
        check_count("budget", budget)
    if not 0 < tol < math.inf:
        raise ValueError(f"tol must be a finite number > 0, got {tol}")
    place = Run(run)
    with console.status("evaluating") as status:
        found = assess(
            place, part, seed=seed, tol=tol, budget=budget, n_permutations=permutations,
            progress=lambda what: status.update(f"evaluating: {what}"),
        )  # fmt: skip
    console.print(_table(found))  # first: it took long, and the folder may not be writable
    write_json(place.evaluation_file, {**found, "seed": seed, **stamp(place.model().machine_.weights.device)})
    if found["log_partition"]["trials"]:
        write_bytes(run / "evaluation.png", _annealing_png(found["log_partition"]))
    else:  # nothing was annealed: a picture of an earlier evaluation would not belong to this one
        (run / "evaluation.png").unlink(missing_ok=True)
    say(str(place.evaluation_file))
    for doubt in doubts(found):
        say(f"NOT reliable: {doubt}")
    if doubts(found):
        raise typer.Exit(UNRELIABLE)


def _annealing_png(log_z: dict[str, Any]) -> bytes:
    from irbm import plots  # matplotlib is slow to import

    return plots.to_png(plots.annealing(log_z["trials"], log_z["lower"], log_z["upper"]))


def _table(found: dict[str, Any]) -> Table:
    """What was found, a line each; a likelihood always with its bracket and verdict."""
    table = Table(
        "", "", "bracket", "reliable", title=f"{found['data']['examples']:,} {found['data']['split']} examples"
    )
    for key, name in LIKELIHOODS.items():
        if key in found:
            own = found[key]
            verdict = "yes" if own["reliable"] else "NO"
            table.add_row(
                name, f"{own['value']:.2f}", f"[{own['lower']:.2f}, {own['upper']:.2f}]".replace("[", r"\["), verdict
            )
    table.add_row("mean pseudo-log-likelihood", f"{found['pseudo_log_likelihood']:.2f}", "", "")
    if "error" in found:
        own = found["error"]
        table.add_row("error, 95 % interval", f"{own['rate']:.2%}", rf"\[{own['lower']:.2%}, {own['upper']:.2%}]", "")
    table.add_row(
        "hidden units l; effective N_h", f"{found['size']['n_components']}; {found['size']['effective_size']:.1f}"
    )
    if "order" in found:
        own = found["order"]
        table.add_row(f"mean ln p(z <= {own['regrouped']} | v), train", f"{own['mean_log_p_z_up_to_regrouped']:.2f}")
    return table
