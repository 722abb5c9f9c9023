"""The command line: ``irbm``."""

import io
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from irbm import data
from irbm.assessment import LIKELIHOODS, assess, doubts, likelihood
from irbm.data import sources
from irbm.estimators.base import check_count, check_seed, choose_device
from irbm.evaluation.classification import error_rate
from irbm.experiments.results import stamp, write_json
from irbm.files import write_bytes
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
UNRELIABLE = 3
DEMO_RUN = Path("runs/demo")
DEMO_BUDGET = 1000  # points of the longest annealing schedule
DEMO: dict[str, Any] = {"dataset": "digits", "n_iter": 120, "learning_rate": 0.1, "batch_size": 50, "beta": 1.1}


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False) -> None:
    """Restricted Boltzmann machines that choose their own size."""


def _say(text: str) -> None:
    """A line as it is: no wrapping, no markup, so that paths can be copied."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


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
    return typer.Option(help=escape(help_text), rich_help_panel=panel, show_default=False, **more)


@app.command()
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
    objective: Annotated[
        str | None, _option("hybrid, discriminative or generative. [hybrid]", "Classification")
    ] = None,
    alpha: Annotated[
        float | None, _option("Weight of the generative part of hybrid. [0.005]", "Classification")
    ] = None,
    label_max_norm: Annotated[
        str | None, _option("Bound on a row of label weights, or none. [5]", "Classification", parser=parse_optional)
    ] = None,
    n_permutations: Annotated[
        int | None, _option("Predictions average over so many orders. [none]", "Classification")
    ] = None,
    validate: Annotated[
        bool | None, _option("Keep the epoch that validates best. [yes to classify, else no]", "Training")
    ] = None,
    patience: Annotated[
        int | None, _option("End once so many epochs in a row validated no better. [never]", "Training")
    ] = None,
    gibbs_steps: Annotated[int | None, _option("Sweeps of the negative phase. [10]", "Sampling")] = None,
    persistent: Annotated[bool | None, _option("PCD, or CD with --no-persistent. [yes]", "Sampling")] = None,
    n_chains: Annotated[int | None, _option("Persistent chains. [batch size]", "Sampling")] = None,
    gradient: Annotated[str | None, _option("expected or sampled. [expected]", "Sampling")] = None,
) -> None:
    """Train a machine and write a run directory.

    Examples: irbm train digits --out runs/digits --n-iter 50

    irbm train binarized_mnist --out runs/mnist --device cuda --l1 1e-4 --gibbs-steps 10

    irbm train digits --task classify --out runs/labels --learning-rate 0.1 --patience 30
    """
    control = {"out", "config", "resume", "force", "quiet"}
    given = {n: v for n, v in locals().items() if n not in control and n != "control" and v is not None}
    flags = {n: None if v == "none" else v for n, v in given.items()}
    run = Run(out)
    if run.files() and not run.exists() and not force:
        raise ValueError(f"{out} holds {run.files()[0].name} that is not of a run: --force replaces it")
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
    """What is asked for on a resume must be what the run was started with, but for more epochs."""
    saved = run.config().complete()
    for name, value in asked.items():
        if name != "n_iter" and saved.get(name, value) != value:
            raise ValueError(f"{name} is {saved[name]!r} in {run.config_file} and {value!r} was asked for")
    wanted = Config.from_table(saved | asked)
    if "n_iter" in asked and asked["n_iter"] != saved["n_iter"]:
        least = run.epochs_begun()
        if asked["n_iter"] < least:
            raise ValueError(f"n_iter must be at least {least}, the epochs {run.path} has begun, got {asked['n_iter']}")
        run.write_config(wanted)


def _train(run: Run, examples: data.Dataset, quiet: bool) -> None:
    config = run.config()
    step, epoch = run.position()
    if run.ended():
        _say(f"{run.path} has ended training already, at epoch {epoch}, step {step}")
        return
    if step:
        _say(f"resumed from step {step} (epoch {epoch})")
    if quiet:
        ended = run.train(examples)
    else:
        with ProgressBar() as bar:
            ended = run.train(examples, [bar])
    if not ended:
        step, epoch = run.position()
        command = shlex.join(["irbm", "train", config.dataset, "--out", str(run.path), "--resume"])
        _say(f"stopped at step {step} (epoch {epoch}); to go on: {command}")
        raise typer.Exit(INTERRUPTED)
    model = run.model()
    own = model._report()
    _say(
        f"{run.path}: {own.n_components} hidden units (effective size {own.effective_size:.1f}) "
        f"after {own.epoch} epochs, reconstruction error {own.reconstruction_error:.4f}"
    )
    if config.validates:
        _say(_validation_line(model, examples.validation))


def _validation_line(model: Any, held: data.Split) -> str:
    """Which epoch the validation split chose, and how good it is."""
    chosen = f"epoch {model.best_epoch_} of {len(model.history_)} validates best"
    if held.y is None or not hasattr(model, "predict"):
        return f"{chosen}: mean pseudo-log-likelihood {model.history_[model.best_epoch_ - 1]['validation_score']:.3f}"
    return f"{chosen}: error {error_rate(held.y, model.predict(held.X))} of {len(held.X):,} validation examples"


# -- what came of it ----------------------------------------------------------------------------------------


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that has ended training.")],
) -> None:
    """Write RUN/report.html: one page with curves, filters, samples and depths, which opens from disk.

    Example: irbm report runs/digits
    """
    from irbm.report import write_report  # matplotlib is slow to import

    _say(str(write_report(Run(run))))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that has ended training.")],
    part: Annotated[str, typer.Option("--data", help="The split to judge by: train, validation or test.")] = "test",
    tol: Annotated[float, typer.Option(help="Try to close the bracket of ln Z to so many nats.")] = 0.1,
    budget: Annotated[
        int | None, typer.Option(help=escape("Points of the longest annealing path. [8000]"), show_default=False)
    ] = None,
    permutations: Annotated[
        int, typer.Option(help="Average p(v) over so many orders of the hidden units too (infinite models).")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Judge a trained machine: likelihood with its bracket and a verdict, sizes, errors of a classifier.

    Writes RUN/evaluation.json and RUN/evaluation.png. Exit status 3: a likelihood is not reliable, and why is printed.

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
    _say(str(place.evaluation_file))
    for doubt in doubts(found):
        _say(f"NOT reliable: {doubt}")
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


@app.command()
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
    _say(str(out))


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


# -- data ---------------------------------------------------------------------------------------------------


@app.command("data")
def data_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A known set to find or download, or your own file.")
    ] = None,
    binarize: Annotated[float | None, typer.Option(help="Map values above it to 1, for your own files.")] = None,
) -> None:
    """List the known data sets and where their files are; or find, download and verify one.

    Examples: irbm data

    irbm data mnist

    irbm data shop.csv --binarize 0.5
    """
    if name is None:
        for known in data.KNOWN:
            _say(f"{known}: {_whereabouts(known)}")
        return
    examples = data.load(name, binarize=binarize)
    for path in data.fetch(name, progress=False) if name in data.KNOWN else ():
        _say(f"{path}: verified")
    for part in ("train", "validation", "test"):
        split = getattr(examples, part)
        labels = "no labels" if split.y is None else f"{len(np.unique(split.y))} classes"
        _say(f"{part}: {len(split.X):,} x {split.X.shape[1]}, {labels}")
    _say(examples.note)


def _whereabouts(name: str) -> str:
    """Where the files of a known set are, or how to get them. Nothing is read or downloaded."""
    if not data.SOURCES[name]:
        return "comes with scikit-learn"
    places = list(sources.folders())
    found = [next((f / s.file for f in places if (f / s.file).is_file()), None) for s in data.SOURCES[name]]
    if all(found):
        return ", ".join(map(str, found))
    if all(source.urls for source in data.SOURCES[name]):
        return f"not here; `irbm data {name}` downloads it"
    missing = data.SOURCES[name][0]
    return f"not here; get it from {missing.home} and put it at {places[0] / missing.file}"


# -- speed --------------------------------------------------------------------------------------------------


@app.command()
def bench(
    device: Annotated[str, typer.Option(help=escape("cpu or cuda. [the GPU where there is one]"))] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Also series over each size: long.")] = False,
    repetitions: Annotated[int, typer.Option(help="Repetitions, whose median counts.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Time a training step and an annealing step beside their matrix products and other RBMs.

    Examples: irbm bench --device cpu

    irbm bench --device cuda --scaling --json results/bench_cuda.json
    """
    from irbm import bench as benchmark  # slow to import, as are its peers

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch sees no GPU here: use --device cpu")
    check_count("repetitions", repetitions)
    check_seed(seed)
    if json_file is not None and json_file.exists() and not force:
        raise ValueError(f"{json_file} exists already: --force overwrites it")
    with console.status("") as status:
        result = benchmark.run(
            device, scaling=scaling, repetitions=repetitions, seed=seed, report=lambda line: status.update(escape(line))
        )
    for table in benchmark.tables(result):
        console.print(table)
    if json_file is not None:
        write_json(json_file, result)
        _say(str(json_file))


# -- the paper ----------------------------------------------------------------------------------------------


@app.command("reproduce")
def reproduce_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="fig4 to fig11, table1, table2, beta, or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="The bundled digits, in seconds; written to OUT/quick.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="One of the experiment's data sets alone.")] = None,
    only: Annotated[str | None, typer.Option(help="Some rows of a table, with commas.")] = None,
    seeds: Annotated[str | None, typer.Option(help="With commas; by default the experiment's own.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Train for at most so many, to try things out.")] = None,
    budget: Annotated[
        int | None, typer.Option(help="Points of annealing for table 1's last estimates; more repeats them alone.")
    ] = None,
    device: Annotated[str | None, typer.Option(help=escape("cpu or cuda. [the GPU where there is one]"))] = None,
    out: Annotated[Path, typer.Option(help="The folder for results, pictures and trainings.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Trainings at the same time.")] = 1,
) -> None:
    """Reproduce a figure or a table of the paper: OUT/NAME.json and OUT/NAME.png.

    Stopped and started again it goes on where it was; trainings that figures share happen once.

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
    for one in names(name, lab):
        try:
            result = reproduce(one, lab)
        except KeyboardInterrupt:
            _say(f"{one}: stopped; the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None
        _say(f"{one}: {lab.folder / one}.json and .png, {result['wall_seconds']:.0f} s")


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers >= 0, with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"{name} must be whole numbers with commas, such as 0,1,2, got {text!r}")
    return tuple(map(int, parts))


# -- demo ---------------------------------------------------------------------------------------------------


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help=escape(f"The run directory. [{DEMO_RUN}, which is replaced]"))
    ] = None,
    n_iter: Annotated[int, typer.Option(help="Passes over the data.")] = DEMO["n_iter"],
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Start over where --out holds a run already.")] = False,
) -> None:
    """Train an infinite RBM on the bundled digits and write a report: a minute from start to end.

    Example: irbm demo
    """
    run = Run(out or DEMO_RUN)
    if out is not None and run.exists() and not force:
        raise ValueError(f"{out} holds a run already: --force starts over")
    torch.set_num_threads(1)  # digits are too small to gain by a second one, which on a busy machine costs tenfold
    config = Config.from_table(DEMO | {"n_iter": n_iter, "seed": seed})
    examples = config.load_data()
    run.begin(config)
    _say(f"training an infinite RBM with random permutation: {examples.note}")
    _train(run, examples, quiet=False)
    _say(_likelihood_line(run.model(), examples))
    from irbm.report import write_report  # matplotlib is slow to import

    _say(f"report: {write_report(run)}")
    again = shlex.join(["irbm", "train", "digits", "--out", str(run.path), "--resume", "--n-iter", str(2 * n_iter)])
    _say(f"next: open the report in a browser; train on with {again}; or train on your own data: irbm train --help")


def _likelihood_line(model: Any, examples: data.Dataset) -> str:
    """The mean log-likelihood of the test set, with the bracket of ln Z and the verdict on it."""
    X = examples.test.X
    own = likelihood(model, X, model.log_partition(data=examples.train.X, budget=DEMO_BUDGET))
    verdict = "reliable" if own["reliable"] else f"NOT reliable: {own['reason']}"
    return f"mean log-likelihood of {len(X)} test examples: in [{own['lower']:.2f}, {own['upper']:.2f}] nats, {verdict}"


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


if __name__ == "__main__":
    main()
