"""How annealed importance sampling fails on trained machines, and what the bracket says of them.

``python -m irbm.experiments.likelihoods run binarized_mnist`` trains a machine by the paper's settings, estimates ln Z
in the usual way (z free, one base) and by ``estimate``, and writes results/likelihoods_binarized_mnist.json;
``trap`` does the same on a machine whose ln Z is known; ``page`` writes docs/likelihoods.md from these files.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path as File
from typing import Any

import torch

from irbm import data, plots
from irbm.evaluation import modes
from irbm.evaluation.estimate import estimate
from irbm.evaluation.permutations import free_energies
from irbm.experiments import paper
from irbm.experiments.known import machines
from irbm.experiments.results import place, stamp, write_json
from irbm.experiments.trust import NAIVE_CHAINS, NAIVE_POINTS, naive
from irbm.files import write_bytes
from irbm.models import Infinite
from irbm.training import Trainer, TrainingState
from irbm.training.initial import initial_machine

EPOCHS = {"binarized_mnist": 50, "caltech101_silhouettes": 100}
NAIVE_LENGTH = 10_000  # points of the naive paths to trained machines
LENGTHS = (100, 300, 1000, 3000)  # points of the naive paths to the known machine
DOCS = File("docs")


def run(dataset: str, args: argparse.Namespace) -> dict[str, Any]:
    """Train, then estimate in the usual way and in ours."""
    settings = paper.density(dataset, args.n_iter or EPOCHS[dataset])
    splits = data.load(dataset)
    X = torch.from_numpy(splits.train.X[: args.rows])
    state = TrainingState.start(initial_machine(Infinite(), X.shape[1], device=args.device), settings, args.seed)
    machine = Trainer(state, X, settings=settings).run().machine
    mean = float(-free_energies(machine, torch.from_numpy(splits.test.X)).mean())
    means_D = X.double().mean(0)
    bases = {"the machine's biases": machine.visible_bias, "the data's means": modes.smoothed_log_odds(means_D)}
    usual = {name: naive(machine, bias, args.points, 1000, args.seed) for name, bias in bases.items()}
    began = time.perf_counter()
    ours = estimate(machine, means_D=means_D, examples=X, seed=args.seed, budget=args.budget)
    return {
        "dataset": dataset,
        "note": splits.note,
        "settings": asdict(settings),
        "n_components": int(machine.size),
        "test_mean_of_minus_free_energy": mean,
        "naive": usual,
        "ours": asdict(ours),
        "seconds_of_ours": time.perf_counter() - began,
    }


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
    sections = [INTRODUCTION, _trap_section()]
    sections += [_trained_section(json.loads(f.read_text())) for f in sorted(File("results").glob("likelihoods_[bc]*"))]
    sections += [_suite_section(), CLOSING]
    return "\n\n".join(section for section in sections if section) + "\n"


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


def _trained_section(found: dict[str, Any]) -> str:
    mean, log_z = found["test_mean_of_minus_free_energy"], found["ours"]
    rows = "\n".join(
        f"| z free, base of {name}, {run['n_points']} temperatures | {mean - run['value']:.2f} | | {run['ess']:.1f} of "
        f"{run['n_chains']} | none |"
        for name, run in found["naive"].items()
    )
    verdict = "reliable" if log_z["reliable"] else "**not reliable**"
    bracket = f"[{mean - log_z['upper']:.2f}, {mean - log_z['lower']:.2f}]"
    return f"""## A machine trained on {found["dataset"]}

{found["n_components"]} hidden units after {found["settings"]["n_iter"]} epochs ({found["note"]}). Mean test
log-likelihood, nats, by each estimate of ln Z ({found["device"]}, commit {found["commit"]}):

| estimate | says | bracket | effective sample size | verdict |
|---|---|---|---|---|
{rows}
| ours | {mean - log_z["value"]:.2f} | {bracket} | {log_z["ess"]:.1f} | {verdict} |

{log_z["reason"].capitalize()}."""


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

- small: up to 16 visible and 300 hidden units, with labels or without, of every depth; sharp, multimodal, with narrow
  modes; and deep traps, whose pattern hardly a chain of the usual estimate ever sees: it is off by
  {_trap_range()} nats there.
- large: 784 visible and 300 hidden units of one or two filters that repeat.
- needle: 100 visible units and 801 hidden ones, of which a single one makes a narrow mode.
- company: 64 visible units and 264 hidden ones, of which eight make a narrow mode together that few of them do not.

Which forward value to believe: root mean square error in nats, of the largest, of the largest of those with an
effective sample size of 20 or more (the one reported), and of the largest less four standard errors:

| suite | largest | largest of enough chains | largest less its errors |
|---|---|---|---|
{_rules(suites)}"""


def _rules(suites: dict[str, Any]) -> str:
    errors = {name: found["root mean square off by rule"].values() for name, found in suites.items()}
    return "\n".join(f"| {name} | {' | '.join(f'{e:.3f}' for e in by_rule)} |" for name, by_rule in errors.items())


def _trap_range() -> str:
    found = json.loads(File("results/trust_small.json").read_text())
    off = sorted(row["naive"]["off"] for row in found["rows"] if row["machine"].startswith("deep trap"))
    return f"{off[0]:.1f} to {off[-1]:+.1f}"


INTRODUCTION = """# Likelihoods that can be trusted

The likelihood of a restricted Boltzmann machine needs its partition function Z, a sum over more states than there is
time for. Annealed importance sampling walks chains from a distribution whose sum is known to the machine, and averages
their weights. The average is right in expectation, but it is made of the few chains that found the heavy states: where
none did, every chain agrees with every other on a value that is too small, and the likelihood looks too good. Going
back the other way, from samples of the machine, gives a value that is too large where it is wrong. `irbm` reports both
as a bracket, with a verdict and the reason for it; `irbm evaluate` exits with status 3 where the verdict is no."""

CLOSING = """## What is done against it

- A search for modes first: sweeps of the machine from noise, from what every filter asks for, alone and together with
  those most like it, from what random sets of units ask for, and from examples. A mixture fitted to what it finds, and
  single states that this would miss, are the base of the paths, so that chains start in every mode that was found;
  samples of the machine from the first rounds are added.
- Each part of the base is a distribution of both sides: independent visibles, and hidden units that answer to their
  means. The paths are geometric means of these and the machine, so that chains neither leave their mode on the way nor
  begin with hidden units that know nothing of it, which is where the usual paths lose the weight of a trained machine.
- Paths with z free and with z held deep. The value is the largest forward one; the lower end of the bracket is the
  largest less four standard errors.
- Schedules and the weights of the base's parts come from earlier, separate runs, so that every forward value is a
  lower bound in expectation.
- Reverse runs start from resampled and mixed chains, from parallel tempering and from examples. The upper end is the
  value of the most independent chains plus four standard errors, or more where another kind of start says more. Samples
  that descend from one chain count as one. It is evidence, not proof: a narrow mode that no chain has found is
  invisible to both sides, which is why `reason` says what was tried.
- Each likelihood that `irbm evaluate` prints, also that of the average over orders and of the plain RBM, has its own
  bracket, verdict and reason; one that is not reliable is enough for status 3."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "trap", "page"])
    parser.add_argument("dataset", nargs="?", choices=list(EPOCHS))
    parser.add_argument("--n-iter", type=int)
    parser.add_argument("--rows", type=int, help="train on the first examples alone, to try things out")
    parser.add_argument("--points", type=int, default=NAIVE_LENGTH, help="temperatures of the naive estimate")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.what == "page":
        (DOCS / "pictures").mkdir(exist_ok=True)
        write_bytes(DOCS / "likelihoods.md", page().encode())
        return
    found = trap(args) if args.what == "trap" else run(args.dataset, args)
    name = "likelihoods_" + ("trap" if args.what == "trap" else args.dataset)
    tried = bool(args.rows or args.n_iter or args.points != NAIVE_LENGTH)
    write_json(
        args.out or place(name, tried=tried),
        {**found, "budget": args.budget, "seed": args.seed, **stamp(args.device)},
    )
    print(json.dumps({n: v for n, v in found["ours"].items() if n != "trials"}, indent=1))
    print(json.dumps(found["naive"], indent=1))


if __name__ == "__main__":
    main()
