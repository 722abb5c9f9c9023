"""``irbm train``."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from irbm import data
from irbm.cli.console import INTERRUPTED, say
from irbm.estimators.base import choose_device
from irbm.evaluation.classification import error_rate
from irbm.runs import Config, Run, read_toml
from irbm.training.progress import ProgressBar


def parse_regroup(text: str) -> str | float:
    """A word, or a fraction."""
    try:
        return float(text)
    except ValueError:
        return text


def _or_none(kind: type[int] | type[float]) -> dict[str, Any]:
    """What an option needs that takes a number of a kind, or "none"."""
    return {"parser": lambda text: text if text == "none" else kind(text), "metavar": f"<{kind.__name__}|none>"}


def _option(help_text: str, panel: str, **more: Any) -> Any:
    return typer.Option(help=escape(help_text), rich_help_panel=panel, show_default=False, **more)


def train(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help=f"One of {', '.join(data.KNOWN)}, or a .npz, .npy, .csv, .mat or .h5 file."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run directory to write.")],
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags win over it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run, or start it if it is missing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start over where there is a run already.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    task: Annotated[str | None, _option("density, or classify, for data with labels. [density]", "Model")] = None,
    model: Annotated[str | None, _option("infinite, ordered or fixed (the classic RBM). [infinite]", "Model")] = None,
    n_components: Annotated[int | None, _option("Size of an ordered or fixed model. [256]", "Model")] = None,
    max_components: Annotated[
        str | None,
        _option("Growth of an infinite model stops there, to bound time and memory. [none]", "Model", **_or_none(int)),
    ] = None,
    beta: Annotated[
        float | None, _option("Cost of a hidden unit; > 1 for infinite. 1.1 grows a smaller machine. [1.01]", "Model")
    ] = None,
    penalty: Annotated[
        str | None,
        _option("What a unit costs: the same for all (constant) or by its bias (softplus). [constant]", "Model"),
    ] = None,
    binarize: Annotated[float | None, _option("Map values above it to 1, for your own files.", "Training")] = None,
    n_iter: Annotated[
        int | None, _option("Passes over the data; a thousand examples want a hundred and more. [50]", "Training")
    ] = None,
    seed: Annotated[int | None, _option("Seed of everything random. [0]", "Training")] = None,
    device: Annotated[str | None, _option("cpu or cuda; by default the GPU where there is one.", "Training")] = None,
    batch_size: Annotated[
        int | None, _option("Examples a step; fewer where examples are few. [100]", "Training")
    ] = None,
    learning_rate: Annotated[
        float | None,
        _option("Global rate. Lower it where training diverges; 0.1 or 0.2 for a small data set. [0.05]", "Training"),
    ] = None,
    optimizer: Annotated[
        str | None,
        _option(
            "The rule for the rate: adagrad, the same for all (constant), or falling with the steps (decay). [adagrad]",
            "Training",
        ),
    ] = None,
    momentum: Annotated[
        bool | None, _option("Momentum that rises with a unit's age; meant for constant and decay. [no]", "Training")
    ] = None,
    averaging: Annotated[
        str | None,
        _option(
            "Keep averages of the parameters over so many updates, such as 1000, or none: less noise. [none]",
            "Training",
            **_or_none(int),
        ),
    ] = None,
    l1: Annotated[
        float | None,
        _option(
            "Brings weights to exactly zero: more gives smaller, sparser machines. 0.001 for few examples. [0.0001]",
            "Training",
        ),
    ] = None,
    l2: Annotated[
        float | None,
        _option("Shrinks all weights in proportion: 0.0001, with --l1 0. L1 served the paper better. [0]", "Training"),
    ] = None,
    max_norm: Annotated[
        str | None, _option("Bound on the norm of a unit's weights, or none. [10]", "Training", **_or_none(float))
    ] = None,
    regroup: Annotated[
        str | None,
        _option(
            "Random permutation, how many units a step mixes: adaptive (the paper's schedule), a fraction (with 0.8 "
            "or more it may grow far: set --max-components), or none (the ordinary infinite RBM). [adaptive]",
            "Training",
            parser=parse_regroup,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        _option(
            "What is maximised: ln p(y|v) (discriminative), ln p(v,y) (generative), or the first plus alpha times the "
            "second (hybrid). [hybrid]",
            "Classification",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        _option(
            "Weight of the generative part of hybrid; raise it, to 0.1, where examples are few. [0.005]",
            "Classification",
        ),
    ] = None,
    label_max_norm: Annotated[
        str | None,
        _option("Bound on the norm of a unit's label weights, or none. [5]", "Classification", **_or_none(float)),
    ] = None,
    n_permutations: Annotated[
        str | None,
        _option(
            "Predictions average over so many orders of the units; the paper takes 5. [none]",
            "Classification",
            **_or_none(int),
        ),
    ] = None,
    validate: Annotated[
        bool | None,
        _option(
            "Keep the epoch that validates best, by errors, or the pseudo-likelihood of densities. "
            "[yes to classify, else no]",
            "Training",
        ),
    ] = None,
    patience: Annotated[
        str | None,
        _option("With --validate: end after so many epochs that were no better. [never]", "Training", **_or_none(int)),
    ] = None,
    gibbs_steps: Annotated[
        int | None,
        _option(
            "Sweeps of the negative phase: more is nearer to the true gradient, and costs in proportion. [10]",
            "Sampling",
        ),
    ] = None,
    persistent: Annotated[
        bool | None,
        _option(
            "Chains go on from step to step (PCD); --no-persistent starts them at the examples (CD). [yes]", "Sampling"
        ),
    ] = None,
    n_chains: Annotated[
        str | None,
        _option("Persistent chains: more make a less noisy gradient. [batch size]", "Sampling", **_or_none(int)),
    ] = None,
    gradient: Annotated[
        str | None,
        _option(
            "Sum over z exactly (expected), or draw it as Algorithm 1 does (sampled: noisier). [expected]", "Sampling"
        ),
    ] = None,
) -> None:
    """Train a machine and write a run directory.

    Examples: irbm train digits --out runs/digits --n-iter 50

    irbm train binarized_mnist --out runs/mnist --device cuda --l1 1e-4 --gibbs-steps 10

    irbm train digits --task classify --out runs/labels --learning-rate 0.1 --patience 30
    """
    control = {"out", "config", "resume", "force", "quiet"}
    given = {n: v for n, v in locals().items() if n not in control and n != "control" and v is not None}
    flags = {n: None if v == "none" else v for n, v in given.items()}
    if Path(dataset).is_file():  # a run knows it from wherever it is asked
        flags["dataset"] = str(Path(dataset).resolve())
    run = Run(out)
    if run.files() and not run.exists() and not force:
        raise ValueError(f"{out} holds {run.files()[0].name} that is not of a run: --force replaces it")
    if run.exists() and not force:
        if not resume:
            raise ValueError(f"{out} holds a run already: --resume continues it, --force starts over")
        _reconcile(run, {**(read_toml(config) if config else {}), **flags})
        train_run(run, run.config().load_data(), quiet)
    else:
        wanted = Config.from_table({**(read_toml(config) if config else {}), **flags})
        examples = wanted.load_data()
        run.begin(wanted)
        train_run(run, examples, quiet)


def _reconcile(run: Run, asked: dict[str, Any]) -> None:
    """What is asked for on a resume must be what the run was started with, but for more epochs."""
    saved = run.config().complete()
    for name, value in asked.items():
        same = name == "device" and choose_device(saved[name]) == choose_device(value)
        if name != "n_iter" and saved.get(name, value) != value and not same:
            raise ValueError(f"{name} is {saved[name]!r} in {run.config_file} and {value!r} was asked for")
    wanted = Config.from_table(saved | asked)
    if "n_iter" in asked and asked["n_iter"] != saved["n_iter"]:
        least = run.epochs_begun()
        if asked["n_iter"] < least:
            raise ValueError(f"n_iter must be at least {least}, the epochs {run.path} has begun, got {asked['n_iter']}")
        run.write_config(wanted)


def train_run(run: Run, examples: data.Dataset, quiet: bool) -> None:
    config = run.config()
    step, epoch = run.position()
    if run.ended():
        say(f"{run.path} has ended training already, at epoch {epoch}, step {step}")
        return
    if step:
        say(f"resumed from step {step} (epoch {epoch})")
    if quiet:
        ended = run.train(examples)
    else:
        with ProgressBar() as bar:
            ended = run.train(examples, [bar])
    if not ended:
        step, epoch = run.position()
        command = shlex.join(["irbm", "train", config.dataset, "--out", str(run.path), "--resume"])
        say(f"stopped at step {step} (epoch {epoch}); to go on: {command}")
        raise typer.Exit(INTERRUPTED)
    model = run.model()
    own = model._report()
    say(
        f"{run.path}: {own.n_components} hidden units (effective size {own.effective_size:.1f}) "
        f"after {own.epoch} epochs, reconstruction error {own.reconstruction_error:.4f}"
    )
    if config.validates:
        say(_validation_line(model, examples.validation))


def _validation_line(model: Any, held: data.Split) -> str:
    """Which epoch the validation split chose, and how good it is."""
    chosen = f"epoch {model.best_epoch_} of {len(model.history_)} validates best"
    if held.y is None or not hasattr(model, "predict"):
        return f"{chosen}: mean pseudo-log-likelihood {model.history_[model.best_epoch_ - 1]['validation_score']:.3f}"
    return f"{chosen}: error {error_rate(held.y, model.predict(held.X))} of {len(held.X):,} validation examples"
