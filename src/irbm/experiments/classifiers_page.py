"""docs/classification.md, from results/classification_*.json and search_*.json alone.

``python -m irbm.experiments.classifiers_page`` writes it.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from irbm.experiments.classification import ORDERS
from irbm.experiments.digits_classification import LOOKS
from irbm.files import write_bytes

INTRODUCTION = """# Classifiers

Infinite RBMs trained to tell labels apart: ln p(y | v) alone (discriminative), or with alpha ln p(v, y) added
(hybrid), with random permutation (RP) unless it says ordinary. Minibatches of 100, AdaGrad and max-norm as in the
paper; CD-3, of which it says nothing. The first five epochs on drawn pixels are of an earlier build than those of
figure 11. On MNIST's intensities (*mnist_intensities*) nothing was searched, and whole trainings have 100 epochs,
wide ones 60. The validation split chooses the epoch; the chosen machine then looks at the test split. Errors are
means over seeds with their standard deviations. This page is written by `python -m irbm.experiments.classifiers_page`
from files in `results/`."""
REMARKS = """*Wide* machines mix 0.95 of their units in every step (`regroup=0.95`) and may grow to `max_components`:
nearly all units take part, where the paper's schedule leaves many of them unused
([decision 009](decisions/009-classification.md)). *Shifted* ones learn from every image moved by one pixel to each
side, too; on MNIST they end with eight passes at a tenth of the rate, and validation chooses among these. On CalTech
both have the rate and the L1 weight that validation chose. None of these is the paper's, nor is an alpha of 0.05 on
CalTech.

The paper has 1.41 % for hybrid training on MNIST, which its settings as written do not reach on drawn pixels: errors
stop falling long before training ends. The ClassRBMs, too, stay 0.7 to 0.9 above the 1.28 and 1.81 % that the paper
cites for them. The search below says what the gap is not: other rates, L1 weights, alphas, persistent chains and the
momentum of the authors' script move validation errors by a tenth of a percent or two, or for the worse.

Drawn pixels cost as much as the gap. Cut at half intensity instead (*thresholded_mnist*) the same settings err by a
fifth less; with intensities in the place of pixels (*mnist_intensities*) by a third less. There the four kinds of
Dis-iRBM and the ClassRBM of 500 units lie within 0.16 points of the paper's figures, some above and some below, and
RP errs less than ordinary training with either objective and every seed; but the ClassRBM of 500 errs more than RP,
discriminative, where the paper has it less, and that of 1500, hybrid, stays 0.3 above its figure. Wide machines gain
next to nothing there. (Of seed 0 of RP, hybrid, and of the ClassRBM of 500 the test errors were seen in a trial
before; nothing was changed by them.) Whether the paper's models learned from intensities we do not know. Its text
says that all pixels were drawn, its authors' script loads drawn ones, and after five epochs its best, 3.10 %, is
nearer to what drawn pixels give here (3.18 % in the table, 3.31 % in figure 11) than to that of intensities (2.61 %).

On drawn pixels what helps is more images, shifted ones, together with more units that take part. Wide machines of at
most 600 units, the first to look at the test split, erred a little more than the paper's; those in the table, of at
most 1000 and with passes at a lower rate at the end, had lower validation errors, and err less. Which of the two it
is was not tried apart: the search has as low a validation error for 1000 units without these passes, with one seed.
The paper has 30.95 % on CalTech, where the seeds of one setting lie further apart than its settings are away from
that; wide machines come to it within their spread, and below it with shifted images. Six candidates for CalTech had
their test errors shown in an earlier search; nothing was chosen by them."""
DIGITS = """The bundled digits, 8x8: settings by five-fold cross-validation over train + validation, training on both,
then one look at the test split (`python -m irbm.experiments.digits_classification`). *One cut* is what
`data.load("digits")` gives, a pixel above 7.5 of 16 or not."""
THREE = """*Three cuts*, at 3.5, 7.5 and 11.5, are another problem, with 192 visible units, and an easier one for every
method."""
TITLES = {"five": "discriminative, the first five epochs", "five_ordinary": "the same, ordinary"}


def main() -> None:
    folder = Path("results")
    parts = [
        INTRODUCTION,
        "## Test errors",
        *_errors(folder),
        REMARKS,
        *_digits(folder / "digits_classification.json"),
        "## The search, by validation",
        *_searches(folder),
    ]
    write_bytes(Path("docs/classification.md"), ("\n\n".join(parts) + "\n").encode())


def _errors(folder: Path) -> Iterator[str]:
    lines = [
        f"| data | training | alpha | rate | L1 | seeds | l | N_h | best epochs | test error, % | {ORDERS} orders, % |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    stamps = set()
    for file in sorted(folder.glob("classification_*.json")):
        found = json.loads(file.read_text())
        runs = found["runs"]
        for _, group in groupby(sorted(runs, key=_key), _key):
            lines.append(_row(found["dataset"], [run for run in group if "test_error" in run]))
        stamps |= {f"{run['device']}, commit {run['commit']}" for run in runs}
    yield "\n".join(lines)
    yield f"*{'; '.join(sorted(stamps))}.*"


def _key(run: dict[str, Any]) -> tuple[str, float, float, float]:
    settings = run["settings"]
    return run["setting"], settings["alpha"], settings["learning_rate"], settings["l1"]


def _row(dataset: str, runs: list[dict[str, Any]]) -> str:
    errors = [100 * run["test_error"]["rate"] for run in runs]
    averaged = [
        100 * run[f"test_error_{ORDERS}_orders"]["rate"] for run in runs if f"test_error_{ORDERS}_orders" in run
    ]
    setting, alpha, rate, l1 = _key(runs[0])
    cells = [
        dataset,
        TITLES.get(setting, setting.replace("_", ", ")),
        "" if runs[0]["settings"]["objective"] == "discriminative" else f"{alpha:g}",
        f"{rate:g}",
        f"{l1:g}",
        f"{len(runs)}",
        f"{np.mean([run['n_components'] for run in runs]):.0f}",
        f"{np.mean([run['effective_size'] for run in runs]):.0f}",
        ", ".join(f"{run['best_epoch']} of {run['epochs']}" for run in runs),
        f"{np.mean(errors):.2f}" + (f" ± {np.std(errors, ddof=1):.2f}" if len(errors) > 1 else ""),
        f"{np.mean(averaged):.2f}" if averaged else "",  # a ClassRBM has no order
    ]
    return "| " + " | ".join(cells) + " |"


def _digits(file: Path) -> Iterator[str]:
    """Ways to cut the pixels, methods, errors by cross-validation and on the test split."""
    if not file.is_file():
        return
    found = json.loads(file.read_text())
    lines = ["| pixels | method | settings | cross-validation error, % | test error, % |", "|---|---|---|---|---|"]
    for cuts, of in found["inputs"].items():
        lines += [f"| {cuts} | " + " | ".join(cells) + " |" for cells in _digit_rows(of)]
    stamps = {f"{of['device']}, commit {of['commit']}" for of in found["inputs"].values()}
    yield "## Digits"
    yield f"{DIGITS} {THREE}" if "three cuts" in found["inputs"] else DIGITS
    yield "\n".join(lines)
    yield f"{LOOKS} *{'; '.join(sorted(stamps))}.*"


def _digit_rows(of: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Method, settings, both errors, of one way to cut the pixels."""
    errors = [100 * run["test_error"]["rate"] for run in of["runs"]]
    test = f"{np.mean(errors):.2f} ± {np.std(errors, ddof=1):.2f} ({len(errors)} seeds)"
    for n, candidate in enumerate(of["candidates"]):
        rate = f"{100 * candidate['cross_validation_error']:.2f}"
        yield "infinite RBM, hybrid, RP", _settings(candidate["settings"]), rate, "" if n else test
    for name, one in of["baselines"].items():
        rates = (one["cross_validation_error"], one["test_error"]["rate"])
        yield name, _settings(one["settings"]), *(f"{100 * rate:.2f}" for rate in rates)
    for name, rate in of["cross_validation_errors_of_others"].items():
        yield name, "", f"{100 * rate:.2f}", ""


def _searches(folder: Path) -> Iterator[str]:
    for file in sorted(set(folder.glob("search_*.json")) - set(folder.glob("search_density_*.json"))):
        found = json.loads(file.read_text())
        runs, changes = found["runs"], []
        for run in runs:
            if run["change"] not in changes:
                changes.append(run["change"])
        epochs = next(run["epochs"] for run in runs if "n_iter" not in run["change"])
        stamps = sorted({f"{run['device']}, commit {run['commit']}" for run in runs})
        lines = [
            f"{found['dataset']}, hybrid, {epochs} epochs, means over the seeds ({'; '.join(stamps)}). With "
            "n_components it is a ClassRBM of that size. Differences of a percent on CalTech, or a tenth of one on "
            "MNIST, are noise.",
            "",
            "| change to the paper's settings | seeds | validation error, % | at epoch | l |",
            "|---|---|---|---|---|",
        ]
        lines += [_candidate([run for run in runs if run["change"] == change]) for change in changes]
        yield "\n".join(lines)


def _candidate(runs: list[dict[str, Any]]) -> str:
    """A line of the search: one change, its seeds."""
    cells = [
        _settings(runs[0]["change"]) or "none",
        f"{len(runs)}",
        f"{np.mean([100 * run['validation_error'] for run in runs]):.2f}",
        ", ".join(f"{run['best_epoch']}" for run in runs),
        f"{np.mean([run['n_components'] for run in runs]):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(_worded(name, value) for name, value in settings.items())


def _worded(name: str, value: Any) -> str:
    if value is True:
        return "shifted images too" if name == "shifts" else name
    return f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"


if __name__ == "__main__":
    main()
