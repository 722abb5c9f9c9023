"""``irbm demo``."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape

from irbm import data
from irbm.assessment import likelihood
from irbm.cli.console import say
from irbm.cli.train import train_run
from irbm.runs import Config, Run

DEMO_RUN = Path("runs/demo")
DEMO_BUDGET = 1000  # points of the longest annealing schedule
DEMO: dict[str, Any] = {"dataset": "digits", "n_iter": 120, "learning_rate": 0.1, "batch_size": 50, "beta": 1.1}


def demo(
    out: Annotated[
        Path | None, typer.Option(help=escape(f"The run directory. [{DEMO_RUN}, where the same demo is replaced]"))
    ] = None,
    n_iter: Annotated[int, typer.Option(help="Passes over the data.")] = DEMO["n_iter"],
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Start over where --out holds a run already.")] = False,
) -> None:
    """Train an infinite RBM on the bundled digits and write a report: a minute from start to end.

    Example: irbm demo
    """
    run = Run(out or DEMO_RUN)
    config = Config.from_table(DEMO | {"n_iter": n_iter, "seed": seed})
    if run.exists() and not force and (out is not None or not _is_demo(run, config)):
        raise ValueError(f"{run.path} holds a run already: --force starts over, --out names another place")
    torch.set_num_threads(1)  # digits are too small to gain by a second one, which on a busy machine costs tenfold
    examples = config.load_data()
    run.begin(config)
    say(f"training an infinite RBM with random permutation: {examples.note}")
    train_run(run, examples, quiet=False)
    say(likelihood_line(run.model(), examples))
    from irbm.report import write_report  # matplotlib is slow to import

    say(f"report: {write_report(run)}")
    again = shlex.join(["irbm", "train", "digits", "--out", str(run.path), "--resume", "--n-iter", str(2 * n_iter)])
    say(f"next: open the report in a browser; train on with {again}; or train on your own data: irbm train --help")


def _is_demo(run: Run, config: Config) -> bool:
    """Whether it is a run of the demo, perhaps with another seed, and not one that was trained on."""
    return run.config().complete() | {"seed": None} == config.complete() | {"seed": None}


def likelihood_line(model: Any, examples: data.Dataset) -> str:
    """The mean log-likelihood of the test set, with the bracket of ln Z and the verdict on it."""
    X = examples.test.X
    own = likelihood(model, X, model.log_partition(data=examples.train.X, budget=DEMO_BUDGET))
    verdict = "reliable" if own["reliable"] else f"NOT reliable: {own['reason']}"
    return f"mean log-likelihood of {len(X)} test examples: in [{own['lower']:.2f}, {own['upper']:.2f}] nats, {verdict}"
