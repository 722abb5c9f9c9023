"""``irbm data``."""

from typing import Annotated

import numpy as np
import typer

from irbm import data
from irbm.cli.console import say
from irbm.data import sources


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
            say(f"{known}: {_whereabouts(known)}")
        return
    examples = data.load(name, binarize=binarize)
    for path in data.fetch(name, progress=False) if name in data.KNOWN else ():
        say(f"{path}: verified")
    for part in ("train", "validation", "test"):
        split = getattr(examples, part)
        labels = "no labels" if split.y is None else f"{len(np.unique(split.y))} classes"
        say(f"{part}: {len(split.X):,} x {split.X.shape[1]}, {labels}")
    say(examples.note)


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
