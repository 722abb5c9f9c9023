"""The command line from outside: exit status, what is printed, what is left on disk.

`irbm` calls main() in this process, which is quick; signals and the true exit status need a process of their own.
"""

import csv
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import irbm.report
from irbm import cli, data
from irbm.data import sources
from irbm.evaluation import ais, estimate, modes, partition
from irbm.experiments.density_models import EFFORT
from irbm.experiments.paper import BOTH, CALTECH, MNIST
from irbm.experiments.reproduce import EXPERIMENTS
from irbm.models import Infinite
from irbm.runs import Run, interruptible
from irbm.training import Callback, Settings, Trainer, TrainingState, checkpoint
from irbm.training.initial import initial_machine

SOURCE = Path(__file__).parent.parent / "src"
COMMANDS = ("train", "evaluate", "report", "sample", "data", "bench", "reproduce", "demo")

pytestmark = pytest.mark.usefixtures("one_thread")


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def irbm_(capsys, monkeypatch):
    """Calls `irbm` with arguments."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["irbm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Outcome(ended.value.code or 0, *capsys.readouterr())

    return call


def in_a_process(*arguments, **more):
    command = [sys.executable, "-m", "irbm.cli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of two epochs. Tests only read it."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["irbm", "train", "digits", "--out", str(path), "--n-iter", "2", "--quiet"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return path


@pytest.fixture
def shapeless(tmp_path, irbm_):
    """A run on a user's own file, which has no image shape."""
    file = tmp_path / "own.npy"
    np.save(file, np.random.default_rng(0).integers(0, 2, (60, 12), np.uint8))
    assert irbm_("train", file, "--out", tmp_path / "own", "--n-iter", 1, "--quiet").status == 0
    return tmp_path / "own"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same_parameters(one, other):
    """Bit by bit. The files differ in the order of their metadata."""
    ours, theirs = load_file(one), load_file(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def said_why(outcome, *words):
    """One line on standard error, which says these words."""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    return True


# -- train --------------------------------------------------------------------------------------------------


def test_train_writes_a_run_directory(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.toml", "checkpoint.safetensors", "model.safetensors", "metrics.csv"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert Run(trained).position() == (26, 2)


def test_metrics_are_one_row_an_epoch(trained):
    with open(trained / "metrics.csv", newline="") as file:
        rows = [{n: float(v) for n, v in row.items()} for row in csv.DictReader(file)]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[-1]["n_components"] == Run(trained).model().n_components_
    assert all(math.isfinite(value) for row in rows for value in row.values())


def test_train_says_what_came_of_it(irbm_, tmp_path):
    outcome = irbm_("train", "digits", "--out", tmp_path / "run", "--n-iter", 1)
    assert outcome.status == 0
    assert outcome.out.startswith(f"{tmp_path / 'run'}: {Run(tmp_path / 'run').model().n_components_} hidden units")


def test_brackets_in_a_path_are_printed(irbm_, tmp_path):
    outcome = irbm_("train", "digits", "--out", tmp_path / "[red]", "--n-iter", 1, "--quiet")
    assert str(tmp_path / "[red]") in outcome.out


def test_a_run_is_not_overwritten(irbm_, trained):
    before = contents(trained)
    outcome = irbm_("train", "digits", "--out", trained, "--n-iter", 1, "--quiet")
    assert outcome.status == 2
    assert said_why(outcome, str(trained), "--resume", "--force")
    assert contents(trained) == before


def test_force_starts_over(irbm_, tmp_path):
    for seed in (1, 2):
        arguments = ("train", "digits", "--out", tmp_path, "--n-iter", 1, "--seed", seed, "--force", "--quiet")
        assert irbm_(*arguments).status == 0
    assert Run(tmp_path).config().seed == 2
    assert Run(tmp_path).position() == (13, 1)
    assert len(list(tmp_path.glob("events.*"))) == 1


def test_resume_of_a_finished_run_ends_at_once(irbm_, trained):
    before = contents(trained)
    outcome = irbm_("train", "digits", "--out", trained, "--resume")
    assert outcome.status == 0
    assert "ended training already, at epoch 2, step 26" in outcome.out
    assert contents(trained) == before


def test_resume_starts_a_missing_run_and_goes_on_with_more_epochs(irbm_, trained, tmp_path):
    for n_iter in (1, 2):
        outcome = irbm_("train", "digits", "--out", tmp_path / "run", "--n-iter", n_iter, "--resume", "--quiet")
        assert outcome.status == 0
    assert "resumed from step 13 (epoch 1)" in outcome.out
    assert same_parameters(tmp_path / "run" / "model.safetensors", trained / "model.safetensors")
    assert (tmp_path / "run" / "config.toml").read_bytes() == (trained / "config.toml").read_bytes()


def test_a_resumed_run_sweeps_up_what_is_of_no_use(irbm_, tmp_path):
    """What a killed one left half written, and what was said of the model that is no more."""
    run = ("train", "digits", "--out", tmp_path / "run", "--resume", "--quiet")
    irbm_(*run, "--n-iter", 1)
    names = (".checkpoint.safetensors.1.part", "evaluation.json", "evaluation.png", "report.html")
    for name in names:
        (tmp_path / "run" / name).write_bytes(b"old")
    assert irbm_(*run, "--n-iter", 2).status == 0
    assert not any((tmp_path / "run" / name).exists() for name in names)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--learning-rate", "0.3"), ("learning_rate", "0.3")),
        (("--seed", "7"), ("seed", "7")),
        (("--model", "fixed"), ("model", "fixed")),
        (("--objective", "hybrid"), ("objective", "infinite")),
        (("--n-iter", "1"), ("n_iter", "1")),
    ],
)
def test_resume_refuses_other_settings(irbm_, trained, flags, words):
    before = contents(trained)
    outcome = irbm_("train", "digits", "--out", trained, "--resume", *flags)
    assert outcome.status == 2
    assert said_why(outcome, *words)
    assert contents(trained) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("digits", "--learning-rate", "-0.1"), ("learning_rate", "-0.1")),
        (("digits", "--beta", "1"), ("beta", "1")),
        (("digits", "--n-iter", "0"), ("n_iter", "0")),
        (("digits", "--gibbs-steps", "-1"), ("gibbs_steps", "-1")),
        (("digits", "--regroup", "1.5"), ("regroup", "1.5")),
        (("digits", "--optimizer", "best"), ("optimizer", "best")),
        (("digits", "--seed", "-1"), ("seed", "-1")),
        (("digits", "--seed", str(2**32)), ("seed", str(2**32))),
        (("digits", "--model", "cubic"), ("model", "cubic")),
        (("digits", "--model", "fixed", "--beta", "1.1"), ("beta", "fixed")),
        (("digits", "--n-components", "10"), ("n_components", "infinite")),
        (("digits", "--device", "abacus"), ("device", "abacus")),
        (("digits", "--binarize", "0.5"), ("binarize", "digits")),
        (("nonsense",), ("nonsense", "digits")),
    ],
)
def test_bad_settings_end_with_status_2_and_leave_nothing(irbm_, tmp_path, arguments, words):
    outcome = irbm_("train", *arguments, "--out", tmp_path / "run")
    assert outcome.status == 2
    assert said_why(outcome, *words)
    assert not (tmp_path / "run").exists()


def test_a_missing_file_ends_with_status_1_and_leaves_nothing(irbm_, tmp_path):
    missing = tmp_path / "missing.npy"
    outcome = irbm_("train", missing, "--out", tmp_path / "run")
    assert outcome.status == 1
    assert said_why(outcome, str(missing))
    outcome = irbm_("train", "digits", "--config", tmp_path / "no.toml", "--out", tmp_path / "run")
    assert outcome.status == 1
    assert said_why(outcome, "no.toml")
    assert not (tmp_path / "run").exists()


def test_the_configuration_of_a_run_gives_the_same_run(irbm_, trained, tmp_path):
    again = tmp_path / "again"
    assert irbm_("train", "digits", "--config", trained / "config.toml", "--out", again, "--quiet").status == 0
    assert same_parameters(again / "model.safetensors", trained / "model.safetensors")
    assert (again / "config.toml").read_bytes() == (trained / "config.toml").read_bytes()


def test_flags_win_over_the_configuration(irbm_, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text('n_iter = 1\nmax_norm = "none"\nlearning_rate = 0.2\n')
    flags = ("--learning-rate", "0.1", "--regroup", "none")
    assert irbm_("train", "digits", "--config", config, "--out", tmp_path / "run", "--quiet", *flags).status == 0
    table = Run(tmp_path / "run").config().complete()
    assert (table["n_iter"], table["max_norm"], table["learning_rate"], table["regroup"]) == (1, None, 0.1, None)


@pytest.mark.parametrize("name", ["averaging", "max_components", "n_chains", "n_permutations", "patience"])
def test_a_count_can_be_none_again(irbm_, tmp_path, name):
    config, flag = tmp_path / "settings.toml", f"--{name.replace('_', '-')}"
    config.write_text(f'task = "classify"\nobjective = "generative"\nn_iter = 1\n{name} = 30\n')
    runs = {}
    for kind, flags in {"config": (), "flag": (flag, "40"), "none": (flag, "none")}.items():
        runs[kind] = Run(tmp_path / kind)
        asked = ("train", "digits", "--config", config, "--out", runs[kind].path, "--quiet", "--gibbs-steps", "1")
        assert irbm_(*asked, *flags).status == 0
    assert [runs[kind].config().complete()[name] for kind in runs] == [30, 40, None]
    if name == "averaging":
        assert not same_parameters(*(runs[kind].path / "model.safetensors" for kind in ("config", "none")))


def test_a_resumed_run_ends_no_earlier_than_the_epoch_it_was_stopped_in(irbm_, trained, tmp_path):
    run = Run(shutil.copytree(trained, tmp_path / "run"))
    state, settings = checkpoint.load(run.checkpoint_file)
    assert run.epochs_begun() == state.epoch == 2
    state.batch = 3
    checkpoint.save(run.checkpoint_file, state, settings)
    run.write_config(replace(run.config(), settings={**run.config().settings, "n_iter": 9}))
    assert run.epochs_begun() == 3
    outcome = irbm_("train", "digits", "--out", run.path, "--resume", "--n-iter", 2)
    assert outcome.status == 2
    assert said_why(outcome, "n_iter", "3", "2")


@pytest.mark.parametrize("text", ["n_iter = ", "n_epochs = 3"])
def test_a_bad_configuration_is_refused(irbm_, tmp_path, text):
    config = tmp_path / "settings.toml"
    config.write_text(text)
    outcome = irbm_("train", "digits", "--config", config, "--out", tmp_path / "run")
    assert outcome.status == 2
    assert said_why(outcome)
    assert not (tmp_path / "run").exists()


def test_a_second_ctrl_c_does_not_wait():
    with interruptible() as stopper:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stopper.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_is_heard_in_the_first_steps_of_a_resumed_run():
    """From step 33 on it is long until a segment begins."""
    X, settings = torch.from_numpy(data.load("digits").train.X), Settings(n_iter=1, batch_size=10, gibbs_steps=1)
    state = TrainingState.start(initial_machine(Infinite(), 64), settings, seed=0)

    class At(Callback):
        def after_segment(self, trainer):
            if trainer.state.step == 32:
                trainer.stop()

    Trainer(state, X, settings=settings, callbacks=[At()]).run()
    assert state.step == 33
    with interruptible() as stopper:
        trainer = Trainer(state, X, settings=settings, callbacks=[stopper])
        step = trainer.step
        trainer.step = lambda rows: (step(rows), signal.raise_signal(signal.SIGTERM))
        trainer.run()
    assert state.step == 34


def test_ctrl_c_leaves_a_checkpoint_and_the_resumed_run_is_the_same(irbm_, tmp_path):
    stopped, whole = Run(tmp_path / "stopped run"), Run(tmp_path / "whole")
    flags = ("--n-iter", 8, "--batch-size", 20, "--quiet")
    process = in_a_process("train", "digits", "--out", stopped.path, *flags)
    while not stopped.checkpoint_file.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    said = re.fullmatch(r"stopped at step (\d+) \(epoch (\d+)\); to go on: irbm (.*)\n", out)
    assert stopped.position() == (int(said[1]), int(said[2]))
    assert stopped.position()[1] < 8
    assert not stopped.model_file.exists()

    resumed = irbm_(*shlex.split(said[3]), "--quiet")
    assert resumed.status == 0
    assert f"resumed from step {said[1]} " in resumed.out
    assert irbm_("train", "digits", "--out", whole.path, *flags).status == 0
    assert same_parameters(stopped.model_file, whole.model_file)


# -- classification -----------------------------------------------------------------------------------------

CLASSIFY = ("--task", "classify", "--learning-rate", 0.2, "--gibbs-steps", 1, "--alpha", 0.1, "--quiet")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A finished classifier run, and what was printed. Tests only read it."""
    path = tmp_path_factory.mktemp("classifier") / "run"
    arguments = ["train", "digits", "--out", path, "--n-iter", 6, *CLASSIFY]
    out, err = in_a_process(*arguments).communicate(timeout=100)
    assert not err
    return Run(path), out


def test_a_classifier_is_trained_and_validated(classifier):
    run, out = classifier
    model, held = run.model(), data.load("digits").validation
    errors = int((model.predict(held.X) != held.y).sum())
    said = re.search(r"epoch (\d) of 6 validates best: error ([\d.]+)% \[([\d.]+)%, ([\d.]+)%\] of 297 validation", out)
    assert int(said[1]) == model.best_epoch_
    assert float(said[2]) == pytest.approx(100 * errors / 297, abs=0.005)
    assert float(said[3]) < float(said[2]) < float(said[4])
    scores = [row["validation_score"] for row in model.history_]
    assert len(scores) == 6
    assert max(scores) == scores[model.best_epoch_ - 1] == pytest.approx(1 - errors / 297)
    table = run.config().complete()
    assert (table["task"], table["objective"], table["validate"], table["patience"]) == (
        "classify",
        "hybrid",
        True,
        None,
    )


def test_a_classifier_without_validation_keeps_the_last_epoch(irbm_, tmp_path):
    outcome = irbm_("train", "digits", "--out", tmp_path / "run", "--n-iter", 2, "--no-validate", *CLASSIFY)
    assert outcome.status == 0
    assert "validates" not in outcome.out
    assert "validation_score" not in (tmp_path / "run" / "metrics.csv").read_text()
    assert not Run(tmp_path / "run").config().complete()["validate"]


def test_a_density_model_can_be_validated(irbm_, tmp_path):
    outcome = irbm_("train", "digits", "--out", tmp_path / "run", "--n-iter", 2, "--validate", "--quiet")
    assert outcome.status == 0
    model = Run(tmp_path / "run").model()
    score = model.pseudo_log_likelihood(data.load("digits").validation.X).mean()
    assert f"epoch {model.best_epoch_} of 2 validates best: mean pseudo-log-likelihood {score:.3f}" in outcome.out


def test_a_run_out_of_patience_has_ended(irbm_, tmp_path):
    """A rate too small to change a prediction: the first epoch stays the best, by accuracy and by probability."""
    path = tmp_path / "run"
    flags = (*CLASSIFY, "--learning-rate", 1e-12, "--optimizer", "constant")
    outcome = irbm_("train", "digits", "--out", path, "--n-iter", 30, "--patience", 2, *flags)
    assert outcome.status == 0
    step, epoch = Run(path).position()
    assert epoch < 30
    assert epoch == Run(path).model().best_epoch_ + 2
    before = contents(path)
    again = irbm_("train", "digits", "--out", path, "--resume")
    assert again.status == 0
    assert f"ended training already, at epoch {epoch}, step {step}" in again.out
    assert contents(path) == before


def test_an_interrupted_classifier_run_goes_on_to_the_same_end(irbm_, classifier, tmp_path):
    run = Run(tmp_path / "run")
    for n_iter in (3, 6):
        arguments = ("train", "digits", "--out", run.path, "--n-iter", n_iter, "--resume", *CLASSIFY)
        assert irbm_(*arguments).status == 0
    assert same_parameters(run.model_file, classifier[0].model_file)
    assert run.model().best_epoch_ == classifier[0].model().best_epoch_


@pytest.mark.parametrize("kind", ["words", "numbers"])
def test_labels_of_any_kind(irbm_, tmp_path, kind):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (80, 6), np.uint8)
    names = {"words": np.array([b"ash", b"birch"]), "numbers": np.array([-3, 70])}[kind]
    np.savez(tmp_path / "own.npz", X=X, y=names[X[:, 0]])
    outcome = irbm_("train", tmp_path / "own.npz", "--out", tmp_path / "run", "--n-iter", 3, *CLASSIFY)
    assert outcome.status == 0, outcome.err
    expected = {"words": ["ash", "birch"], "numbers": [-3, 70]}[kind]
    assert Run(tmp_path / "run").model().classes_.tolist() == expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--task", "fly"), ("task", "fly", "classify")),
        (("--task", "classify", "--model", "ordered"), ("model", "ordered", "fixed")),
        (("--objective", "hybrid"), ("objective",)),
        (("--task", "classify", "--objective", "best"), ("objective", "best")),
        (("--task", "classify", "--patience", "0"), ("patience", "0")),
        (("--patience", "3"), ("patience", "validate")),
        (("--task", "classify", "--no-validate", "--patience", "3"), ("patience", "validate")),
        (("--task", "classify", "--n-permutations", "0"), ("n_permutations", "0")),
    ],
)
def test_bad_settings_of_classifiers(irbm_, tmp_path, flags, words):
    outcome = irbm_("train", "digits", "--out", tmp_path / "run", *flags)
    assert outcome.status == 2
    assert said_why(outcome, *words)
    assert not (tmp_path / "run").exists()


def test_data_without_labels_cannot_be_classified(irbm_, tmp_path):
    np.save(tmp_path / "own.npy", np.random.default_rng(0).integers(0, 2, (60, 12), np.uint8))
    outcome = irbm_("train", tmp_path / "own.npy", "--task", "classify", "--out", tmp_path / "run")
    assert outcome.status == 2
    assert said_why(outcome, "own.npy", "labels")
    assert not (tmp_path / "run").exists()


def test_numbers_that_are_no_labels_leave_nothing(irbm_, tmp_path):
    np.savez(tmp_path / "own.npz", X=np.eye(30, dtype=int), y=np.linspace(0, 1, 30))
    outcome = irbm_("train", tmp_path / "own.npz", "--out", tmp_path / "run", *CLASSIFY)
    assert outcome.status == 2
    assert said_why(outcome, "continuous")
    assert not (tmp_path / "run").exists()


def test_a_classifier_run_can_be_sampled(irbm_, classifier, tmp_path):
    out = tmp_path / "samples.npy"
    assert irbm_("sample", classifier[0].path, "--out", out, "--n-samples", 3, "--n-steps", 2, "--seed", 4).status == 0
    expected, _ = classifier[0].model().sample(3, n_steps=2, random_state=4)
    np.testing.assert_array_equal(np.load(out, allow_pickle=False), expected)


def test_binarize_is_for_loading_alone(irbm_, tmp_path):
    """The model of a run takes 0 and 1, as its data come out of the file."""
    file, path = tmp_path / "grey.npy", tmp_path / "run"
    np.save(file, np.random.default_rng(0).choice([10, 200], (60, 12)).astype(np.uint8))
    assert irbm_("train", file, "--binarize", 127, "--out", path, "--n-iter", 1, "--quiet").status == 0
    run = Run(path)
    assert run.config().binarize == run.config().complete()["binarize"] == 127
    assert run.model().binarize is None
    assert set(np.unique(run.config().load_data().train.X)) == {0, 1}
    assert irbm_("train", file, "--out", path, "--resume", "--n-iter", 2, "--quiet").status == 0
    assert run.config().binarize == 127


# -- errors and help ----------------------------------------------------------------------------------------


def test_a_process_ends_with_one_line_and_status_2():
    process = in_a_process("train", "nonsense", "--out", "nowhere")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said_why(Outcome(2, out, err), "nonsense")


def test_what_nobody_thought_of_is_one_line_too(irbm_, tmp_path, monkeypatch):
    def fails(*_):
        raise MemoryError("no room\nfor so many chains")

    monkeypatch.setattr(Run, "train", fails)
    outcome = irbm_("train", "digits", "--out", tmp_path / "run", "--quiet")
    assert outcome.status == 1
    assert said_why(outcome, "MemoryError: no room for so many chains", "--debug")


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["irbm", "--debug", "train", "nonsense", "--out", "nowhere"])
    with pytest.raises(ValueError, match="nonsense"):
        cli.main()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(irbm_, command):
    outcome = irbm_(command, "--help")
    assert outcome.status == 0
    assert re.search(rf"Examples?: irbm {command}", outcome.out)


def test_help_tells_the_defaults(irbm_):
    assert "[infinite]" in irbm_("train", "--help").out
    assert f"[{cli.demo.DEMO_RUN}, " in irbm_("demo", "--help").out
    said = re.sub(r"[\s│]+", " ", irbm_("reproduce", "--help").out)
    assert all(f"[{EFFORT[name].full_budget}]" in said for name in (MNIST, CALTECH))


def test_help_says_what_each_experiment_is(irbm_):
    said = re.sub(r"[^\w|]+", " ", irbm_("reproduce", "--help").out)
    for name in EXPERIMENTS:
        assert re.search(rf"\b{name} (and )?[a-z]", said), name
    for part in (*BOTH, "or all"):
        assert part in said


def test_help_says_where_to_begin(irbm_):
    assert "Begin with: irbm demo" in irbm_("--help").out


def test_the_version_needs_no_command(irbm_):
    outcome = irbm_("--version")
    assert outcome.status == 0
    assert outcome.out == f"irbm {irbm.__version__}\n"


def test_usage_errors_have_status_2(irbm_):
    assert irbm_("train", "digits").status == 2
    assert irbm_("fly").status == 2


@pytest.mark.parametrize("command", ["report", "sample", "evaluate"])
def test_commands_refuse_what_is_no_finished_run(irbm_, tmp_path, trained, command):
    more = ("--out", tmp_path / "samples.npy") if command == "sample" else ()
    outcome = irbm_(command, tmp_path, *more)
    assert outcome.status == 1
    assert said_why(outcome, str(tmp_path), "config.toml")
    (tmp_path / "config.toml").write_bytes((trained / "config.toml").read_bytes())
    outcome = irbm_(command, tmp_path, *more)
    assert outcome.status == 1
    assert said_why(outcome, "--resume")
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


# -- evaluate -----------------------------------------------------------------------------------------------


@pytest.fixture
def quick_annealing(monkeypatch):
    for name, value in {"CHAINS": 60, "SWEEPS": 20, "LADDER": 8}.items():
        monkeypatch.setattr(estimate, name, value)
    for room, name, value in ((modes, "STARTS", 100), (modes, "SWEEPS", 20), (ais, "PILOT_POINTS", 20)):
        monkeypatch.setattr(room, name, value)


@pytest.fixture
def verdict_is(monkeypatch):
    """Makes every annealed estimate reliable, or not."""
    true = estimate.verdict

    def force(reliable):
        forced = lambda *given: replace(true(*given), reliable=reliable, reason="because I say so")  # noqa: E731
        monkeypatch.setattr(estimate, "verdict", forced)

    return force


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the finished run, to write into."""
    return Run(shutil.copytree(trained, tmp_path / "copy"))


def strict(text):
    """JSON as other programs read it: without nan and infinities."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_evaluate_writes_and_prints_what_it_found(irbm_, copied, quick_annealing, verdict_is):
    verdict_is(True)
    outcome = irbm_("evaluate", copied.path, "--budget", 20, "--permutations", 1, "--seed", 7, "--data", "validation")
    assert outcome.status == 0, outcome.err
    found = strict(copied.evaluation_file.read_text())
    assert found["data"] == {"set": "digits", "split": "validation", "examples": 297}
    assert found["seed"] == 7
    assert found["commit"]
    assert {"python", "torch", "numpy"} <= set(found["versions"])
    log_z, own, model = found["log_partition"], found["log_likelihood"], copied.model()
    assert (log_z["method"], log_z["reliable"], own["reliable"]) == ("ais", True, True)
    minus_f = -model.free_energy(data.load("digits").validation.X)
    assert own["value"] == pytest.approx(minus_f.mean() - log_z["value"])
    assert own["lower"] == pytest.approx(minus_f.mean() - log_z["upper"])
    assert own["upper"] == pytest.approx(minus_f.mean() - log_z["lower"])
    assert own["lower"] < own["value"] < own["upper"]
    assert own["stderr_of_examples"] == pytest.approx(minus_f.std(ddof=1) / math.sqrt(297))
    assert {(trial["side"], trial["n_points"]) for trial in log_z["trials"]} == {
        (side, 20) for side in ("forward", "reverse", "both")
    }
    averaged = found["average_over_orders"]
    assert averaged["lower"] < averaged["value"] < averaged["upper"]
    assert averaged["stderr"] is None  # of one order
    assert found["size"]["n_components"] == model.n_components_
    for line in (own, averaged, found["as_plain_rbm"]):
        assert f"[{line['lower']:.2f}, {line['upper']:.2f}]" in outcome.out
    assert str(copied.evaluation_file) in outcome.out.replace("\n", "")
    assert matplotlib.image.imread(copied.path / "evaluation.png").std() > 0


def test_an_unreliable_evaluation_has_status_3_and_is_marked_in_the_report(
    irbm_, copied, quick_annealing, verdict_is, monkeypatch
):
    verdict_is(False)
    outcome = irbm_("evaluate", copied.path, "--budget", 20)
    assert outcome.status == 3
    assert outcome.out.endswith("NOT reliable: mean ln p(v), nats: because I say so\n")
    assert re.search(r"mean ln p\(v\), nats.*NO", outcome.out)
    found = strict(copied.evaluation_file.read_text())
    assert found["log_likelihood"]["reliable"] is False
    assert "average_over_orders" not in found
    monkeypatch.setattr(irbm.report, "STEPS", 2)
    assert irbm_("report", copied.path).status == 0
    page = (copied.path / "report.html").read_text()
    assert "not reliable: do not quote" in page
    assert "<th>log likelihood, lower</th>" in page


@pytest.mark.parametrize(
    ("doubtful", "name"), [(1, "averaged over orders"), (2, "averaged over orders"), (3, "as a plain RBM")]
)
def test_every_likelihood_that_is_printed_counts_for_the_status(
    irbm_, copied, quick_annealing, monkeypatch, doubtful, name
):
    """ln Z of the machine itself, of two orders, of the plain RBM: one of them in doubt is enough."""
    true, calls = estimate.verdict, itertools.count()

    def forced(*given):
        reliable = next(calls) != doubtful
        return replace(true(*given), reliable=reliable, reason="all well" if reliable else "a doubt")

    monkeypatch.setattr(estimate, "verdict", forced)
    monkeypatch.setattr(partition, "is_small", lambda _: False)
    outcome = irbm_("evaluate", copied.path, "--budget", 20, "--permutations", 2)
    assert next(calls) == 4
    assert outcome.status == 3
    found = strict(copied.evaluation_file.read_text())
    verdicts = {key: found[key]["reliable"] for key in ("log_likelihood", "average_over_orders", "as_plain_rbm")}
    key = "as_plain_rbm" if doubtful == 3 else "average_over_orders"
    assert verdicts == {"log_likelihood": True, "average_over_orders": True, "as_plain_rbm": True} | {key: False}
    assert "a doubt" in found[key]["reason"]
    assert re.search(rf"{name}.*NO", outcome.out)
    said = " ".join(outcome.out.split())
    assert f"NOT reliable: {name}: " in said
    assert said.endswith("a doubt")


def test_an_exact_evaluation_is_strict_json_and_leaves_no_old_picture(irbm_, shapeless):
    (shapeless / "evaluation.png").write_bytes(b"of an earlier one")
    assert irbm_("evaluate", shapeless).status == 0
    found = strict((shapeless / "evaluation.json").read_text())
    assert found["log_partition"]["method"] == "exact"
    assert found["log_partition"]["ess"] is None
    assert found["log_likelihood"]["lower"] == found["log_likelihood"]["value"] == found["log_likelihood"]["upper"]
    assert not (shapeless / "evaluation.png").exists()


def test_an_evaluation_that_cannot_be_written_is_printed(irbm_, shapeless, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
    outcome = irbm_("evaluate", shapeless)
    assert outcome.status == 1
    assert said_why(outcome, "cannot write", "evaluation.json", "read-only")
    assert "mean ln p(v)" in outcome.out


def test_evaluate_tells_a_classifiers_errors(irbm_, classifier, tmp_path, quick_annealing, verdict_is):
    verdict_is(True)
    run = Run(shutil.copytree(classifier[0].path, tmp_path / "copy"))
    outcome = irbm_("evaluate", run.path, "--budget", 20)
    assert outcome.status == 0, outcome.err
    test = data.load("digits").test
    own, rate = strict(run.evaluation_file.read_text())["error"], (run.model().predict(test.X) != test.y).mean()
    assert own["rate"] == pytest.approx(rate)
    assert own["lower"] < rate < own["upper"]
    assert f"{rate:.2%}" in outcome.out
    assert f"[{own['lower']:.2%}, {own['upper']:.2%}]" in outcome.out


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--data", "all"), "data"),
        (("--budget", "0"), "budget"),
        (("--permutations", "-1"), "permutations"),
        (("--seed", "-2"), "seed"),
        (("--tol", "0.0"), "tol"),
    ],
)
def test_evaluate_refuses_bad_arguments(irbm_, trained, flags, name):
    before = contents(trained)
    outcome = irbm_("evaluate", trained, *flags)
    assert outcome.status == 2
    assert said_why(outcome, name, flags[1])
    assert contents(trained) == before


def test_a_classifier_has_no_orders_to_average_p_v_over(irbm_, classifier):
    outcome = irbm_("evaluate", classifier[0].path, "--permutations", 2)
    assert outcome.status == 2
    assert said_why(outcome, "permutations", "2", str(classifier[0].path))


# -- sample -------------------------------------------------------------------------------------------------


def test_sample_draws_a_picture(irbm_, trained, tmp_path):
    out = tmp_path / "new" / "samples.png"
    outcome = irbm_("sample", trained, "--out", out, "--n-samples", 7, "--n-steps", 3)
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{out}\n", "")
    height, width = matplotlib.image.imread(out).shape[:2]
    assert height == width  # 3 x 3 places of 8 x 8 pixels
    assert width % (3 * 9 + 1) == 0


def test_sample_writes_what_the_model_draws(irbm_, trained, tmp_path):
    out = tmp_path / "samples.npy"
    assert irbm_("sample", trained, "--out", out, "--n-samples", 7, "--n-steps", 3, "--seed", 5).status == 0
    drawn = np.load(out, allow_pickle=False)
    expected = Run(trained).model().sample(7, n_steps=3, random_state=5)
    assert drawn.dtype == np.uint8
    np.testing.assert_array_equal(drawn, expected)


def test_sample_overwrites_only_by_force(irbm_, trained, tmp_path):
    out = tmp_path / "samples.npy"
    out.write_text("mine")
    outcome = irbm_("sample", trained, "--out", out)
    assert outcome.status == 2
    assert said_why(outcome, str(out), "--force")
    assert out.read_text() == "mine"
    assert irbm_("sample", trained, "--out", out, "--n-steps", 1, "--force").status == 0
    assert np.load(out, allow_pickle=False).shape == (100, 64)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--out", "samples.jpg"), ".npy"),
        (("--out", "samples.npy", "--n-samples", "0"), "n_samples"),
        (("--out", "samples.npy", "--n-steps", "-1"), "n_steps"),
        (("--out", "samples.npy", "--seed", "-1"), "seed"),
    ],
)
def test_sample_refuses_bad_arguments(irbm_, trained, tmp_path, monkeypatch, flags, name):
    monkeypatch.chdir(tmp_path)
    outcome = irbm_("sample", trained, *flags)
    assert outcome.status == 2
    assert said_why(outcome, name, flags[-1])
    assert not list(tmp_path.iterdir())


def test_data_without_image_shape_are_sampled_to_an_array_only(irbm_, shapeless, tmp_path):
    outcome = irbm_("sample", shapeless, "--out", tmp_path / "samples.png")
    assert outcome.status == 2
    assert said_why(outcome, "own.npy", ".npy")
    assert not (tmp_path / "samples.png").exists()
    assert irbm_("sample", shapeless, "--out", tmp_path / "samples.npy", "--n-steps", 2).status == 0
    assert np.load(tmp_path / "samples.npy", allow_pickle=False).shape == (100, 12)


# -- data ---------------------------------------------------------------------------------------------------


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The one folder that data are looked for in."""
    monkeypatch.setenv("IRBM_DATA", str(tmp_path))
    monkeypatch.setattr(sources, "_cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def test_data_lists_the_known_sets(irbm_, empty_folder):
    (empty_folder / "caltech101_silhouettes_28_split1.mat").touch()
    outcome = irbm_("data")
    assert outcome.status == 0
    lines = dict(line.split(": ", 1) for line in outcome.out.splitlines())
    assert tuple(lines) == data.KNOWN
    assert lines["digits"] == "comes with scikit-learn"
    assert lines["mnist"] == "not here; `irbm data mnist` downloads it"
    assert lines["binarized_mnist"].endswith(f"put it at {empty_folder / 'binarized_mnist.mat'}")
    assert lines["caltech101_silhouettes"] == str(empty_folder / "caltech101_silhouettes_28_split1.mat")


def test_data_shows_a_set(irbm_):
    outcome = irbm_("data", "digits")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "train: 1,204 x 64, 10 classes",
        "validation: 297 x 64, 10 classes",
        "test: 296 x 64, 10 classes",
        data.load("digits").note,
    ]


def test_data_verifies(irbm_, empty_folder):
    outcome = irbm_("data", "binarized_mnist")
    assert outcome.status == 1
    assert said_why(outcome, "binarized_mnist.mat", str(empty_folder))
    (empty_folder / "binarized_mnist.mat").write_bytes(b"something else")
    outcome = irbm_("data", "binarized_mnist")
    assert outcome.status == 2
    assert said_why(outcome, "damaged", "SHA-256")


def test_data_reads_a_file_of_ones_own(irbm_, tmp_path):
    np.save(tmp_path / "own.npy", np.full((20, 3), 0.3))
    assert said_why(irbm_("data", tmp_path / "own.npy"), "binarize")
    outcome = irbm_("data", tmp_path / "own.npy", "--binarize", 0.2)
    assert outcome.out.startswith("train: 16 x 3, no labels\n")


# -- demo ---------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_demo(monkeypatch):
    """Few steps for the report, and no estimate of ln Z."""
    monkeypatch.setattr(irbm.report, "STEPS", 2)
    monkeypatch.setattr(cli.demo, "likelihood_line", lambda *_: "as likely as not")


def test_demo_trains_and_reports(irbm_, tmp_path, quick_demo):
    run = Run(tmp_path / "mine")
    outcome = irbm_("demo", "--out", run.path, "--n-iter", 1, "--seed", 3)
    assert outcome.status == 0
    assert run.config().seed == 3
    assert f"{run.model().n_components_} hidden units" in outcome.out
    assert "as likely as not\n" in outcome.out
    assert f"report: {run.path / 'report.html'}\n" in outcome.out
    assert len(outcome.err.splitlines()) == 1  # the bar as it ended
    assert (run.path / "report.html").is_file()


def test_the_demo_says_what_its_likelihood_is_worth(monkeypatch):
    model, digits = irbm.RBM.from_parameters(np.eye(3, 64), np.zeros(3), np.zeros(64)), data.load("digits")
    mean = float(model.score_samples(digits.test.X).mean()) + model.log_partition().value
    found = partition.LogPartition(50.0, 1.0, 48.0, 51.0, 3.0, False, "too few chains", "ais")
    monkeypatch.setattr(model, "log_partition", lambda **_: found)
    assert cli.demo.likelihood_line(model, digits) == (
        f"mean log-likelihood of 296 test examples: in [{mean - 51:.2f}, {mean - 48:.2f}] nats, "
        "NOT reliable: too few chains"
    )


def test_demo_replaces_its_own_directory_and_no_other(irbm_, tmp_path, monkeypatch, quick_demo):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(irbm.report, "write_report", lambda run: run.path)
    for seed in (1, 2):
        assert irbm_("demo", "--n-iter", 1, "--seed", seed).status == 0
        assert Run(Path("runs/demo")).config().seed == seed
    outcome = irbm_("demo", "--out", "runs/demo", "--n-iter", 1)
    assert outcome.status == 2
    assert said_why(outcome, "runs/demo", "--force")
    assert irbm_("demo", "--out", "runs/demo", "--n-iter", 1, "--force").status == 0
    assert Run(Path("runs/demo")).config().seed == 0


def test_demo_keeps_a_run_that_was_trained_on(irbm_, tmp_path, monkeypatch, quick_demo):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(irbm.report, "write_report", lambda run: run.path)
    assert irbm_("demo", "--n-iter", 1).status == 0
    assert irbm_("train", "digits", "--out", "runs/demo", "--resume", "--n-iter", 2, "--quiet").status == 0
    outcome = irbm_("demo", "--n-iter", 1)
    assert outcome.status == 2
    assert said_why(outcome, "runs/demo", "--force")
    assert Run(Path("runs/demo")).position()[1] == 2


def test_a_run_on_an_own_file_is_the_same_from_anywhere(irbm_, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "own.npy", (np.random.default_rng(0).random((40, 6)) < 0.4).astype(np.uint8))
    monkeypatch.chdir(tmp_path)
    assert irbm_("train", "own.npy", "--out", "run", "--n-iter", 1, "--quiet").status == 0
    monkeypatch.chdir(tmp_path / "other")
    more = ("--resume", "--device", "cpu", "--n-iter", 2, "--quiet")  # where it ran by default
    assert irbm_("train", "../own.npy", "--out", "../run", *more).status == 0
    assert Run(tmp_path / "run").position()[1] == 2
    assert irbm_("evaluate", "../run", "--budget", 20).status in (0, 3)


def test_data_that_cannot_be_learned_from_leave_the_old_run(irbm_, tmp_path):
    """With --force, too: labels are looked at before anything is removed."""
    run, X = Run(tmp_path / "run"), np.eye(6, dtype=np.uint8)
    np.savez(tmp_path / "three.npz", X=X[:3], y=[0, 1, 2])
    assert irbm_("train", "digits", "--out", run.path, "--n-iter", 1, "--quiet").status == 0
    before = run.model_file.read_bytes()
    outcome = irbm_("train", tmp_path / "three.npz", "--task", "classify", "--out", run.path, "--force")
    assert outcome.status == 2
    assert said_why(outcome, "validation", "three")
    assert run.model_file.read_bytes() == before
