"""The command line: ``irbm``."""

import sys
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from irbm.estimators import InfiniteRBM
from irbm.evaluation import partition

app = typer.Typer(
    help="Restricted Boltzmann machines that choose their own size.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
console = Console()


@app.callback()
def options(
    ctx: typer.Context, debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False
) -> None:
    """Options of every command."""
    ctx.obj = {"debug": debug}


@app.command()
def demo(seed: Annotated[int, typer.Option(help="Seed of the small machine.")] = 0) -> None:
    """Show a small infinite RBM: its z-table, and its exact ln Z by two independent routes."""
    rng = np.random.default_rng(seed)
    model = InfiniteRBM.from_parameters(rng.normal(0, 2, (5, 8)), rng.normal(0, 1, 5), rng.normal(0, 1, 8))
    X = rng.integers(0, 2, (4, 8))
    table = Table(title="p(z | v): how many hidden units each example uses")
    for name in ["v", *(f"z = {k}" for k in range(1, 6)), "z > 5"]:
        table.add_column(name)
    for row, p in zip(X, np.exp(model.log_prob_z(X)), strict=True):
        table.add_row("".join(map(str, row)), *(f"{value:.3f}" for value in p))
    console.print(table)
    console.print(f"ln Z over 2^8 visible states: {partition.sum_over_visible(model.machine_):.12f}")
    console.print(f"ln Z over 2^5 hidden states:  {partition.sum_over_hidden(model.machine_):.12f}")
    console.print(f"ln p(v): {np.round(model.score_samples(X), 4)}")


def main() -> None:
    """Run a command; a failure is one line on standard error and a non-zero status."""
    try:
        app()
    except (ValueError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True).print(f"[red]error:[/red] {error}")
        sys.exit(2 if isinstance(error, ValueError) else 1)


if __name__ == "__main__":
    main()
