"""docs/results.md and the table in the README, from the files that ``irbm reproduce`` wrote, and from nothing else.

``python -m irbm.experiments.page`` reads results/ and copies its pictures to docs/pictures/.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from irbm.experiments import density_search
from irbm.experiments.paper import TITLES
from irbm.experiments.reproduce import EXPERIMENTS
from irbm.files import write_bytes

BEGIN, END = "<!-- results: written by python -m irbm.experiments.page -->", "<!-- end of results -->"
# What a person saw in a picture that figures do not tell, by the date of the result: another result, another look.
SEEN: dict[str, dict[str, str]] = {
    "fig4": {
        "2026-11-15T09:32:24+00:00": (
            "Seen: as in the paper, the curves up to 0.7 l_t run into each other, 0.8 l_t stands a little above "
            "them and 0.9 l_t far above; on CalTech nothing has levelled off after 60 epochs."
        )
    },
    "fig5": {
        "2026-11-15T09:30:16+00:00": (
            "Seen: without RP the examples stand on a staircase of many z, with it on two or three steps at the "
            "deep end, as in the paper. What differs: on MNIST the upper step of seed 0 lies just left of M_T, "
            "where the paper has all of them to its right."
        )
    },
    "fig6": {
        "2026-11-15T09:30:30+00:00": (
            "Seen: the lower row falls by hundreds of nats towards small i, as in the paper; at M_T itself it is "
            "within ten nats of zero on MNIST, not the paper's tens."
        )
    },
    "fig8": {
        "2026-11-15T09:30:40+00:00": (
            "Seen: without RP the first units are the same ring, ten times over, and then pairs of look-alikes; "
            'with RP blobs, strokes and rings lie side by side. The paper shows "1"s where the ring is here.'
        )
    },
    "fig7": {
        "2026-11-15T18:45:58+00:00": (
            "Seen: with RP and AdaGrad L1 is above L2 at every look, as in the paper, by some 20 nats at first and 4 "
            "at the end, and from epoch 400 on it is the steadiest of all six; ordinary training comes as high and "
            "swings by up to ten nats, with brackets as wide as eight. Decaying rates end two or three nats lower, "
            "with machines of thousands of units. What differs: with L1 machines have twice the paper's units, RP's "
            "hardly fewer than those of ordinary training; with L2 both are about as large as the paper's."
        )
    },
    "beta": {
        "2026-11-15T17:58:19+00:00": (
            "Seen: a larger penalty costs units, and with them nats, on both data sets alike. Robust, as the paper "
            "repeats from others, is not what one would call it after so few epochs; that a small penalty lets the "
            "model grow to its size sooner is what the paper says too."
        )
    },
    "fig9": {
        "2026-11-15T16:17:04+00:00": (
            "Seen: on MNIST nearly all samples pass for digits, of all ten kinds, a few are fragments and one is "
            "empty; on CalTech about half are silhouettes (faces, animals, vehicles), the others fragments, and "
            "behind many of them a grey haze is left of the spray. The machines are those that table 1 chose on the "
            "GPU."
        )
    },
    "fig10": {
        "2026-11-15T16:13:24+00:00": (
            "Seen: as in the paper, nearly all test examples end above M_T and close together, on MNIST within a "
            "hundred units of 1522, on CalTech four in five at one and the same z. What differs: on MNIST four in "
            "ten lie just above M_T itself, and on CalTech one in ten. The machines are those that table 1 chose on "
            "the GPU."
        )
    },
    "fig11": {
        "2026-11-15T13:32:40+00:00": (
            "Seen: with AdaGrad as in the paper, RP is faster from the second epoch on and its band is narrower. With "
            "constant rates it is the other way round here: RP is slower at 0.1, and at 1 slower and wilder."
        )
    },
    "table1": {
        "2026-11-15T18:01:55+00:00": (
            "Seen: on CalTech the whole bracket of iRBM RP lies above the paper's value and above every other "
            "model's; it is a little wider than the half nat that the verdict asks for, and twice as wide in a second "
            "estimate, of as much work and with z clamped among its paths, whose value is the same within a tenth "
            "of a nat (results/table1_again.json). The RBM, with the L1 weight that the "
            "validation split chose, comes out four nats above what the paper cites for it, and the ordinary iRBM "
            "three; both stay below RP. On MNIST the paper's recipe validates best at epoch 600, with a likelihood "
            "some two nats below the paper's and 1.6 times the units; 1000 chains halve the size and cost "
            "nothing. What is missing seems to be L1's doing ([why](decisions/010-reproduction.md)): with a tenth "
            "of its weight, too, the bracket holds the paper's value, at nearly the paper's size; one seed, and no "
            "verdict. RP and ordinary training cannot be told apart there: the ordinary machine's bracket is two "
            "nats wide. The greedy units of FW-iRBM are far from what is cited for them on MNIST."
        )
    },
    "table2": {
        "2026-11-15T18:55:41+00:00": (
            "Seen: on CalTech RP is better than ordinary training with the discriminative objective, and in two seeds "
            "of three with the hybrid one, after 600 epochs of either. Wide machines come to the paper's figure, with "
            "shifted images below it. On MNIST every model of the paper errs more here than there, the ClassRBMs "
            "cited from others too: by 0.6 to 1.0 percent, greedy units by five ([more](classification.md)); wide "
            "machines on shifted images err a little less than the paper's own best, which is within their interval. "
            "RP is better than ordinary training with the discriminative objective there, and not with the hybrid one."
        )
    },
}
INTRODUCTION = """# The paper, reproduced

Every table and figure of "On better training the infinite restricted Boltzmann machines" (Peng, Gao and Li), each by
`irbm reproduce NAME`; this page is written from what these commands left in `results/`. Likelihoods are nats per
example, with the bracket that the estimate of ln Z leaves, and in parentheses where the verdict on it is "not
reliable" ([why](likelihoods.md)). The paper's own estimates have no bracket. RP is random permutation, l the number of
hidden units, N_h the effective size of eq. 33, M_T the number of units regrouped in the last epoch."""

SEARCH = """## The search behind table 1

Rates within 0.001 to 1 and weights of L1 within 0 to 0.01, the paper's ranges, for each model by itself. The likelihood
of the validation split decides, by the lower end of its bracket, after fewer epochs than in the table, where the best
of them are tried again. Best first; one seed."""


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The results that are there, by name. Quick ones lie elsewhere, and are none."""
    found = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(file.read_text()) for name, file in found.items() if file.is_file()}


def searches(folder: Path) -> list[dict[str, Any]]:
    """What the searches for settings of density models found."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("search_density_*.json"))]


def page(results: dict[str, dict[str, Any]], searched: Sequence[dict[str, Any]] = ()) -> str:
    sections = [_section(name, experiment, results.get(name)) for name, experiment in EXPERIMENTS.items()]
    if searched:
        sections.insert(1, "\n\n".join([SEARCH, *map(density_search.section, searched)]))
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


def _section(name: str, experiment: ModuleType, result: dict[str, Any] | None) -> str:
    heading = f"## {experiment.TITLE}"
    if result is None:
        return f"{heading}\n\nNot run yet: `irbm reproduce {name}`."
    picture = f"![{experiment.TITLE}](pictures/{name}.png)"
    seen = SEEN.get(name, {}).get(result["date"], "")
    parts = [heading, picture, experiment.section(result), seen, _provenance(name, result)]
    return "\n\n".join(part for part in parts if part)


def _provenance(name: str, result: dict[str, Any]) -> str:
    """What was run, on which data, where and when."""
    notes = "; ".join(f"{TITLES[dataset]}: {note}" for dataset, note in result["notes"].items())
    seeds = ", ".join(map(str, result["seeds"]))
    parts = [part for kind in ("rows", "runs") for part in result.get(kind, []) if "commit" in part] or [result]
    where, commits = ({part[what]: None for part in parts} for what in ("device", "commit"))
    return (
        f"*`irbm reproduce {name}`, seeds {seeds}, on {', '.join(where)}, commit {', '.join(commits)}, "
        f"{result['date'][:10]}; the last call {result['wall_seconds']:.0f} s, trainings, several at a time, "
        f"{result['training_seconds']:.0f} s. {notes}.*"
    )


# -- the README ---------------------------------------------------------------------------------------------


def summary(results: dict[str, dict[str, Any]]) -> str:
    """The table of the README: what the tables of the paper say, and what came out."""
    lines = ["| | the paper | here | verdict |", "|---|---|---|---|"]
    for name in ("table1", "table2"):
        if name not in EXPERIMENTS:
            continue
        if name in results:
            lines += EXPERIMENTS[name].highlights(results[name])
        else:
            lines.append(f"| {EXPERIMENTS[name].TITLE} | | not run yet | |")
    return "\n".join(lines)


def with_summary(readme: str, table: str) -> str:
    """The README with the table between its marks."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md must have the lines {BEGIN!r} and {END!r}, once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def write(results_folder: Path, root: Path) -> None:
    """The page, its pictures, and the README's table."""
    results = read(results_folder)
    (root / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
    for name in results:
        drawn = results_folder / f"{name}.png"
        if drawn.is_file():  # results are kept under version control, pictures only where the page shows them
            write_bytes(root / "docs" / "pictures" / drawn.name, drawn.read_bytes())
    write_bytes(root / "docs" / "results.md", page(results, searches(results_folder)).encode())
    readme = root / "README.md"
    write_bytes(readme, with_summary(readme.read_text(), summary(results)).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--root", type=Path, default=Path(), help="of the checkout: README.md and docs/ lie there")
    args = parser.parse_args()
    write(args.results, args.root)


if __name__ == "__main__":
    main()
