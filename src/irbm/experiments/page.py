"""docs/results.md and the table in the README, from the files that ``irbm reproduce`` wrote, and from nothing else.

``python -m irbm.experiments.page`` reads results/ and copies its pictures to docs/pictures/.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from irbm.experiments import density_search, fractions, trials
from irbm.experiments.paper import TITLES
from irbm.experiments.reproduce import EXPERIMENTS
from irbm.experiments.results import EARLIER, folded, origin
from irbm.experiments.seen import Seen, looks
from irbm.files import write_bytes

TABLES = ("table1", "table2")  # which the README has
ALL = "What came of it"
NOBODY: Mapping[str, Seen] = {}  # has looked
BEGIN, END = "<!-- results: written by python -m irbm.experiments.page -->", "<!-- end of results -->"
INTRODUCTION = """# The paper, reproduced

Every table and figure of "On better training the infinite restricted Boltzmann machines" (Peng, Gao and Li), each by
`irbm reproduce NAME`; this page is written from what these commands left in `results/` (other seeds of table 1 and
figure 7 by `--seeds`, other budgets of table 1 by `--budget`). Likelihoods are nats per
example, with the bracket that the estimate of ln Z leaves, and in parentheses where the verdict on it is "not
reliable" ([why](likelihoods.md)). The paper's own estimates have no bracket. RP is random permutation, l the number of
hidden units, N_h the effective size of eq. 33, M_T the number of units regrouped in the last epoch.

A bracket is of ln Z alone. It says nothing of seeds, and nothing of builds: kernels changed between the commits named
below, and the same seed then trains another machine. Such machines differ by two nats on MNIST (seed 0 after 50 epochs,
in [likelihoods](likelihoods.md) and under beta below) and by eleven on CalTech (ordinary training after 500 epochs, by
validation, in the search behind table 1 and in `results/table1_before.json`): rows of different commits that differ by
so much show nothing. Pictures of the paper are known here by its words alone."""

SEARCH = """## The search behind table 1

Rates and weights of L1 for each model by itself (`python -m irbm.experiments.density_search`): a corner of the paper's
ranges, which are 0.001 to 1 and 0 to 0.01. The likelihood of the validation split decides, by the lower end of its
bracket, after fewer epochs than in the table. The best two of the RBM's, and on CalTech of ordinary training's, were
then trained at full length; RP keeps the paper's. Best first; one seed."""


REGROUPED = """## How much to regroup

The paper's schedule, or a constant share of the l units (`python -m irbm.experiments.fractions`); everything else is as
the paper has it for RP. The epoch is the one in which the lower end of the validation split's bracket is highest."""


TRIED = """## Momentum and rates

RP with momentum, other rates and a larger share regrouped, beside one training as table 1 has it. l and N_h are of the
last look. What it says is in [decision 004](decisions/004-training-details.md)."""


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The results that are there, by name. Quick ones lie elsewhere, and are none."""
    found = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(file.read_text()) for name, file in found.items() if file.is_file()}


def searches(folder: Path) -> list[str]:
    """What lies behind table 1, a section each: the search for settings, ways to regroup compared, and trials."""
    kinds = (
        (SEARCH, "search_density_*", density_search.section),
        (REGROUPED, "fractions_*", fractions.section),
        (TRIED, "momentum_trials", trials.section),
    )
    sections = []
    for introduction, files, section in kinds:
        found = [section(json.loads(file.read_text())) for file in sorted(folder.glob(f"{files}.json"))]
        sections += ["\n\n".join([introduction, folded(ALL, "\n\n".join(found))])] if found else []
    return sections


def page(results: dict[str, dict[str, Any]], searched: Sequence[str] = (), seen: Mapping[str, Seen] = NOBODY) -> str:
    """The whole page; what was seen is said of a result of that date alone."""
    of_these = _of_these(results, seen)
    sections = [
        _section(name, experiment, results.get(name), of_these.get(name)) for name, experiment in EXPERIMENTS.items()
    ]
    sections[1:1] = searched
    return "\n\n".join([INTRODUCTION, _overview(of_these), *sections]) + "\n"


def _of_these(results: dict[str, dict[str, Any]], seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """Looks at the results that are there, and at no others."""
    return {name: look for name, look in seen.items() if name in results and results[name]["date"] == look.date}


def _overview(seen: Mapping[str, Seen]) -> str:
    """The paper's claims, one by one."""
    lines = ["| | the paper | agrees | here |", "|---|---|---|---|"]
    for name, experiment in EXPERIMENTS.items():
        where, look = experiment.TITLE.partition(":")[0], seen.get(name)
        agrees, verdict = (f"**{look.agrees}**", look.verdict) if look else ("", "not looked at yet")
        lines.append(f"| {where} | {experiment.CLAIM} | {agrees} | {verdict} |")
    return "\n".join(lines)


def _section(name: str, experiment: ModuleType, result: dict[str, Any] | None, seen: Seen | None) -> str:
    heading = f"## {experiment.TITLE}"
    if result is None:
        return f"{heading}\n\nNot run yet: `irbm reproduce {name}`."
    picture = f"![{experiment.TITLE}](pictures/{name}.png)"
    parts = [heading, picture, seen.words if seen else "", experiment.section(result), _provenance(name, result)]
    return "\n\n".join(part for part in parts if part)


def _provenance(name: str, result: dict[str, Any]) -> str:
    """What was run, on which data, where and when."""
    notes = "; ".join(f"{TITLES[dataset]}: {note}" for dataset, note in result["notes"].items())
    seeds = ", ".join(map(str, result["seeds"]))
    parts = [part for kind in ("rows", "runs") for part in result.get(kind, []) if "commit" in part] or [result]
    where, commits = ({part[what]: None for part in parts} for what in ("device", "commit"))
    seconds = [part["wall_seconds"] for part in parts if part is not result and "wall_seconds" in part]
    took = (
        f"{min(seconds):.0f} to {max(seconds):.0f} s a row"
        if len(seconds) > 1
        else f"the last call {result['wall_seconds']:.0f} s"
    )
    trained = result["training_seconds"]
    took += f", all trainings {trained:.0f} s" if trained else ""  # 0: rows do not say
    kept = list(filter(None, dict.fromkeys(map(_kept, parts))))
    machines = f" (machines kept from {', '.join(kept)})" if kept else ""
    return (
        f"*`irbm reproduce {name}`, seeds {seeds}, on {', '.join(where)}, commit {', '.join(commits)}{machines}, "
        f"{result['date'][:10]}; {took}. {notes}.{_noted(parts)}*"
    )


def _noted(parts: list[dict[str, Any]]) -> str:
    """What rows that were not made by the command alone say of themselves, with their places."""
    places: dict[str, list[str]] = {}
    for part in parts:
        if "note" in part:
            place = part.get("place") or [part[name] for name in ("dataset", "setting", "seed") if name in part]
            places.setdefault(part["note"], []).append(" ".join(TITLES.get(one, str(one)) for one in place))
    return "".join(f" {', '.join(of)}: {note}." for note, of in places.items())


def _kept(part: dict[str, Any]) -> str:
    """Where a row's machine is from, where that is another device or build than the row is of."""
    device, commit = origin(part)
    elsewhere = f" on {device}" if device != part["device"] else ""
    return f"{commit or EARLIER}{elsewhere}" if elsewhere or commit != part["commit"] else ""


# -- the README ---------------------------------------------------------------------------------------------


def summary(results: dict[str, dict[str, Any]], seen: Mapping[str, Seen] = NOBODY) -> str:
    """The table of the README: what the tables of the paper say, and what came out; and whether it agrees."""
    lines = ["| | the paper | mean, of seeds | the seed that validates best | reliable |", "|---|---|---|---|---|"]
    for name in TABLES:
        if name in results:
            lines += EXPERIMENTS[name].highlights(results[name])
        else:
            lines.append(f"| {EXPERIMENTS[name].TITLE} | | not run yet | | |")
    said = [
        f"- {EXPERIMENTS[name].CLAIM} **{look.agrees.capitalize()}**: {look.verdict}."
        for name, look in _of_these(results, seen).items()
        if name in TABLES
    ]
    return "\n".join([*lines, *([""] if said else []), *said])


def with_summary(readme: str, table: str) -> str:
    """The README with the table between its marks."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md must have the lines {BEGIN!r} and {END!r}, once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def write(results_folder: Path, root: Path) -> None:
    """The page, its pictures, and the README's table."""
    results, seen = read(results_folder), looks(results_folder, EXPERIMENTS)
    (root / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
    for name in results:
        drawn = results_folder / f"{name}.png"
        if drawn.is_file():  # results are kept under version control, pictures only where the page shows them
            write_bytes(root / "docs" / "pictures" / drawn.name, drawn.read_bytes())
    write_bytes(root / "docs" / "results.md", page(results, searches(results_folder), seen).encode())
    readme = root / "README.md"
    write_bytes(readme, with_summary(readme.read_text(), summary(results, seen)).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--root", type=Path, default=Path(), help="of the checkout: README.md and docs/ lie there")
    args = parser.parse_args()
    write(args.results, args.root)


if __name__ == "__main__":
    main()
