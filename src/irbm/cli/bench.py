"""``irbm bench``."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.markup import escape

from irbm.cli.console import console, say
from irbm.estimators.base import check_count, check_seed
from irbm.experiments.results import write_json


def bench(
    device: Annotated[str, typer.Option(help=escape("cpu or cuda. [the GPU where there is one]"))] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Also series over each size, which takes longer.")] = False,
    repetitions: Annotated[int, typer.Option(help="Repetitions, whose median counts; time goes with them.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Time a training step, an annealing step and scores beside their matrix products and other RBMs.

    Some five minutes on a small CPU; nothing else should run meanwhile.

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
        say(str(json_file))
