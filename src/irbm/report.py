"""What came of a run, on one page that opens from disk: report.html, with its pictures inside."""

import base64
import json
import platform
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import sklearn
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.utils import check_random_state

from irbm import plots
from irbm.data import Dataset
from irbm.estimators.base import DEEP_STEPS, check_count
from irbm.evaluation.classification import confusion_matrix, error_rate
from irbm.files import write_bytes
from irbm.runs import Config, Run
from irbm.version import __version__

SHOWN = 100  # filters, samples, examples
STEPS = 1000  # Gibbs sweeps of the samples
PIECE = 20  # of them between two looks at the progress bar
DEPTH_ROWS = 2000  # examples in the depth map: more are not to be told apart

NAMES = {
    "density": {"infinite": "Infinite RBM", "ordered": "Ordered RBM", "fixed": "RBM of fixed size"},
    "classify": {"infinite": "Infinite RBM classifier", "fixed": "RBM classifier of fixed size"},
}

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #22262d; background: #fff; max-width: 60rem; margin: 0 auto;
  padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .5rem; padding-top: 1rem; border-top: 1px solid #dfe3e8; }
p { max-width: 46rem; margin: .5rem 0; overflow-wrap: anywhere; }
p.note, figcaption, footer { color: #5c6470; font-size: .9rem; }
img { display: block; width: 100%; height: auto; }
figure { margin: 1rem 0 0; }
figcaption { margin-top: .4rem; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0 0; }
.figures div { flex: 1 1 10rem; border: 1px solid #dfe3e8; border-radius: .5rem; padding: .7rem 1rem; }
.figures b { display: block; font-size: 1.7rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.figures span { color: #5c6470; font-size: .85rem; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1.25rem; }
.filters { max-width: 44rem; }
.settings { columns: 3 15rem; column-gap: 2rem; font-size: .85rem; margin: 1rem 0 0; }
.settings div { display: flex; justify-content: space-between; gap: 1rem; break-inside: avoid;
  border-bottom: 1px solid #eceff3; padding: .2rem 0; }
.settings dt { color: #5c6470; }
.settings dd { margin: 0; overflow-wrap: anywhere; text-align: right; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-size: .9rem; margin-top: 1rem; }
th, td { text-align: left; font-weight: normal; padding: .25rem 2rem .25rem 0; border-bottom: 1px solid #eceff3; }
th { color: #5c6470; }
.warning { border-left: 4px solid #d55e00; padding: .3rem 0 .3rem .9rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid #dfe3e8; }
"""


def write_report(run: Run) -> Path:
    """Write RUN/report.html, one self-contained page, and say where it is."""
    config, model = run.config(), run.model()
    examples = config.load_data()
    title = f"{NAMES[config.task][config.model]} on {examples.name}"
    sections = [
        _heading(title, config, examples, model),
        _classification(model, examples) if config.classifies else "",
        _evaluation(run.path / "evaluation.json"),
        _settings(config),
        _curves(model.history_),
        *_pictures(model, examples, config),
        _depth(model, examples, config.model),
        _versions(model),
    ]
    page = _page(title, "\n".join(filter(None, sections)))
    path = run.path / "report.html"
    write_bytes(path, page.encode())
    return path


# -- samples ------------------------------------------------------------------------------------------------


def run_chains(model: Any, start: int | NDArray[np.uint8], n_steps: int, seed: int) -> NDArray[np.uint8]:
    """The visibles after so many Gibbs steps from uniform noise, in ``start`` chains, or from examples: (n, D).

    A few steps at a time, for the sake of a progress bar, after those in which ``model.sample`` may hold z deep.
    """
    check_count("n_steps", n_steps)
    rng = check_random_state(seed)
    first = min(n_steps, 2 * DEEP_STEPS)
    pieces = [first, *(min(PIECE, n_steps - done) for done in range(first, n_steps, PIECE))]
    v: Any = start
    console = Console(stderr=True)
    # rich ends even a bar that leaves nothing with an empty line, where it is no terminal
    for steps in track(pieces, "Gibbs sampling", console=console, disable=not console.is_terminal, transient=True):
        if isinstance(v, int):
            v = model.sample(v, n_steps=steps, random_state=rng)
            v = v[0] if isinstance(v, tuple) else v  # a classifier's labels come with it
        else:
            v = model.gibbs(v, steps, random_state=rng)
    return np.asarray(v, np.uint8)


# -- sections -----------------------------------------------------------------------------------------------


def _heading(title: str, config: Config, examples: Dataset, model: Any) -> str:
    """What was trained, and how; figures of the pass that the model comes from."""
    table, own = config.complete(), model._report()
    trained = "maximising ln p(y | v)" if _is_discriminative(table) else f"{_chains(table)}{_goal(table)}"
    regroup = table.get("regroup")
    permuted = "" if regroup is None else f", random permutation of the hidden units ({regroup})"
    passes = len(model.history_)
    chosen = f" Epoch {own.epoch} of {passes} was chosen on the validation split." if model._best_epoch else ""
    figures = [
        (f"{own.n_components}", "hidden units, l"),
        (f"{own.effective_size:.1f}", "effective size, N_h"),
        (f"{own.epoch}", f"epochs, {own.step} steps"),
        (f"{own.reconstruction_error:.3f}", "reconstruction error"),
    ]
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in figures)
    return f"""<h1>{escape(title)}</h1>
{_paragraph(f"Trained by {trained} with {table['optimizer']} at rate {table['learning_rate']:g}{permuted}.{chosen}")}
{_paragraph(f"Data: {examples.note}.", "note")}
<div class="figures">{cells}</div>"""


def _is_discriminative(table: dict[str, Any]) -> bool:
    return table.get("objective") == "discriminative"


def _chains(table: dict[str, Any]) -> str:
    return f"{'PCD' if table['persistent'] else 'CD'}-{table['gibbs_steps']}"


def _goal(table: dict[str, Any]) -> str:
    return f" on ln p(y | v) + {table['alpha']:g} ln p(v, y)," if table.get("objective") == "hybrid" else ""


def _classification(model: Any, examples: Dataset) -> str:
    """Errors with their intervals, and what is taken for what."""
    rates = {name: error_rate(y, model.predict(X)) for name, X, y in _labelled(examples)}
    rows = "".join(
        f"<tr><th>{name}</th><td>{rate.rate:.2%}</td><td>{rate.lower:.2%} to {rate.upper:.2%}</td>"
        f"<td>{rate.errors:,} of {rate.n:,}</td></tr>"
        for name, rate in rates.items()
    )
    head = "<tr><th>split</th><th>error</th><th>95 % interval (Wilson)</th><th>examples</th></tr>"
    _, X, y = list(_labelled(examples))[-1]
    counts, names = confusion_matrix(y, model.predict(X))
    shown = _class_names(examples, names)
    caption = "Test examples by true and predicted label. Colour: the share of a row's examples; the diagonal is grey."
    text = _paragraph("The share of examples whose most probable label is wrong.")
    return _section(
        "Classification",
        f"{text}<table>{head}{rows}</table>" + _figure(plots.confusion(counts, shown), caption, "filters"),
    )


def _labelled(examples: Dataset) -> Iterator[tuple[str, NDArray[np.uint8], NDArray[Any]]]:
    """The splits that have labels, the test split last."""
    for name in ("train", "validation", "test"):
        split = getattr(examples, name)
        if split.y is not None:
            yield name, split.X, split.y


def _class_names(examples: Dataset, labels: NDArray[Any]) -> list[str]:
    """The names of labels where the data set has some, else the labels."""
    if examples.class_names is None:
        return [str(label) for label in labels]
    known = np.unique(np.concatenate([y for *_, y in _labelled(examples)])).tolist()
    return [examples.class_names[known.index(label)] for label in labels.tolist()]


def _settings(config: Config) -> str:
    rows = "".join(f"<div><dt>{escape(n)}</dt><dd>{escape(_plain(v))}</dd></div>" for n, v in config.complete().items())
    return _section("Settings", f'<dl class="settings">{rows}</dl>')


def _evaluation(path: Path) -> str:
    """What evaluation.json says, where there is one."""
    if not path.is_file():
        return ""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): delete it, or evaluate again") from None
    entries = list(_flat(found))
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(_plain(value))}</td></tr>" for name, value in entries)
    doubtful = any(name.endswith("reliable") and value is False for name, value in entries)
    warning = "The estimate of ln Z is not reliable: do not quote this likelihood."
    return _section("Likelihood", (_paragraph(warning, "warning") if doubtful else "") + f"<table>{rows}</table>")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value under readable names."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        if key == "trials":  # evaluation.png shows them
            continue
        yield from _flat(inner, f"{name}, {key}".removeprefix(", ").replace("_", " "))


def _curves(rows: list[dict[str, Any]]) -> str:
    return _section("Training", _figure(plots.curves(rows), "Sizes and reconstruction error by epoch"))


def _pictures(model: Any, examples: Dataset, config: Config) -> Iterator[str]:
    if examples.image_shape is None:
        yield _section("Filters and samples", _paragraph("These data have no image shape, so there are no pictures."))
        return
    yield _filters(model, examples.image_shape)
    if not _is_discriminative(config.complete()):  # such a machine has learned nothing of p(v)
        yield _samples(model, examples, examples.image_shape, config.model)


def _filters(model: Any, shape: tuple[int, int]) -> str:
    W = model.components_[:SHOWN]
    caption = (
        f"The first {len(W)} of {model.n_components_} hidden units in the model's order, row by row. A "
        "pixel in red turns the unit on, and is turned on by it; a pixel in blue the contrary."
    )
    figure = plots.image_grid(W.reshape(-1, *shape), diverging=True)
    return _section("Filters", _figure(figure, caption, "filters"))


def _samples(model: Any, examples: Dataset, shape: tuple[int, int], kind: str) -> str:
    X = examples.test.X[_spread(len(examples.test.X), SHOWN)]
    # Seeds of their own: chains that share their random numbers would meet.
    from_noise, from_data = run_chains(model, len(X), STEPS, 0), run_chains(model, X, STEPS, 1)
    grids = {
        "Test examples": X,
        f"Samples: {STEPS:,} Gibbs steps from uniform noise{_deep(kind)}": from_noise,
        f"Samples: {STEPS:,} Gibbs steps from those test examples": from_data,
    }
    pictures = "".join(_figure(plots.image_grid(v.reshape(-1, *shape)), caption) for caption, v in grids.items())
    mixing = _mixing(model, X, from_noise, from_data) if kind == "infinite" else ""
    return _section("Samples", mixing + f'<div class="beside">{pictures}</div>')


def _deep(kind: str) -> str:
    return "" if kind == "fixed" else f", the first {min(STEPS // 2, DEEP_STEPS)} of them with z = l"


def _mixing(model: Any, *groups: NDArray[np.uint8]) -> str:
    """How far to trust chains from noise: the depth that they have reached tells."""
    # The pooled tail, the last column, is not one z.
    test, from_noise, from_data = (float(np.median(model.log_prob_z(X)[:, :-1].argmax(axis=1) + 1)) for X in groups)
    return _paragraph(
        "Between noise, at a small z, and data, at a large z, an infinite RBM can have a first-order transition, so "
        "chains from noise may stay in the noise for very long. Holding z at l for some steps takes them out; whether "
        "they are back where the data are, chains that start at test examples tell. "
        f"The median likeliest z is {test:.0f} for the test examples, {from_noise:.0f} where chains from noise have "
        f"ended, and {from_data:.0f} where chains from the test examples have."
    )


def _depth(model: Any, examples: Dataset, kind: str) -> str:
    if kind == "fixed":  # its z is always l
        return ""
    log_p_z = model.log_prob_z(examples.test.X[_spread(len(examples.test.X), DEPTH_ROWS)])
    caption = "How many hidden units each test example uses. A row is an example and sums to 1."
    return _section("Depth", _figure(plots.depth_map(log_p_z, tail=kind == "infinite"), caption))


def _versions(model: Any) -> str:
    versions = {
        "irbm": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "matplotlib": matplotlib.__version__,
    }
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"<footer>{escape(f'Written with {names} on {platform.system()}, {model.machine_.weights.device}.')}</footer>"
    )


# -- HTML ---------------------------------------------------------------------------------------------------


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _section(title: str, content: str) -> str:
    """``content`` is HTML already."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def _figure(figure: Figure, caption: str, kind: str = "picture") -> str:
    picture = base64.b64encode(plots.to_png(figure)).decode()
    text = escape(caption)
    return (
        f'<figure class="{kind}"><img alt="{text}" src="data:image/png;base64,{picture}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _plain(value: Any) -> str:
    """A setting or a figure in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of n rows, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)
