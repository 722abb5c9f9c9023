"""The command line: ``irbm``."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from irbm import data
from irbm.runs import Config, Run, read_toml
from irbm.training import DivergenceError
from irbm.training.progress import ProgressBar

app = typer.Typer(
    help="Restricted Boltzmann machines that choose their own size.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()

INTERRUPTED = 130


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False) -> None:
    """Restricted Boltzmann machines that choose their own size."""


def parse_regroup(text: str) -> str | float:
    """A word, or a fraction."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_optional(text: str) -> float | str:
    """A number, or "none"."""
    return "none" if text == "none" else float(text)


def _option(help_text: str, panel: str, **more: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=panel, show_default=False, **more)


@app.command()
def train(
    dataset: Annotated[
        str, typer.Argument(help=f"One of {', '.join(data.KNOWN)}, or a .npz, .npy, .csv, .mat or .h5 file.")
    ],
    out: Annotated[Path, typer.Option(help="The run directory to write.")],
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags win over it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run, or start it if it is missing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start over where there is a run already.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    model: Annotated[str | None, _option("infinite, ordered or fixed (the classic RBM). [infinite]", "Model")] = None,
    n_components: Annotated[int | None, _option("Size of an ordered or fixed model. [256]", "Model")] = None,
    max_components: Annotated[int | None, _option("Growth of an infinite model stops there.", "Model")] = None,
    beta: Annotated[float | None, _option("Cost of a hidden unit; > 1 for infinite. [1.01]", "Model")] = None,
    penalty: Annotated[str | None, _option("constant or softplus. [constant]", "Model")] = None,
    binarize: Annotated[float | None, _option("Map values above it to 1, for your own files.", "Training")] = None,
    n_iter: Annotated[int | None, _option("Passes over the data. [50]", "Training")] = None,
    seed: Annotated[int | None, _option("Seed of everything random. [0]", "Training")] = None,
    device: Annotated[str | None, _option("cpu or cuda; by default the GPU where there is one.", "Training")] = None,
    batch_size: Annotated[int | None, _option("Examples a step. [100]", "Training")] = None,
    learning_rate: Annotated[float | None, _option("Global rate. [0.05]", "Training")] = None,
    optimizer: Annotated[str | None, _option("adagrad, constant or decay. [adagrad]", "Training")] = None,
    momentum: Annotated[bool | None, _option("Momentum that rises with a unit's age. [no]", "Training")] = None,
    l1: Annotated[float | None, _option("L1 penalty. [0.0001]", "Training")] = None,
    l2: Annotated[float | None, _option("L2 penalty. [0]", "Training")] = None,
    max_norm: Annotated[
        str | None, _option("Bound on a row's norm, or none. [10]", "Training", parser=parse_optional)
    ] = None,
    regroup: Annotated[
        str | None,
        _option("Random permutation: adaptive, a fraction, or none. [adaptive]", "Training", parser=parse_regroup),
    ] = None,
    gibbs_steps: Annotated[int | None, _option("Sweeps of the negative phase. [10]", "Sampling")] = None,
    persistent: Annotated[bool | None, _option("PCD, or CD with --no-persistent. [yes]", "Sampling")] = None,
    n_chains: Annotated[int | None, _option("Persistent chains. [batch size]", "Sampling")] = None,
    gradient: Annotated[str | None, _option("expected or sampled z. [expected]", "Sampling")] = None,
) -> None:
    """Train a machine and write a run directory.

    Examples: irbm train digits --out runs/digits --n-iter 50

    irbm train binarized_mnist --out runs/mnist --device cuda --l1 1e-4 --gibbs-steps 10
    """
    control = {"out", "config", "resume", "force", "quiet"}
    given = {n: v for n, v in locals().items() if n not in control and n != "control" and v is not None}
    flags = {n: None if v == "none" else v for n, v in given.items()}
    run = Run(out)
    if run.exists() and not force:
        if not resume:
            raise ValueError(f"{out} holds a run already: --resume continues it, --force starts over")
        _reconcile(run, {**(read_toml(config) if config else {}), **flags})
        _train(run, run.config().load_data(), quiet)
    else:
        wanted = Config.from_table({**(read_toml(config) if config else {}), **flags})
        examples = wanted.load_data()
        run.begin(wanted)
        _train(run, examples, quiet)


def _reconcile(run: Run, asked: dict[str, Any]) -> None:
    """What is asked for on a resume must be what the run was started with, but for the number of epochs."""
    saved = run.config().complete()
    for name, value in asked.items():
        if name != "n_iter" and saved.get(name, value) != value:
            raise ValueError(f"{name} is {saved[name]!r} in {run.config_file} and {value!r} was asked for")
    if asked.get("n_iter", saved["n_iter"]) != saved["n_iter"]:
        run.write_config(Config.from_table(saved | {"n_iter": asked["n_iter"]}))


def _train(run: Run, examples: data.Dataset, quiet: bool) -> None:
    config = run.config()
    step, epoch = run.position()
    if epoch >= config.complete()["n_iter"] and run.model_file.is_file():
        console.print(f"{run.path} has ended training already, at epoch {epoch}, step {step}")
        return
    if step:
        console.print(f"resumed from step {step} (epoch {epoch})")
    if quiet:
        ended = run.train(examples.train.X)
    else:
        with ProgressBar() as bar:
            ended = run.train(examples.train.X, [bar])
    if not ended:
        step, epoch = run.position()
        console.print(f"stopped at step {step} (epoch {epoch}); add --resume to the same command to go on")
        raise typer.Exit(INTERRUPTED)
    last = run.metrics()[-1]
    console.print(
        f"{run.path}: {last['n_components']:.0f} hidden units (effective size {last['effective_size']:.1f}) "
        f"after {last['epoch']:.0f} epochs, reconstruction error {last['reconstruction_error']:.4f}"
    )


def main() -> None:
    """Run a command; a failure is one line on standard error and a non-zero status."""
    try:
        app()
    except (ValueError, OSError, ImportError, DivergenceError) as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(2 if isinstance(error, ValueError) else 1)


if __name__ == "__main__":
    main()
