"""How annealed importance sampling fails on trained machines, and what the bracket says of them.

``python -m irbm.experiments.likelihoods run mnist_pcd_50`` trains one of ``CASES``, estimates ln Z in the usual ways
and by ``estimate``, and writes results/likelihoods_mnist_pcd_50.json; ``trap`` does the same on a machine whose ln Z
is known; ``page`` writes docs/likelihoods.md from these files.
"""

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path as File
from typing import Any, NamedTuple

import torch
from torch import Tensor

from irbm import data, plots
from irbm.evaluation import modes
from irbm.evaluation.estimate import estimate
from irbm.evaluation.permutations import free_energies
from irbm.experiments import paper
from irbm.experiments.known import machines
from irbm.experiments.results import judged, place, stamp, write_json
from irbm.experiments.trust import NAIVE_CHAINS, NAIVE_POINTS, RULES, WRONG, naive
from irbm.files import write_bytes
from irbm.models import Infinite, Machine
from irbm.training import Settings, Trainer, TrainingState
from irbm.training.initial import initial_machine


class Case(NamedTuple):
    """A training by the paper's settings, but for its length and where the chains of its gradients start."""

    dataset: str
    n_iter: int
    persistent: bool

    def settings(self, n_iter: int | None) -> Settings:
        return replace(paper.density(self.dataset, n_iter or self.n_iter), persistent=self.persistent)


CASES = {  # in the order of the page
    "mnist_pcd_40": Case(paper.MNIST, 40, persistent=True),
    "mnist_pcd_50": Case(paper.MNIST, 50, persistent=True),
    "mnist_pcd_120": Case(paper.MNIST, 120, persistent=True),
    "mnist_pcd_250": Case(paper.MNIST, 250, persistent=True),
    "mnist_cd_50": Case(paper.MNIST, 50, persistent=False),
    "caltech_cd_50": Case(paper.CALTECH, 50, persistent=False),
    "caltech_cd_100": Case(paper.CALTECH, 100, persistent=False),
    "caltech_cd_500": Case(paper.CALTECH, 500, persistent=False),
    "caltech_cd_1000": Case(paper.CALTECH, 1000, persistent=False),
}
NAIVE_LENGTH = 10_000  # points of the naive paths to trained machines
TRAINED_CHAINS = 1000  # along them
HEALTHY = 0.8  # of the chains: an effective sample size that looks well
LENGTHS = (100, 300, 1000, 3000)  # points of the naive paths to the known machine
DOCS = File("docs")


def run(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Train, then estimate in the usual ways and in ours."""
    settings = case.settings(args.n_iter)
    splits = data.load(case.dataset)
    X = torch.from_numpy(splits.train.X[: args.rows])
    state = TrainingState.start(initial_machine(Infinite(), X.shape[1], device=args.device), settings, args.seed)
    machine = Trainer(state, X, settings=settings).run().machine
    mean = float(-free_energies(machine, torch.from_numpy(splits.test.X)).mean())
    means_D = X.double().mean(0)
    usual = in_use(machine, means_D, args.points, args.seed)
    began = time.perf_counter()
    ours = estimate(machine, means_D=means_D, examples=X, seed=args.seed, budget=args.budget)
    return {
        "dataset": case.dataset,
        "note": splits.note,
        "settings": asdict(settings),
        "n_components": int(machine.size),
        "test_mean_of_minus_free_energy": mean,
        "naive": usual,
        "ours": asdict(ours),
        "seconds_of_ours": time.perf_counter() - began,
    }


def in_use(machine: Machine, means_D: Tensor, n_points: int, seed: int) -> dict[str, dict[str, float]]:
    """Estimates by paths that heat the machine: from two bases with z free, and with a pull that z shall be deep.

    The pull is what a unit costs, so that none is left out at first for its penalty.
    """
    of_data = modes.smoothed_log_odds(means_D)
    pull = float(machine.depth.penalties(machine.hidden_bias).mean())
    ways = {
        "the machine's biases": (machine.visible_bias, 0.0),
        "the data's means": (of_data, 0.0),
        "the data's means, deep z": (of_data, pull),
    }
    return {name: naive(machine, bias_D, n_points, TRAINED_CHAINS, seed, pull) for name, (bias_D, pull) in ways.items()}


def trap(args: argparse.Namespace) -> dict[str, Any]:
    """784 x 300 units with one filter: naive runs of growing length, the truth, and the bracket."""
    known = next(m for m in machines(["one_filter"]) if "Infinite" in m.name)
    machine = known.machine.to(device=args.device)
    runs = [naive(machine, machine.visible_bias, n, 100, args.seed) for n in LENGTHS]
    ours = estimate(machine, seed=args.seed, budget=args.budget)
    return {"machine": known.name, "exact": known.log_z, "naive": runs, "ours": asdict(ours)}


# -- the page -----------------------------------------------------------------------------------------------


def page() -> str:
    """docs/likelihoods.md, from the files alone."""
    files = [File("results", f"likelihoods_{case}.json") for case in CASES]
    trained = [json.loads(file.read_text()) for file in files if file.exists()]
    return "\n\n".join([INTRODUCTION, _trap_section(), _trained_section(trained), _suite_section(), CLOSING]) + "\n"


def _trap_section() -> str:
    found = json.loads(File("results/likelihoods_trap.json").read_text())
    trials = [t | {"side": "forward", "name": "naive: z free, base of biases"} for t in found["naive"]]
    log_z = found["ours"]
    picture = plots.annealing([*trials, *log_z["trials"]], log_z["lower"], log_z["upper"], found["exact"])
    write_bytes(DOCS / "pictures" / "trap.png", plots.to_png(picture))
    last = found["naive"][-1]
    off = last["value"] - found["exact"]
    return f"""## A trap

![Forward and reverse estimates of ln Z against the length of the path](pictures/trap.png)

A machine of 784 visible and 300 hidden units that are all alike, so that ln Z is known: {found["exact"]:.2f}. The usual
estimate after {last["n_points"]} temperatures says {last["value"]:.2f}, off by {off:.1f} nats, with a standard error of
{last["stderr"]:.3f} and an effective sample size of {last["ess"]:.0f} of {last["n_chains"]}: nothing in it shows that
every chain has stayed in the noise. Ours: {log_z["value"]:.2f} in [{log_z["lower"]:.2f}, {log_z["upper"]:.2f}],
{"reliable" if log_z["reliable"] else "not reliable"} ({log_z["reason"]})."""


def _trained_section(cases: list[dict[str, Any]]) -> str:
    """One table of all trained machines, and what it shows of each."""
    table = "\n".join(row for found in cases for row in _case_rows(found))
    words = "\n".join(_case_words(found) for found in cases)
    notes = sorted({found["note"] for found in cases})
    return f"""## Trained machines

Infinite RBMs trained by random permutation with the paper's settings, for so many epochs; the paper has PCD for MNIST
and CD for CalTech. Mean test log-likelihood, nats, by each estimate of ln Z. The usual ones heat the machine: hidden
units are fair coins at first, the visibles have the biases named; z is free, or drawn deep and let go along the path.

| machine | estimate | says | bracket | effective sample size | verdict |
|---|---|---|---|---|---|
{table}

A value above 0 is impossible: no state has a probability above 1. Others are called off here where they are more than
{WRONG} nat outside our bracket, and further than it is wide where it is not reliable itself.{_healthy_words(cases)}

{words}

{" ".join(f"{note[0].upper()}{note[1:]}." for note in notes)}"""


def _case_title(found: dict[str, Any]) -> str:
    settings = found["settings"]
    kind = "PCD" if settings["persistent"] else "CD"
    return f"{paper.TITLES[found['dataset']]}, {kind}-{settings['gibbs_steps']}, {settings['n_iter']} epochs"


def _likelihood(found: dict[str, Any]) -> dict[str, Any]:
    """Our mean log-likelihood: a larger ln Z makes it smaller."""
    mean, log_z = found["test_mean_of_minus_free_energy"], found["ours"]
    ends = {name: mean - log_z[of] for name, of in (("value", "value"), ("lower", "upper"), ("upper", "lower"))}
    return {**ends, "reliable": log_z["reliable"]}


def _case_rows(found: dict[str, Any]) -> list[str]:
    mean, ours = found["test_mean_of_minus_free_energy"], _likelihood(found)
    rows = [
        f"usual, base of {name}, {run['n_points']} temperatures | {mean - run['value']:.2f} | | "
        f"{run['ess']:.1f} of {run['n_chains']} | none"
        for name, run in found["naive"].items()
    ]
    value, bracket, verdict = judged(ours)
    rows.append(f"**ours** | {value} | {bracket} | {found['ours']['ess']:.1f} | {verdict}")
    title = f"{_case_title(found)}, {found['n_components']} units"
    return [f"| {title if n == 0 else ''} | {row} |" for n, row in enumerate(rows)]


def _case_words(found: dict[str, Any]) -> str:
    """Whether the usual estimates are off, and what the verdict on ours is."""
    mean, ours = found["test_mean_of_minus_free_energy"], _likelihood(found)
    faults = [_fault(mean - run["value"], ours) for run in found["naive"].values()]
    told = [
        f"base of {name} {fault or 'about our bracket'} (effective sample size {run['ess']:.1f})"
        for (name, run), fault in zip(found["naive"].items(), faults, strict=True)
    ]
    return (
        f"- {_case_title(found)}: {sum(map(bool, faults))} of {len(faults)} usual estimates are off: "
        f"{'; '.join(told)}. Ours is **{'' if ours['reliable'] else 'not '}reliable**: "
        f"{found['ours']['reason']}. {found['device']}, commit {found['commit']}."
    )


def _healthy_words(cases: list[dict[str, Any]]) -> str:
    """Of usual estimates in which most chains count, and that are off all the same."""
    off = [
        above
        for found in cases
        for run in found["naive"].values()
        if run["ess"] > HEALTHY * run["n_chains"]
        and (above := found["test_mean_of_minus_free_energy"] - run["value"] - _likelihood(found)["upper"]) > WRONG
    ]
    if not off:
        return ""
    return (
        f" An effective sample size is no sign of health: {len(off)} usual estimates in the table have one above "
        f"{HEALTHY:.0%} of their chains, and flatter by {min(off):.0f} to {max(off):.0f} nats."
    )


def _fault(says: float, ours: dict[str, Any]) -> str:
    """What is wrong with a log-likelihood, or nothing where it is about our bracket."""
    above, below = says - ours["upper"], ours["lower"] - says
    allowed = WRONG if ours["reliable"] else max(WRONG, ours["upper"] - ours["lower"])
    if says > 0:
        return f"impossible, {above:.1f} nats above our bracket"
    if above > allowed:
        return f"{above:.1f} nats above our bracket"
    return f"{below:.1f} nats below our bracket" if below > allowed else ""


def _suite_section() -> str:
    suites = {f.stem.removeprefix("trust_"): json.loads(f.read_text()) for f in sorted(File("results").glob("trust_*"))}
    rows = []
    for name, found in suites.items():
        rows.append(
            f"| {name} | {found['machines']} | {found['settings']['budget']} | {found['contained']:.0%} | "
            f"{found['reliable']:.0%} | {found['wrongly called reliable']} | "
            f"{found['naive off by more than 0.5 nat']} | {found['commit']} |"
        )
    table = "\n".join(rows)
    return f"""## How far the verdict can be trusted

On machines whose ln Z is known exactly, told nothing but the machine (`python -m irbm.experiments.trust`), beside the
usual estimate of {NAIVE_POINTS} temperatures and {NAIVE_CHAINS} chains, which has no verdict:

| suite | machines | budget | holds truth | reliable | reliable, off > 0.5 nat | usual one off > 0.5 nat | commit |
|---|---|---|---|---|---|---|---|
{table}

{_missed(suites)}

- small: up to 16 visible and 300 hidden units, with labels or without, of every depth; sharp, multimodal, with narrow
  modes; and deep traps, whose pattern hardly a chain of the usual estimate ever sees: it is off by
  {_trap_range()} nats there.
- large: 784 visible and 300 hidden units of one or two filters that repeat.
- needle: 100 visible units and 801 hidden ones, of which a single one makes a narrow mode.
- company: 64 visible units and 264 hidden ones, of which eight make a narrow mode together that few of them do not.

Which value to believe: root mean square error in nats, of the largest forward one, of the largest of those with an
effective sample size of 20 or more, of the one that is largest less four standard errors, and of both sides together
(the one reported, where that is definite):

| suite | {" | ".join(RULES)} |
|---|---|---|---|---|
{_rules(suites)}"""


def _missed(suites: dict[str, Any]) -> str:
    """What brackets miss, those called reliable among them."""
    rows = [row for found in suites.values() for row in found["rows"]]
    missed = [row for row in rows if not row["contained"]]
    by = max((max(row["exact"] - row["upper"], row["lower"] - row["exact"]) for row in missed), default=0.0)
    called = sum(row["reliable"] for row in missed)
    return (
        f"Of {len(rows)} brackets {len(rows) - len(missed)} hold the truth, and the others ({len(missed)}) miss it by "
        f"{by:.2f} nats at most; called reliable among them: {called}."
    )


def _rules(suites: dict[str, Any]) -> str:
    """A line for each suite; a blank where its file is of a build that had no such rule."""
    lines = []
    for name, found in suites.items():
        errors = [found["root mean square off by rule"].get(rule) for rule in RULES]
        lines.append(f"| {name} | {' | '.join('' if e is None else f'{e:.3f}' for e in errors)} |")
    return "\n".join(lines)


def _trap_range() -> str:
    found = json.loads(File("results/trust_small.json").read_text())
    off = sorted(row["naive"]["off"] for row in found["rows"] if row["machine"].startswith("deep trap"))
    return f"{off[0]:.1f} to {off[-1]:+.1f}"


INTRODUCTION = """# Likelihoods that can be trusted

The likelihood of a restricted Boltzmann machine needs its partition function Z, a sum over more states than there is
time for. Annealed importance sampling walks chains from a distribution whose sum is known to the machine, and averages
their weights. The average is right in expectation, but it is made of the few chains that found the heavy states: where
none did, every chain agrees with every other on a value that is too small, and the likelihood looks too good. Going
back the other way, from samples of the machine, gives a value that is too large where it is wrong. `irbm` goes both
ways, asks both sides what they have in common, and reports a bracket, with a verdict and the reason for it; `irbm
evaluate` exits with status 3 where the verdict is no.

*Reliable* means: a bracket of at most half a nat, an effective sample size of 20 or more, paths of 100 points or more,
no forward value above what the others allow, and no known states above any
([the rule](decisions/005-bracket.md)). `tol` only says when to stop: a bracket that is still wider than that at the end
of the budget may be reliable."""

CLOSING = """## What is done against it

- A search for modes first: sweeps of the machine from noise, from what every filter asks for, alone and together with
  those most like it, from what random sets of units ask for, and from examples. A mixture fitted to what it finds, and
  single states that this would miss, are the base of the paths, so that chains start in every mode that was found;
  samples of the machine from the first rounds are added. Every unit is asked several times, and the heaviest examples
  are among the starts, because training can make a mode of a single example, which then holds nearly all of a machine's
  weight and which few starts lead to. The heaviest states that the search finds are parts of the base in any case.
  (The trained machines, the trap, and the suites "large" and "needle" of this page are of builds that asked once, took
  any examples, had parts only for states that are served badly, and did not ask both sides together.)
- What known states weigh, those of the search and the heaviest examples, is summed up: ln Z is no less. Where that is
  more than the runs found, they have missed it, and the verdict is no. A machine trained on MNIST showed that
  nothing else need notice: every kind of run agreed to half a nat, and one training example alone outweighed them all
  by six ([more](decisions/005-bracket.md)).
- Each part of the base is a distribution of both sides: independent visibles, and hidden units that answer to their
  means. The paths are geometric means of these and the machine, so that chains neither leave their mode on the way nor
  begin with hidden units that know nothing of it, which is where the usual paths lose the weight of a trained machine.
- Paths with z free, with z drawn deep by a weak pull that fades, and with z clamped to its deepest and let go in the
  last step: that one comes to deep modes from anywhere, where free z stays in the noise. Pilot runs decide which two go
  on, and decide again when samples of the machine are added.
- Schedules and the weights of the base's parts come from earlier, separate runs, so that every forward value is a
  lower bound in expectation.
- Reverse runs start from resampled chains and from examples, both after as many sweeps of the machine as the path has
  points, and from parallel tempering. Samples that descend from one chain count as one.
- Both sides together: one side alone waits for its few heaviest chains, and chains that went forward and came back have
  many in common (Bennett's acceptance ratio). Where enough chains say so, however they are asked, that is the value;
  the bracket is four of its standard errors on either side, further where a kind of start says something else, and
  never less than forward runs or known states say by themselves. Where they do not, the value is the forward one that
  is largest less four standard errors, that is the lower end, and the upper one is what the runs back allow.
- All of that is evidence, not proof: a narrow mode that no chain has found is invisible to both sides, which is why
  `reason` says what was tried.
- Each likelihood that `irbm evaluate` prints, also that of the average over orders and of the plain RBM, has its own
  bracket, verdict and reason; one that is not reliable is enough for status 3."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "trap", "page"])
    parser.add_argument("case", nargs="?", choices=list(CASES), help="what to train, for 'run'")
    parser.add_argument("--n-iter", type=int)
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out")
    parser.add_argument("--points", type=int, default=NAIVE_LENGTH, help="temperatures of the naive estimate")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out")
    args = parser.parse_args()
    if (args.what == "run") != (args.case is not None):
        parser.error("'run' needs one of the cases, and nothing else takes one")
    if args.what == "page":
        (DOCS / "pictures").mkdir(exist_ok=True)
        write_bytes(DOCS / "likelihoods.md", page().encode())
        return
    found = trap(args) if args.what == "trap" else run(CASES[args.case], args)
    name = f"likelihoods_{args.case or 'trap'}"
    tried = bool(args.rows or args.n_iter or args.points != NAIVE_LENGTH)
    write_json(
        args.out or place(name, tried=tried),
        {**found, "budget": args.budget, "seed": args.seed, **stamp(args.device)},
    )
    print(json.dumps({n: v for n, v in found["ours"].items() if n != "trials"}, indent=1))
    print(json.dumps(found["naive"], indent=1))


if __name__ == "__main__":
    main()
