"""Every experiment by its name: done, stamped, written, drawn."""

import time
from dataclasses import replace
from types import ModuleType
from typing import Any

from irbm import plots
from irbm.experiments import beta, fig4, fig5, fig6, fig7, fig8, fig9, fig10, fig11, table1, table2
from irbm.experiments.lab import Lab
from irbm.files import write_bytes

EXPERIMENTS: dict[str, ModuleType] = {
    "table1": table1,
    "table2": table2,
    "fig4": fig4,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "fig8": fig8,
    "fig9": fig9,
    "fig10": fig10,
    "fig11": fig11,
    "beta": beta,
}
"""Each has TITLE, CLAIM (the paper's), DATASETS, ``run(lab)`` -> result, ``picture(lab, result)``, and
``section(result)``: Markdown."""


WITH_ROWS = ("table1", "table2", "fig7")  # of which some may be chosen
WITH_BUDGET = ("table1", "fig7", "all")  # whose last likelihoods may have another


def names(wanted: str, lab: Lab) -> list[str]:
    """One name, or all that use the data sets wanted."""
    if wanted != "all" and wanted not in EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(EXPERIMENTS)} or all, got {wanted!r}")
    if lab.quick and lab.datasets is not None:
        raise ValueError(f"dataset must be left out with quick, which has the digits alone, got {lab.datasets[0]!r}")
    asked = list(EXPERIMENTS.values()) if wanted == "all" else [EXPERIMENTS[wanted]]
    known_data = dict.fromkeys(name for experiment in asked for name in experiment.DATASETS)
    unknown = [name for name in lab.datasets or () if name not in known_data]
    if unknown:
        raise ValueError(f"dataset must be one of {', '.join(known_data)} for {wanted}, got {unknown[0]!r}")
    for option, value, known in (("only", lab.only, WITH_ROWS), ("budget", lab.budget, WITH_BUDGET)):
        if value is not None and wanted not in known:
            raise ValueError(f"{option} is for {', '.join(known)}, not for {wanted!r}")
    if wanted == "all":
        return [name for name, experiment in EXPERIMENTS.items() if lab.chosen_datasets(experiment.DATASETS)]
    return [wanted]


def reproduce(name: str, lab: Lab) -> dict[str, Any]:
    """Do an experiment and write its result and its picture."""
    experiment, lab = EXPERIMENTS[name], replace(lab, name=name, began=time.perf_counter())
    result = experiment.run(lab)
    figure = experiment.picture(lab, result)
    write_bytes(lab.file.with_suffix(".png"), plots.to_png(figure))
    return lab.write(result)
