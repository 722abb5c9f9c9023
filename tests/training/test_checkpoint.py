"""Checkpoints: every state comes back bit by bit, nothing unsound does, and a killed run ends as if undisturbed."""

import importlib.util
import json
import struct
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irbm
from irbm.files import read_tensors, write_tensors
from irbm.models import Fixed, Infinite, Ordered
from irbm.training import Callback, Checkpointer, EarlyStopping, Settings, Trainer, TrainingState, checkpoint
from irbm.training.initial import initial_machine

rng = np.random.default_rng(0)
X = torch.from_numpy((rng.random((70, 8)) < 0.4).astype(np.uint8))
Y = torch.arange(70) % 3
DEPTHS = {"fixed": Fixed(), "ordered": Ordered(0.9, "softplus"), "infinite": Infinite(1.1)}


def start(settings, depth="infinite", labels=0, dtype=torch.float32):
    size = 1 if depth == "infinite" else 5
    machine = initial_machine(DEPTHS[depth], 8, n_components=size, n_classes=labels, seed=3, dtype=dtype)
    return TrainingState.start(machine, settings, seed=3)


def trainer_of(state, settings, callbacks=(), **more):
    return Trainer(state, X, Y if state.machine.n_classes else None, settings=settings, callbacks=callbacks, **more)


def all_tensors(state):
    parts = {"machine": state.machine, "optimizer": state.optimizer, "chains": state.chains}
    if state.best is not None:
        parts["best"] = state.best.machine
    return {f"{part}.{n}": t for part, value in parts.items() for n, t in value.tensors().items()} | {
        "sums": state.sums
    }


def assert_same_state(a, b):
    ours, theirs = all_tensors(a), all_tensors(b)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name
    assert a.machine.depth == b.machine.depth
    if a.best is not None:
        assert (a.best.epoch, a.best.score) == (b.best.epoch, b.best.score)
    assert [getattr(a, n) for n in checkpoint.COUNTERS] == [getattr(b, n) for n in checkpoint.COUNTERS]
    seconds = [{"seconds": 0.0}] * len(a.history)
    assert [asdict(r) | s for r, s in zip(a.history, seconds, strict=True)] == [
        asdict(r) | {"seconds": 0.0} for r in b.history
    ]


class StopAt(Callback):
    """Stops in the middle of an epoch, two steps after a segment begins."""

    def after_segment(self, trainer):
        if trainer.state.step == 32:
            trainer.stop()


# -- round trips --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "constant", "decay"])
@pytest.mark.parametrize(
    ("depth", "objective", "labels"),
    [
        *((depth, "generative", 0) for depth in DEPTHS),
        *((depth, objective, 3) for depth in DEPTHS for objective in ("generative", "discriminative", "hybrid")),
    ],
)
def test_a_state_comes_back_bit_by_bit_and_goes_on_so(tmp_path, depth, objective, labels, optimizer, momentum):
    settings = Settings(
        n_iter=3, batch_size=5, gibbs_steps=1, objective=objective, optimizer=optimizer, momentum=momentum
    )
    path = tmp_path / "checkpoint.safetensors"
    state = trainer_of(start(settings, depth, labels), settings, [StopAt(), Checkpointer(path)]).run()
    assert (state.step, state.epoch, state.batch) == (33, 2, 5)  # of 14 batches an epoch
    loaded, saved = checkpoint.load(path)
    assert saved == settings
    assert_same_state(loaded, state)
    assert loaded.history == state.history
    assert_same_state(trainer_of(loaded, settings).run(), trainer_of(state, settings).run())


@pytest.mark.parametrize(
    "more",
    [
        {"persistent": False},
        {"n_chains": 13},
        {"averaging": 7},
        {"gradient": "sampled", "regroup": 0.3},
        {"regroup": None, "max_norm": None, "label_max_norm": None, "max_components": 3},
    ],
    ids=lambda more: ",".join(more),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_settings_come_back_too(tmp_path, more, dtype):
    settings = Settings(n_iter=2, batch_size=10, gibbs_steps=1, **more)
    state = trainer_of(start(settings, labels=3, dtype=dtype), settings).run()
    checkpoint.save(tmp_path / "a", state, settings)
    loaded, saved = checkpoint.load(tmp_path / "a")
    assert saved == settings
    assert loaded.machine.weights.dtype == dtype
    assert_same_state(loaded, state)
    checkpoint.save(tmp_path / "b", loaded, saved)
    (first, about), (second, again) = (read_tensors(tmp_path / name, "checkpoint") for name in "ab")
    assert about == again
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_a_state_before_its_first_step_comes_back(tmp_path):
    settings = Settings()
    state = start(settings)
    checkpoint.save(tmp_path / "a", state, settings)
    assert_same_state(checkpoint.load(tmp_path / "a")[0], state)


def test_every_field_of_the_state_is_in_the_checkpoint():
    """A field added to the state and forgotten here would be lost on a resume."""
    held = {"machine", "optimizer", "chains", "sums", "history", "best", *checkpoint.COUNTERS}
    assert {f.name for f in fields(TrainingState)} == held


@pytest.mark.parametrize("labels", [0, 3])
def test_an_estimator_resumes_as_if_never_stopped(tmp_path, labels):
    path = tmp_path / "checkpoint.safetensors"
    cls = irbm.InfiniteRBMClassifier if labels else irbm.InfiniteRBM
    more = {"batch_size": 5, "gibbs_steps": 1, "random_state": 4, "device": "cpu"}
    data = (X.numpy(), np.array(["a", "b", "c"])[Y]) if labels else (X.numpy(),)
    whole = cls(n_iter=4, **more).fit(*data)
    cls(n_iter=4, **more).fit(*data, callbacks=[StopAt(), Checkpointer(path)])
    resumed = cls(n_iter=4, **more).fit(*data, resume_from=path)
    assert_same_state(resumed.training_state_, whole.training_state_)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    longer = cls(n_iter=6, **more).fit(*data, resume_from=path)
    assert_same_state(longer.training_state_, cls(n_iter=6, **more).fit(*data).training_state_)
    if labels:
        assert resumed.classes_.tolist() == ["a", "b", "c"]


def test_the_best_machine_survives_a_resume(tmp_path):
    """The score falls from the second epoch on, and the stop comes after it: only the checkpoint knows the best."""
    path = tmp_path / "checkpoint.safetensors"
    settings = Settings(n_iter=6, batch_size=5, gibbs_steps=1)

    def stopping():
        return EarlyStopping(lambda machine: -float(machine.size), patience=None)

    whole = trainer_of(start(settings), settings, [stopping()]).run()
    trainer_of(start(settings), settings, [StopAt(), stopping(), Checkpointer(path)]).run()
    resumed = trainer_of(checkpoint.load(path)[0], settings, [stopping()]).run()
    assert whole.best.epoch < 3
    assert_same_state(resumed, whole)


# -- when it is written -------------------------------------------------------------------------------------


def test_a_checkpoint_every_epoch_every_so_often_and_at_a_stop(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    written = []
    monkeypatch.setattr(checkpoint, "save", lambda path, state, settings: written.append(state.step))
    settings = Settings(n_iter=3, batch_size=1, gibbs_steps=1, max_components=2)

    class Clock(Callback):
        """25 seconds a segment; told to stop in the third epoch."""

        def after_segment(self, trainer):
            clock[0] += 25.0
            if trainer.state.step == 160:
                trainer.stop()

    trainer_of(start(settings), settings, [Clock(), Checkpointer(tmp_path / "c", seconds=60)]).run()
    # Segments at 0, 32, 64 (75 s: written), epoch at 70, segments 96, 128, epoch at 140, stop in step 161.
    assert written == [64, 70, 140, 161]


def test_a_checkpoint_does_not_wait_for_slow_steps(tmp_path, monkeypatch):
    """25 seconds a step: at 75, 150 and 225, long before 32 of them are over."""
    clock, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "save", lambda path, state, settings: written.append(state.step))
    step = Trainer.step

    def slow(self, rows):
        step(self, rows)
        clock[0] += 25.0

    monkeypatch.setattr(Trainer, "step", slow)
    settings = Settings(n_iter=1, batch_size=7, gibbs_steps=1, max_components=2)
    trainer_of(start(settings), settings, [Checkpointer(tmp_path / "c", seconds=60)]).run()
    assert written == [3, 6, 9, 10]


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    settings = Settings(n_iter=1, batch_size=10, gibbs_steps=1)
    path = tmp_path / "checkpoint.safetensors"
    state = trainer_of(start(settings), settings, [Checkpointer(path)]).run()
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        trainer_of(state, settings, [Checkpointer(path)], n_iter=2).run()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# -- hostile files ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The parts of a sound checkpoint with everything in it."""
    settings = Settings(n_iter=2, batch_size=10, gibbs_steps=1, momentum=True, objective="hybrid")
    path = tmp_path_factory.mktemp("sound") / "checkpoint.safetensors"
    trainer_of(start(settings, labels=3), settings, [EarlyStopping(first_weight), Checkpointer(path)]).run()
    return path


def first_weight(machine):
    return float(machine.weights[0, 0])


def refused(path, match=None):
    with pytest.raises(ValueError, match=match) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)


def rewritten(sound, tmp_path, change):
    """The sound checkpoint after ``change(tensors, about)``."""
    tensors, about = read_tensors(sound, "checkpoint")
    assert checkpoint.load(sound)
    change(tensors, about)
    path = tmp_path / "hostile.safetensors"
    write_tensors(path, tensors, "checkpoint", about)
    return path


PARAMETERS = ("weights", "hidden_bias", "visible_bias", "label_weights", "label_bias")
TENSORS = [
    *(f"machine.{n}" for n in (*PARAMETERS, "order", "size")),
    *(f"optimizer.{kind}.{n}" for kind in ("squares", "velocity") for n in PARAMETERS),
    "optimizer.age",
    "optimizer.step",
    "chains.v",
    "chains.y",
    *(f"best.{n}" for n in (*PARAMETERS, "order", "size")),
    "sums",
]


def test_the_list_of_tensors_is_whole(sound):
    assert set(read_tensors(sound, "checkpoint")[0]) == set(TENSORS)


@pytest.mark.parametrize("name", TENSORS)
def test_a_missing_tensor_is_refused(sound, tmp_path, name):
    refused(rewritten(sound, tmp_path, lambda tensors, about: tensors.pop(name)))


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_another_shape_is_refused(sound, tmp_path, name):
    def longer(tensors, about):
        t = tensors[name]
        tensors[name] = torch.cat([t, t[:1]]) if t.dim() else t.repeat(2)

    refused(rewritten(sound, tmp_path, longer))
    if name not in ("optimizer.step", "machine.size", "best.size"):
        refused(rewritten(sound, tmp_path, lambda t, _: t.update({name: t[name][:-1].clone()})))
        refused(rewritten(sound, tmp_path, lambda t, _: t.update({name: t[name][None].clone()})))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_another_type_is_refused(sound, tmp_path, name, dtype):
    tensors, _ = read_tensors(sound, "checkpoint")
    if tensors[name].dtype != dtype:
        refused(rewritten(sound, tmp_path, lambda t, _: t.update({name: t[name].to(dtype)})))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name", [n for n in TENSORS if n.startswith(("machine.", "best.")) and n.endswith(("weights", "bias"))]
)
def test_a_parameter_that_is_not_finite_is_refused(sound, tmp_path, name, value):
    refused(rewritten(sound, tmp_path, lambda t, _: t[name].view(-1)[:1].fill_(value)), "finite")


def set_in(part, name, value):
    return lambda tensors, about: about[part].update({name: value})


HOSTILE = {
    "order": lambda t, _: t["machine.order"].fill_(0),
    "order beyond": lambda t, _: t["machine.order"][:1].fill_(10**9),
    "size zero": lambda t, _: t["machine.size"].fill_(0),
    "size beyond the capacity": lambda t, _: t["machine.size"].fill_(10**6),
    "trained padding": lambda t, _: t["machine.weights"][-1].fill_(1.0),
    "machine gone": lambda _, about: about.pop("machine"),
    "machine unknown": set_in("machine", "depth", "bottomless"),
    "machine a list": lambda _, about: about.update(machine=[1, 2]),
    "machine a word": lambda _, about: about.update(machine="infinite"),
    "beta below one": set_in("machine", "beta", 0.5),
    "beta a word": set_in("machine", "beta", "much"),
    "beta NaN": set_in("machine", "beta", float("nan")),
    "more depth": set_in("machine", "gamma", 1.0),
    "settings gone": lambda _, about: about.pop("settings"),
    "settings a list": lambda _, about: about.update(settings=[]),
    "settings unknown": set_in("settings", "colour", "blue"),
    "settings impossible": set_in("settings", "learning_rate", -1.0),
    "settings of another optimiser": set_in("settings", "optimizer", "constant"),
    "settings without momentum": set_in("settings", "momentum", False),
    "settings without chains": set_in("settings", "persistent", False),
    "settings with more chains": set_in("settings", "n_chains", 77),
    "counters gone": lambda _, about: about.pop("counters"),
    "counters a list": lambda _, about: about.update(counters=[1, 2, 3, 4]),
    **{f"{n} negative": set_in("counters", n, -1) for n in checkpoint.COUNTERS},
    **{f"{n} a fraction": set_in("counters", n, 1.5) for n in checkpoint.COUNTERS},
    **{f"{n} a word": set_in("counters", n, "1") for n in checkpoint.COUNTERS},
    **{f"{n} true": set_in("counters", n, True) for n in checkpoint.COUNTERS},
    **{f"{n} gone": lambda _, about, n=n: about["counters"].pop(n) for n in checkpoint.COUNTERS},
    "history gone": lambda _, about: about.pop("history"),
    "history a number": lambda _, about: about.update(history=3),
    "history a word": lambda _, about: about.update(history="long"),
    "history of words": lambda _, about: about.update(history=["epoch"]),
    "history of numbers": lambda _, about: about.update(history=[1, 2]),
    "history short of a field": lambda _, about: about["history"][0].pop("mean_z"),
    "history with a field more": lambda _, about: about["history"][0].update(colour="blue"),
    "best a number": lambda _, about: about.update(best=3),
    "best without a machine": lambda _, about: about["best"].pop("machine"),
    "best epoch to come": set_in("best", "epoch", 9),
    "best score a word": set_in("best", "score", "high"),
    "history with words for numbers": lambda _, about: about["history"][0].update(mean_z="deep"),
    "history with none for numbers": lambda _, about: about["history"][0].update(mean_z=None),
    "history shorter than its epochs": lambda _, about: about.update(history=[]),
    "optimiser step negative": lambda t, _: t["optimizer.step"].fill_(-1000),
    "padding with an age": lambda t, _: t["optimizer.age"][-1:].fill_(5),
    "age negative": lambda t, _: t["optimizer.age"][:1].fill_(-5),
    "squares negative": lambda t, _: t["optimizer.squares.weights"].fill_(-1.0),
    "squares NaN": lambda t, _: t["optimizer.squares.weights"].fill_(float("nan")),
    "velocity NaN": lambda t, _: t["optimizer.velocity.weights"].fill_(float("nan")),
    "velocity of padding": lambda t, _: t["optimizer.velocity.weights"][-1].fill_(1.0),
    "chains not binary": lambda t, _: t["chains.v"].fill_(0.5),
    "chains NaN": lambda t, _: t["chains.v"].fill_(float("nan")),
    "chain labels beyond the classes": lambda t, _: t["chains.y"].fill_(99),
    "chain labels negative": lambda t, _: t["chains.y"].fill_(-1),
    "sums NaN": lambda t, _: t["sums"].fill_(float("nan")),
    "beta too large for a float": set_in("machine", "beta", 10**400),
    "rate too large for a float": set_in("settings", "learning_rate", 10**400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_checkpoint_is_refused(sound, tmp_path, name):
    refused(rewritten(sound, tmp_path, HOSTILE[name]))


def test_a_truncated_checkpoint_is_refused(sound, tmp_path):
    whole, path = sound.read_bytes(), tmp_path / "cut.safetensors"
    for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole + b"\0")
    refused(path)


def test_flipped_bytes_are_refused_or_harmless(sound, tmp_path):
    """Whatever the header says after a byte has changed: a ValueError with the file's name, or a state."""
    whole, path = sound.read_bytes(), tmp_path / "flipped.safetensors"
    (length,) = struct.unpack("<Q", whole[:8])
    draw, outcomes = np.random.default_rng(0), []
    for _ in range(400):
        changed = bytearray(whole)
        changed[int(draw.integers(0, 8 + length))] ^= int(draw.integers(1, 256))
        path.write_bytes(changed)
        try:
            checkpoint.load(path)
            outcomes.append("")
        except ValueError as error:
            outcomes.append(str(error))
    refusals = [message for message in outcomes if message]
    assert len(refusals) > 100
    assert [message for message in refusals if str(path) not in message] == []


def test_other_files_are_refused(sound, tmp_path):
    model = irbm.RBM.from_parameters(np.ones((2, 3)), np.ones(2), np.ones(3))
    model.save(tmp_path / "model.safetensors")
    refused(tmp_path / "model.safetensors", "holds a model, not a checkpoint")
    with pytest.raises(ValueError, match="holds a checkpoint, not a model"):
        irbm.RBM.load(sound)
    (tmp_path / "text.safetensors").write_text("epoch,step\n1,2\n" * 100)
    refused(tmp_path / "text.safetensors")
    write_tensors(tmp_path / "empty.safetensors", {}, "checkpoint", {})
    refused(tmp_path / "empty.safetensors")
    with pytest.raises(FileNotFoundError, match="no file"):
        checkpoint.load(tmp_path / "absent.safetensors")


def test_metadata_that_is_no_object_is_refused(sound, tmp_path):
    whole = sound.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    for about in ("", "{", "[]", "null", "3", '"words"'):
        header["__metadata__"]["about"] = about
        text = json.dumps(header).encode()
        (tmp_path / "c").write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
        refused(tmp_path / "c")


# -- other settings on a resume -----------------------------------------------------------------------------

OTHER = {
    "batch_size": 11,
    "learning_rate": 0.06,
    "optimizer": "constant",
    "momentum": True,
    "averaging": 3,
    "l1": 0.5,
    "l2": 0.5,
    "max_norm": None,
    "label_max_norm": 1.0,
    "gibbs_steps": 4,
    "persistent": False,
    "n_chains": 17,
    "gradient": "sampled",
    "regroup": 0.5,
    "max_components": 40,
    "objective": "discriminative",
    "alpha": 0.7,
}


def test_the_list_of_other_settings_is_whole():
    assert set(OTHER) == {f.name for f in fields(Settings)} - {"n_iter"}


@pytest.mark.parametrize("name", OTHER)
def test_a_setting_that_differs_on_a_resume_is_refused_by_name(name):
    saved = Settings()
    with pytest.raises(ValueError, match=f"^{name} was .* in the run to resume and is .* now"):
        checkpoint.check_same(saved, replace(saved, **{name: OTHER[name]}))


def test_more_epochs_are_welcome():
    checkpoint.check_same(Settings(n_iter=3), Settings(n_iter=5))


@pytest.fixture(scope="module")
def saved_runs(tmp_path_factory):
    """Checkpoints of one epoch, by estimator."""
    folder = tmp_path_factory.mktemp("runs")
    more = {"n_iter": 1, "gibbs_steps": 1, "random_state": 0, "device": "cpu"}
    models = {"infinite": irbm.InfiniteRBM(**more), "fixed": irbm.RBM(5, **more)}
    for name, model in models.items():
        model.fit(X.numpy(), callbacks=[Checkpointer(folder / name)])
    irbm.InfiniteRBMClassifier(**more).fit(X.numpy(), Y.numpy(), callbacks=[Checkpointer(folder / "labels")])
    return folder, more


RESUMED = {
    "rate": ("infinite", irbm.InfiniteRBM, {"learning_rate": 0.2}, X, "learning_rate was 0.05.* is 0.2 now"),
    "chains": ("infinite", irbm.InfiniteRBM, {"persistent": False}, X, "persistent was True"),
    "beta": ("infinite", irbm.InfiniteRBM, {"beta": 1.5}, X, r"beta=1.01.*beta=1.5"),
    "penalty": ("infinite", irbm.InfiniteRBM, {"penalty": "softplus"}, X, "penalty='constant'.*penalty='softplus'"),
    "kind": ("infinite", irbm.OrderedRBM, {"n_components": 5}, X, "regroup was 'adaptive'|Infinite.*Ordered"),
    "seed": ("infinite", irbm.InfiniteRBM, {"random_state": 8}, X, "another run.*seed"),
    "width": ("infinite", irbm.InfiniteRBM, {}, X[:, :5], "examples"),
    "objective": ("labels", irbm.InfiniteRBMClassifier, {"objective": "generative"}, X, "objective was 'hybrid'"),
    "alpha": ("labels", irbm.InfiniteRBMClassifier, {"alpha": 0.9}, X, "alpha was 0.005.* is 0.9"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_an_estimator_refuses_the_checkpoint_of_another_run(saved_runs, name, monkeypatch):
    folder, more = saved_runs
    which, cls, changed, examples, message = RESUMED[name]
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
    data = (examples.numpy(), Y.numpy()) if which == "labels" else (examples.numpy(),)
    with pytest.raises(ValueError, match=message):
        cls(**(more | changed)).fit(*data, resume_from=folder / which)


def test_other_classes_are_refused(saved_runs):
    folder, more = saved_runs
    with pytest.raises(ValueError, match="classes"):
        irbm.InfiniteRBMClassifier(**more).fit(X.numpy(), Y.numpy() % 2, resume_from=folder / "labels")


def test_another_size_is_refused(saved_runs):
    folder, more = saved_runs
    with pytest.raises(ValueError, match="n_components"):
        irbm.RBM(7, **more).fit(X.numpy(), resume_from=folder / "fixed")


def test_a_run_that_would_go_on_with_other_random_numbers_says_so(saved_runs, monkeypatch):
    """As on another device, or without numba."""
    folder, more = saved_runs
    monkeypatch.setattr(checkpoint, "stream", lambda *_: "dice")
    with pytest.warns(UserWarning, match="drawn by .*Stream on cpu, here by str on cpu"):
        irbm.InfiniteRBM(**more).fit(X.numpy(), resume_from=folder / "infinite")


def test_other_data_is_refused(saved_runs):
    folder, more = saved_runs
    with pytest.raises(ValueError, match="70"):
        irbm.InfiniteRBM(**more).fit(X[:30].numpy(), resume_from=folder / "infinite")


@pytest.mark.parametrize("more", [{"n_iter": np.int64(1)}, {"learning_rate": np.float32(0.1)}], ids=str)
def test_settings_may_be_numpy_scalars(tmp_path, more):
    """GridSearchCV over np.arange gives them."""
    model = irbm.InfiniteRBM(**({"n_iter": 1, "gibbs_steps": 1, "device": "cpu"} | more))
    model.fit(X.numpy(), callbacks=[Checkpointer(tmp_path / "c")])
    checkpoint.load(tmp_path / "c")


# -- kill -9 ------------------------------------------------------------------------------------------------


def test_a_killed_run_ends_as_if_undisturbed(tmp_path):
    """One run, killed up to three times before it ends; `benchmarks/stress_resume.py` does a hundred runs."""
    path = Path(__file__).parents[2] / "benchmarks" / "stress_resume.py"
    spec = importlib.util.spec_from_file_location("stress_resume", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    [outcome] = script.stress(runs=1, seed=1, folder=tmp_path, n_kills=3)
    assert outcome.differences == []
    assert outcome.kills
