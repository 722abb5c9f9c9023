"""The command line: ``irbm``, a file a command."""

import importlib.metadata
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from irbm.cli import bench, data, demo, evaluate, report, reproduce, sample, train
from irbm.cli.console import say
from irbm.training import DivergenceError

app = typer.Typer(
    help="Restricted Boltzmann machines that choose their own size.",
    epilog="Begin with: irbm demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    if asked:
        say(f"irbm {importlib.metadata.version('irbm')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Restricted Boltzmann machines that choose their own size."""


app.command()(train.train)
app.command()(report.report)
app.command()(evaluate.evaluate)
app.command()(sample.sample)
app.command("data")(data.data_command)
app.command()(bench.bench)
app.command("reproduce")(reproduce.reproduce_command)
app.command()(demo.demo)


def main() -> None:
    """Run a command; a failure is one line on standard error and a non-zero status."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        said = " ".join(str(error).splitlines())
        if not isinstance(error, ValueError | OSError | ImportError | DivergenceError):
            said = f"{type(error).__name__}: {said} (irbm --debug ... shows where)"
        Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(said)}")
        sys.exit(2 if isinstance(error, ValueError) else 1)
