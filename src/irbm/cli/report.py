"""``irbm report``."""

from pathlib import Path
from typing import Annotated

import typer

from irbm.cli.console import say
from irbm.runs import Run


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that has ended training.")],
) -> None:
    """Write RUN/report.html: one page with curves, filters, samples and depths, which opens from disk.

    Example: irbm report runs/digits
    """
    from irbm.report import write_report  # matplotlib is slow to import

    say(str(write_report(Run(run))))
