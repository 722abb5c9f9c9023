"""`irbm reproduce` from outside, on the digits: what it writes, what it does not do twice, what its figures mean."""

import itertools
import json
import math
import re
import shutil
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from safetensors import safe_open

from fresh import SEED
from irbm import cli, data
from irbm.evaluation.estimate import CHAINS
from irbm.experiments import density_models, density_search, fig7, fractions, table2
from irbm.experiments import lab as lab_room
from irbm.experiments import reproduce as registry
from irbm.experiments.choice import choose, choose_all
from irbm.experiments.lab import Lab, Training, train
from irbm.experiments.results import packed, shown, stamp, unpacked
from irbm.training import Settings

EPOCHS = 2
LN2 = math.log(2.0)


@pytest.fixture
def reproduce(capsys, monkeypatch):
    """Calls `irbm reproduce` with arguments: status, output, errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["irbm", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


def quick(out, name, **more):
    return registry.reproduce(name, Lab(out=out, quick=True, epochs=EPOCHS, **more))


@pytest.mark.parametrize("name", list(registry.EXPERIMENTS))
def test_every_experiment_writes_its_result_and_its_picture(reproduce, out, name):
    status, said, _ = reproduce(name, "--quick", "--epochs", EPOCHS, "--device", "cpu", "--out", out)
    assert status == 0
    assert str(out / "quick" / name) in said
    found = json.loads((out / "quick" / f"{name}.json").read_text())
    assert found["name"] == name
    assert found["quick"]
    assert found["notes"]["digits"] == data.load("digits").note
    assert found["seeds"]
    assert found.keys() >= {"commit", "device", "versions", "date", "wall_seconds"}
    assert matplotlib.image.imread(out / "quick" / f"{name}.png").shape[1] > 500
    assert not list(out.glob("*.json")), "quick results must not lie where real ones do"


def test_all_are_those_that_use_the_data(tmp_path):
    assert registry.names("all", Lab(out=tmp_path)) == list(registry.EXPERIMENTS)
    some = registry.names("all", Lab(out=tmp_path, datasets=("caltech101_silhouettes",)))
    assert set(registry.EXPERIMENTS) - set(some) == {"fig7", "fig8", "fig11"}
    assert registry.names("all", Lab(out=tmp_path, datasets=("mnist_intensities",))) == ["table2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig99", "--quick"], [*registry.EXPERIMENTS, "all", "'fig99'"]),
        (["fig4", "--seeds", "0,x"], ["seeds", "'0,x'"]),
        (["fig4", "--jobs", "0"], ["jobs", "0"]),
        (["fig4", "--epochs", "0"], ["epochs", "0"]),
        (["fig8", "--dataset", "caltech101_silhouettes"], ["dataset", "binarized_mnist", "caltech101_silhouettes"]),
        (["table1", "--quick", "--only", "DBN"], ["only", "iRBM RP", "'DBN'"]),
        (
            ["table1", "--dataset", "binarized_mnist", "--only", "iRBM RP 0.9 l"],
            ["only", "1000 chains", "'iRBM RP 0.9 l'"],
        ),
        (["table2", "--dataset", "binarized_mnist", "--only", "Dis-iRBM RP wide"], ["only", "'Dis-iRBM RP wide'"]),
        (["table2", "--dataset", "mnist_intensities", "--only", "FW-iRBM + softmax"], ["only", "ClassRBM", "'FW-iRBM"]),
        (["table1", "--dataset", "mnist_intensities"], ["dataset", "caltech101_silhouettes", "mnist_intensities"]),
        (["fig4", "--quick", "--only", "DBN"], ["only", "table1", "'fig4'"]),
        (["all", "--dataset", "cifar"], ["dataset", "binarized_mnist", "'cifar'"]),
        (["all", "--dataset", "digits"], ["dataset", "binarized_mnist", "'digits'"]),
        (["fig4", "--quick", "--dataset", "binarized_mnist"], ["dataset", "quick", "'binarized_mnist'"]),
        (["fig4", "--budget", "500"], ["budget", "table1", "fig7", "'fig4'"]),
        (["tabel1", "--budget", "500"], [*registry.EXPERIMENTS, "'tabel1'"]),
        (["fig4", "--device", "tpu"], ["device", "'tpu'"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(reproduce, tmp_path, arguments, words):
    status, _, said = reproduce(*arguments, "--out", tmp_path)
    assert status == 2
    assert all(word in said for word in words)
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_damaged_result_is_named_before_any_work(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr(lab_room, "Trainer", None)
    damaged = tmp_path / "quick" / "table1.json"
    damaged.parent.mkdir()
    damaged.write_text('{"rows": [')
    status, _, said = reproduce("table1", "--quick", "--device", "cpu", "--out", tmp_path)
    assert status == 2
    assert str(damaged) in said
    assert "remove it" in said


def test_a_seed_named_twice_is_one(reproduce, out):
    args = ("--quick", "--epochs", EPOCHS, "--device", "cpu", "--out", out)
    assert reproduce("fig4", *args, "--seeds", "1,1,0")[0] == 0
    assert json.loads((out / "quick" / "fig4.json").read_text())["seeds"] == [1, 0]


def test_ctrl_c_says_how_to_go_on(reproduce, tmp_path, monkeypatch):
    def interrupted(name, lab):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "reproduce", interrupted)
    status, said, _ = reproduce("fig4", "--quick", "--device", "cpu", "--out", tmp_path)
    assert status == 130
    assert "fig4: stopped; the same command goes on" in said


@pytest.mark.parametrize("name", ["fig5", "fig6", "table1", "table2", "fig7", "fig9", "fig10"])
def test_a_second_call_does_not_train_again(out, name, monkeypatch):
    before = quick(out, name)
    monkeypatch.setattr(lab_room, "Trainer", None)
    monkeypatch.setattr(lab_room, "estimate", None)
    monkeypatch.setattr(lab_room, "frank_wolfe", None)
    monkeypatch.setattr(table2.frank_wolfe, "train_classifier", None)
    monkeypatch.setattr(lab_room.classification, "train", None)
    after = quick(out, name)
    for key in ("rows", "runs"):
        assert before.get(key) == after.get(key)


def test_table_2_takes_what_the_classification_experiment_has_written(out, tmp_path, monkeypatch):
    model, setting = "Dis-iRBM RP dis.", "discriminative"
    runs = [r for r in quick(out, "table2", only=(model,))["runs"] if r["setting"] == setting]
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "classification_digits.json").write_text(json.dumps({"dataset": "digits", "runs": runs}))
    monkeypatch.setattr(lab_room.classification, "train", None)
    assert quick(tmp_path, "table2", only=(model,))["runs"] == runs
    with pytest.raises(TypeError):  # another number of epochs is another run
        registry.reproduce("table2", Lab(out=tmp_path, quick=True, epochs=EPOCHS + 1, only=(model,)))


def test_a_row_whose_settings_have_changed_is_found_again(out, monkeypatch):
    quick(out, "table1", only=("RBM",))
    changed = Lab(out=out, quick=True, epochs=EPOCHS + 1, only=("RBM",))
    rows = {r["model"]: r for r in registry.reproduce("table1", changed)["rows"]}
    assert rows["RBM"]["epochs"] == EPOCHS + 1


def test_rows_of_other_calls_stay(tmp_path):
    quick(tmp_path, "table1", only=("RBM",))
    result = quick(tmp_path, "table1", only=("iRBM",))
    assert [r["model"] for r in result["rows"]] == ["RBM", "iRBM"]


@pytest.mark.parametrize("name", ["fig5", "fig6", "fig10"])
def test_depths_of_other_seeds_stay_and_so_does_their_picture_without_their_machines(tmp_path, name):
    def rows(seed):
        lab = Lab(out=tmp_path, quick=True, epochs=EPOCHS, seeds=(seed,))
        found = registry.reproduce(name, lab)["rows"]
        return found, matplotlib.image.imread(tmp_path / "quick" / f"{name}.png")

    first, drawn = rows(0)
    for kept in ("runs", "chosen"):
        shutil.rmtree(tmp_path / "quick" / kept, ignore_errors=True)
    both, again = rows(1)
    trained = [json.loads(file.read_text())["seed"] for file in tmp_path.glob("quick/runs/*/training.json")]
    assert set(trained) == {1}
    assert {r["seed"] for r in first} == {0}
    assert [r for r in both if r["seed"] == 0] == first
    assert len(both) == 2 * len(first)
    assert np.array_equal(drawn, again)


def test_pictures_of_depths_have_a_place_for_each_way_of_each_data_set(out):
    """Also where one data set lacks some, or rows of an earlier build lack what is shown."""
    fig5, fig6 = (registry.EXPERIMENTS[name] for name in ("fig5", "fig6"))
    for figure, name, needed in ((fig5, "fig5", "p_z"), (fig6, "fig6", "log_p_up_to")):
        rows = quick(out, name)["rows"]
        fewer = [r | {"dataset": "binarized_mnist"} for r in rows if r["regroup"] != 0.5]
        older = [{key: value for key, value in r.items() if key != needed} | {"seed": -1} for r in rows]
        drawn = figure.picture(Lab(out=out, quick=True), {"rows": [*older, *fewer, *rows]})
        titles = [axes.get_title(loc="left") for axes in drawn.axes]
        if figure is fig5:
            assert "binarized MNIST, RP, 0.5 l_t" not in titles
            assert titles[titles.index("binarized MNIST, RP, 0.9 l_t") + 1] == "digits, RP, 0.9 l_t"
        else:
            assert titles[:2] == ["binarized MNIST", "digits"]


def test_what_is_packed_for_a_picture_comes_back():
    values = np.log(np.random.default_rng(SEED).random((5, 37)))
    found = unpacked(json.loads(json.dumps(packed(values))))
    assert found.shape == values.shape
    assert np.allclose(found, values, rtol=2**-11, atol=2**-24)


def test_figures_share_trainings(tmp_path):
    quick(tmp_path, "fig5")
    folders = set((tmp_path / "quick" / "runs").iterdir())
    quick(tmp_path, "fig6")
    assert set((tmp_path / "quick" / "runs").iterdir()) == folders


def test_fig_8_is_trained_by_cd_and_ends_early(tmp_path):
    fig8 = registry.EXPERIMENTS["fig8"]
    both = [training.settings for training in fig8.trainings(Lab(out=tmp_path), (0,))]
    assert [(s.regroup, s.persistent, s.gibbs_steps, s.n_iter) for s in both] == [
        ("adaptive", False, 1, 10),
        (None, False, 1, 10),
    ]


def test_fig_7_keeps_what_every_look_tried_and_how_hard(tmp_path, monkeypatch):
    monkeypatch.undo()  # the machines of few units that other tests here have
    monkeypatch.setattr(fig7, "QUICK_SIZE", 40)  # which are annealed, and not enumerated
    monkeypatch.setattr(fig7, "BUDGET", 60)
    (row,) = quick(tmp_path, "fig7", only=("RP L1 ADA",), budget=120)["rows"]
    (point,) = row["points"]
    log_z = point["log_partition"]
    assert point["budget"] == 120
    assert log_z["trials"]
    assert point["upper"] - point["lower"] == pytest.approx(log_z["upper"] - log_z["lower"])
    assert max(trial["n_points"] * trial["n_chains"] for trial in log_z["trials"]) <= 120 * CHAINS


def test_the_last_look_of_fig_7_is_the_hardest_and_may_be_harder(tmp_path):
    lab = Lab(out=tmp_path)
    usual = fig7.training(lab, "binarized_mnist", "RP L1 ADA", 0)
    assert fig7.budgets(lab, usual) == {200: 2000, 400: 2000, 600: 2000, 800: 2000, 1000: 8000}
    harder = Lab(out=tmp_path, budget=16000)
    assert fig7.budgets(harder, usual) == fig7.budgets(lab, usual) | {1000: 16000}
    place = ("binarized_mnist", "RP L1 ADA", 0)
    assert fig7.identity(harder, *place) != fig7.identity(lab, *place)


def test_table_1_and_fig_7_share_trainings(tmp_path, monkeypatch):
    variants = ("RP L1 ADA", "ordinary L1 ADA")
    found = {r["variant"]: r for r in quick(tmp_path, "fig7", only=variants)["rows"]}
    monkeypatch.setattr(lab_room, "Trainer", None)
    lab = Lab(out=tmp_path, quick=True, epochs=EPOCHS)
    for variant, model in zip(variants, ("iRBM RP", "iRBM"), strict=True):
        (choice,) = density_models.choices(lab, "digits", model, 0)
        assert choose(lab, choice).report.n_components == found[variant]["n_components"]


def test_an_epoch_that_fig_7_and_table_1_look_at_is_the_same():
    """Of those they share, at full length: one that is not kept would be trained to anew."""
    assert set(fig7.POINTS["binarized_mnist"]) <= set(density_models.EFFORT["binarized_mnist"].candidates)


def test_quick_likelihoods_as_they_ship_are_brackets_of_annealing(tmp_path, monkeypatch):
    monkeypatch.undo()  # the machines of few units that other tests here have
    (row,) = quick(tmp_path, "table1", only=("RBM",))["rows"]
    assert row["log_partition"]["method"] == "ais"
    assert row["test"]["lower"] < row["test"]["value"] < row["test"]["upper"]
    assert row["n_components"] == 100


def test_settings_are_chosen_by_the_validation_split(out):
    """Where the paper names none: each is trained, the best of all epochs wins, and all that was seen is told."""
    row = next(r for r in quick(out, "table1", only=("RBM",))["rows"] if r["model"] == "RBM")
    seen = {(v["learning_rate"], v["l1"], v["epoch"]): v["lower"] for v in row["validation"]}
    assert {(rate, l1) for rate, l1, _ in seen} == set(density_models.TRIED["digits"]["RBM"])
    won = row["settings"]["learning_rate"], row["settings"]["l1"], row["epoch"]
    assert won == max(seen, key=seen.get)


def test_fewer_estimates_than_trainings_run_at_once_on_a_gpu(tmp_path):
    assert Lab(out=tmp_path, device="cuda", jobs=8).annealing().jobs == 3
    assert Lab(out=tmp_path, device="cuda", jobs=2).annealing().jobs == 2
    assert Lab(out=tmp_path, device="cpu", jobs=8).annealing().jobs == 8


# -- one training -------------------------------------------------------------------------------------------


def short(n_iter, seed=0, **more):
    return Training(dataset="digits", settings=Settings(n_iter=n_iter, gibbs_steps=1, **more), seed=seed)


def test_a_longer_training_goes_on_from_a_shorter_one_to_the_same_bits(tmp_path):
    halves, whole = Lab(out=tmp_path / "a"), Lab(out=tmp_path / "b")
    halves.train([short(2)])
    (first,), (second,) = halves.train([short(4)]), whole.train([short(4)])
    assert [r.n_components for r in first.history()] == [r.n_components for r in second.history()]
    one, other = first.machine(), second.machine()
    assert all((one.tensors()[n] == t).all() for n, t in other.tensors().items())
    assert len(first.history()) == 4
    assert int(first.machine(2).size) == first.history()[1].n_components


def test_only_the_epochs_that_are_left_are_trained(tmp_path):
    lab, told = Lab(out=tmp_path), []
    lab.train([short(2)])
    train(lab.run_of(short(4)), told.append)
    assert told == [2, 1, 1]
    train(lab.run_of(short(4)), told.append)
    assert told == [2, 1, 1]


def test_machines_are_kept_with_averages_where_a_training_asks_for_them(tmp_path):
    lab = Lab(out=tmp_path)
    plain, averaged = (train(lab.run_of(short(2, averaging=updates))) for updates in (None, 20))
    assert plain.folder != averaged.folder
    state, _ = lab_room.checkpoint.load(averaged.checkpoint)
    assert torch.equal(state.machine.visible_bias, plain.machine().visible_bias)  # what training did is the same
    assert torch.equal(averaged.machine().visible_bias, state.kept.visible_bias)
    assert not torch.equal(averaged.machine().visible_bias, plain.machine().visible_bias)


def test_an_epoch_that_was_not_kept_is_trained_anew(tmp_path):
    lab = Lab(out=tmp_path)
    lab.train([short(4)])
    (run,) = lab.train([short(3)])
    (alone,) = Lab(out=tmp_path / "alone").train([short(3)])
    assert (run.machine().weights == alone.machine().weights).all()
    told = []
    train(lab.run_of(short(6)), told.append)
    assert told == [4, 1, 1], "the later checkpoint is not lost"


def test_everything_but_the_number_of_epochs_decides_the_folder(tmp_path):
    def folder(training, device="cpu"):
        return training.folder(tmp_path, device)

    assert folder(short(2)) == folder(short(4))
    others = [short(2, seed=1), short(2, l1=0.5), short(2, regroup=None)]
    others += [Training(dataset="digits", settings=short(2).settings, seed=0, beta=1.1)]
    assert len({folder(t) for t in [short(2), *others]} | {folder(short(2), "cuda")}) == 2 + len(others)


def test_a_result_that_is_there_keeps_its_date(out, tmp_path):
    """What a person saw of it is known by that."""
    first = quick(tmp_path, "fig8")
    assert quick(tmp_path, "fig8") == first
    other = quick(tmp_path, "fig8", seeds=(1,))
    assert other["date"] >= first["date"]
    assert other["runs"] != first["runs"]


def test_figure_11_keeps_other_seeds(tmp_path):
    quick(tmp_path, "fig11", seeds=(0,))
    found = quick(tmp_path, "fig11", seeds=(1,))
    assert found["seeds"] == [0, 1]
    assert {r["seed"] for r in found["runs"]} == {0, 1}


def test_figure_11_tells_what_there_is_of_ways_that_were_not_run_to_the_end(out):
    """Beside rows of before, or after an end in the middle; and ways are compared over the seeds that both have."""
    fig11, whole = registry.EXPERIMENTS["fig11"], quick(out, "fig11")
    assert "| AdaGrad, 0.1 | RP, 0.5 l_t |" in fig11.section(whole)
    runs = [r for r in whole["runs"] if not r["setting"].endswith("_half")]
    without = fig11.result_of(runs)
    assert "| RP, 0.5 l_t |" not in fig11.section(without)
    assert [len(axes.lines) for axes in fig11.picture(Lab(out=out), without).axes] == [2] * len(fig11.RECIPES)
    for r, error in zip((r for r in runs if r["setting"] == "five"), (0.1, 0.9), strict=True):
        r["validation_errors"][-1] = error
    for r, error in zip((r for r in runs if r["setting"] == "five_ordinary"), (0.2, 0.3), strict=True):
        r["validation_errors"][-1] = error
    assert 'lower with RP for "AdaGrad, 0.1"' not in fig11.section(fig11.result_of(runs))
    shared = [r for r in runs if (r["setting"], r["seed"]) != ("five_ordinary", 1)]
    told = fig11.section(fig11.result_of(shared))
    assert 'lower with RP for "AdaGrad, 0.1"' in told


def test_a_biased_machine_starts_from_the_means_of_the_data(tmp_path):
    """With a rate of next to nothing it stays where it starts."""
    settings = Settings(n_iter=1, learning_rate=1e-12, gibbs_steps=1, regroup=None)
    run = train(Lab(out=tmp_path).run_of(Training(dataset="digits", settings=settings, seed=0, model="biased")))
    bias, means = run.machine().visible_bias.numpy(), data.load("digits").train.X.mean(0)
    np.testing.assert_allclose(1 / (1 + np.exp(-bias)), means, atol=0.01)


def test_a_damaged_snapshot_is_refused(tmp_path):
    run = train(Lab(out=tmp_path).run_of(short(1)))
    run.file(1).write_bytes(run.file(1).read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        run.machine()


# -- figures, from the parameters alone ---------------------------------------------------------------------


class Plain:
    """A kept machine as plain arrays, units in their order, or row by row."""

    def __init__(self, file, beta=1.01, by_order=True):
        with safe_open(file, "np") as tensors:
            size = int(tensors.get_tensor("size"))
            order = tensors.get_tensor("order")[:size] if by_order else slice(size)
            self.W = tensors.get_tensor("weights")[order].astype(np.float64)
            self.c = tensors.get_tensor("hidden_bias")[order].astype(np.float64)
            self.b = tensors.get_tensor("visible_bias").astype(np.float64)
        self.penalty = beta * LN2
        ratio = 2.0 ** (1 - beta)
        self.tail = ratio / (1 - ratio)

    def log_p_z(self, X):
        """ln p(z | v) for z = 1..l and beyond: (n, l+1)."""
        gain = np.logaddexp(0, X @ self.W.T + self.c) - self.penalty
        t = np.cumsum(gain, axis=1)
        t = np.hstack([t, t[:, -1:] + math.log(self.tail)])
        return t - np.logaddexp.reduce(t, axis=1, keepdims=True)

    def free_energy(self, X):
        gain = np.cumsum(np.logaddexp(0, X @ self.W.T + self.c) - self.penalty, axis=1)
        t = np.hstack([gain, gain[:, -1:] + math.log(self.tail)])
        return -X @ self.b - np.logaddexp.reduce(t, axis=1)

    def log_partition(self):
        """Over every h of every length z, the tail with the longest."""
        total = []
        for z in range(1, len(self.c) + 1):
            h = np.array(list(itertools.product([0.0, 1.0], repeat=z)))
            field = np.logaddexp(0, self.b + h @ self.W[:z]).sum(1)
            own = np.logaddexp.reduce(h @ self.c[:z] - z * self.penalty + field)
            total.append(own if z < len(self.c) else own + math.log1p(self.tail))
        return np.logaddexp.reduce(total)


def kept(out, training, epoch):
    return Plain(Lab(out=out, quick=True).run_of(training).file(epoch))


def test_depths_of_figs_5_and_6_are_those_of_the_parameters(out):
    X = data.load("digits").train.X.astype(np.float64)
    figures = {r["regroup"]: r for r in quick(out, "fig5")["rows"]}
    orders = {r["regroup"]: r for r in quick(out, "fig6")["rows"]}
    assert set(figures) == {None, *orders} == {None, "adaptive", 0.5, 0.9}
    fig5, lab = registry.EXPERIMENTS["fig5"], Lab(out=out, quick=True, epochs=EPOCHS)
    for training in (fig5.training(lab, *place) for place in fig5.places(lab, fig5.WAYS)):
        log_p = kept(out, training, EPOCHS).log_p_z(X)
        found = figures[training.settings.regroup]
        z = log_p[:, :-1].argmax(1) + 1
        # Float32 sums can change a tie between neighbours, no more.
        assert found["likeliest_z"]["mean"] == pytest.approx(z.mean(), abs=0.05)
        assert found["share_above_regrouped"] == pytest.approx((z > found["regrouped"]).mean(), abs=0.005)
        if training.settings.regroup:
            order = orders[training.settings.regroup]
            m = order["regrouped"]
            assert m == found["regrouped"] > 0
            up_to_m = np.logaddexp.reduce(log_p[:, :m], axis=1)
            assert order["mean_log_p_z_up_to_m"] == pytest.approx(up_to_m.mean(), abs=1e-3)


def test_likelihoods_of_table_1_are_those_of_the_parameters(out):
    result = quick(out, "table1", only=("iRBM RP", "iRBM"))
    X = data.load("digits").test.X.astype(np.float64)
    for row in result["rows"]:
        if row["model"] in ("iRBM RP", "iRBM") and row["epochs"] == EPOCHS:
            lab = Lab(out=out, quick=True, epochs=EPOCHS)
            machine = kept(out, density_models.training("digits", row["model"], row["seed"], lab), row["epoch"])
            expected = -machine.free_energy(X).mean() - machine.log_partition()
            assert row["test"]["value"] == pytest.approx(expected, abs=1e-4)
            assert row["test"]["lower"] <= row["test"]["value"] <= row["test"]["upper"]
            assert row["n_components"] == len(machine.c)


def test_the_converted_rbm_of_table_1_is_that_of_the_first_units(out):
    row = next(r for r in quick(out, "table1")["rows"] if r["model"] == "iRBM RP as RBM")
    lab = Lab(out=out, quick=True, epochs=EPOCHS)
    machine = kept(out, density_models.training("digits", row["model"], 0, lab), row["epoch"])
    n = round(row["effective_size"])
    h = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    log_z = np.logaddexp.reduce(h @ machine.c[:n] + np.logaddexp(0, machine.b + h @ machine.W[:n]).sum(1))
    X = data.load("digits").test.X.astype(np.float64)
    log_p = X @ machine.b + np.logaddexp(0, X @ machine.W[:n].T + machine.c[:n]).sum(1) - log_z
    assert row["n_components"] == n
    assert row["test"]["value"] == pytest.approx(log_p.mean(), abs=1e-4)


def test_the_epoch_with_the_highest_lower_end_is_chosen_not_the_one_that_flatters(out, monkeypatch):
    table1 = registry.EXPERIMENTS["table1"]
    lab = Lab(out=out, quick=True)
    (usual,) = density_models.choices(lab, "digits", "iRBM", 0)
    choice = replace(usual, budget=99)  # not that of an earlier choice, which is kept
    (run,), epochs = lab.train([choice.training]), choice.epochs
    mean = {
        e: float(table1.likelihood(run.machine(e), data.load("digits").validation.X, flat(0.0))["value"])
        for e in epochs
    }
    flattering, honest = epochs[0], epochs[-1]
    # The first claims 10 nats more than all others, but its bracket is 30 wide.
    claims = {e: flat(mean[e] + 50.0) for e in epochs} | {
        honest: flat(mean[honest] + 49.0),
        flattering: flat(mean[flattering] + 40.0, upper=mean[flattering] + 70.0),
    }
    files = {run.log_z_file(e, choice.budget): claims[e] for e in epochs}
    monkeypatch.setattr(Lab, "log_partition", lambda self, machine, training, budget, file: files[file])
    chosen = choose(lab, choice)
    assert chosen.epoch == honest
    assert chosen.commit == stamp("cpu")["commit"]
    assert (chosen.machine.weights == run.machine(honest).weights).all()
    assert max(chosen.validation, key=lambda c: c["value"])["epoch"] == flattering


def test_a_machine_remembers_the_build_that_trained_it_whoever_chooses_it(tmp_path, monkeypatch):
    lab = Lab(out=tmp_path, quick=True, epochs=EPOCHS)
    (usual,) = density_models.choices(lab, "digits", "iRBM", 0)
    monkeypatch.setenv("IRBM_COMMIT", "trains")
    (run,) = lab.train([usual.training])
    monkeypatch.setenv("IRBM_COMMIT", "chooses")
    made = {"trained_at": "trains", "trained_on": stamp("cpu")["device"]}
    assert run.made() == choose(lab, usual).made() == made


def test_choices_come_back_from_processes_as_files_alone(out, monkeypatch):
    """A tensor of a GPU would be gone with the process that sent it."""
    lab, back = Lab(out=out, quick=True, epochs=EPOCHS), []
    choices = density_models.choices(lab, "digits", "iRBM", 0)

    def each(lab, function, calls, what, talks=False):
        back.extend(function(**call) for call in calls)
        return back

    monkeypatch.setattr(Lab, "each", each)
    choices = [replace(choice, budget=98) for choice in choices]  # not made before
    choose_all(lab, choices)
    assert back == [None]
    assert all(choice.file(lab).is_file() for choice in choices)


def test_choices_of_one_training_are_one_job_and_what_is_done_outlives_a_failure(tmp_path, monkeypatch):
    lab = Lab(out=tmp_path, quick=True, epochs=EPOCHS)
    (usual,) = density_models.choices(lab, "digits", "iRBM", 0)
    first, again, failing, last = (
        replace(usual, budget=budget, training=replace(usual.training, seed=seed))
        for seed, budget in ((0, 90), (0, 91), (1, 90), (2, 90))
    )
    train, jobs, trained = Lab.train, [], []

    def trains(lab, trainings, what="training"):
        trained.extend(training.seed for training in trainings)
        if 1 in trained:
            raise RuntimeError("the machine was taken back")
        return train(lab, trainings, what)

    each = Lab.each
    monkeypatch.setattr(Lab, "train", trains)
    monkeypatch.setattr(Lab, "each", lambda *args, **options: jobs.append(len(args[2])) or each(*args, **options))
    with pytest.raises(RuntimeError, match="taken back"):
        choose_all(lab, [first, failing, again, last, first])
    assert trained == [0, 0, 1], "both choices of a training come before the next"
    assert jobs[0] == 3, "one job for each training"
    assert [choice.file(lab).is_file() for choice in (first, again, failing, last)] == [True, True, False, False]


def _fails_first(folder, number):
    """Job 0 fails once the next is under way, which ends after it."""
    (folder / str(number)).touch()
    deadline = time.monotonic() + 30
    while number == 0 and not (folder / "1").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    if number == 0:
        raise RuntimeError("job 0 fails")
    time.sleep(0.5)
    return number


def test_after_a_failure_no_further_job_is_begun_and_none_under_way_is_lost(tmp_path):
    """Another is under way, and one more than can run at once may be handed over already; the rest is not begun."""
    calls = [{"folder": tmp_path, "number": i} for i in range(32)]
    done = deque()
    with pytest.raises(RuntimeError, match="job 0 fails"):
        done.extend(Lab(out=tmp_path, jobs=2).each(_fails_first, calls, "failing"))
    begun = {int(one.name) for one in tmp_path.iterdir()}
    assert len(begun) < 8
    assert sorted(done) == sorted(begun - {0}) != []


def test_every_row_of_our_own_is_a_row_of_the_table_whatever_it_starts_from(monkeypatch):
    assert set(density_models.OWN_MODELS) <= set(density_models.MODELS)
    monkeypatch.setitem(density_models.OWN, "digits", {of + " changed": (of, {"l2": 1e-4}) for of in ("RBM", "iRBM")})
    with_own = density_models.with_own(("RBM", "iRBM"))
    assert with_own.index("RBM changed") < with_own.index("iRBM") < with_own.index("iRBM changed")
    assert "RBM changed" in density_models.with_own(("RBM",))


def test_a_picture_has_the_first_seed_of_each_data_set():
    places = [("a", 1), ("a", 2), ("b", 0), ("b", 2)]
    result = {"rows": [{"dataset": dataset, "seed": seed} for dataset, seed in places]}
    assert [(r["dataset"], r["seed"]) for r in shown(result)] == [("a", 1), ("b", 0)]


def test_pictures_of_depths_train_what_was_asked_for_alone(tmp_path):
    """Not the seeds that an earlier file has besides."""
    fig5 = registry.EXPERIMENTS["fig5"]
    quick(tmp_path, "fig5")
    before = set((tmp_path / "quick" / "runs").iterdir())
    lab = Lab(out=tmp_path, quick=True, epochs=EPOCHS + 1, seeds=(7,))
    registry.reproduce("fig5", lab)
    after = set((tmp_path / "quick" / "runs").iterdir()) - before
    assert after == {lab.run_of(fig5.training(lab, "digits", way, 7)).folder for way in fig5.WAYS}
    untouched = lab.run_of(fig5.training(lab, "digits", "RP", 0))
    assert not untouched.file(EPOCHS + 1).is_file()


def test_what_is_kept_of_the_choice_is_enough_for_another_budget(tmp_path, monkeypatch):
    """Trainings may be thrown away: an estimate with a larger budget needs none of them."""
    models = ("iRBM RP as RBM", *density_models.models_with_rp("digits"))
    before = quick(tmp_path, "table1", only=models)
    shutil.rmtree(tmp_path / "quick" / "runs")
    monkeypatch.setattr(lab_room, "Trainer", None)
    budgets = []
    exact = lab_room.partition.exact
    monkeypatch.setattr(
        lab_room.partition, "exact", lambda machine: budgets.append(int(machine.size)) or exact(machine)
    )
    after = quick(tmp_path, "table1", only=models, budget=77)
    assert budgets == [r["n_components"] for r in before["rows"]]
    assert [r["test"]["value"] for r in after["rows"]] == [r["test"]["value"] for r in before["rows"]]
    assert {r["budget"] for r in after["rows"]} == {77}
    quick(tmp_path, "fig9")
    quick(tmp_path, "fig10")


def test_a_row_found_in_a_process_of_its_own_is_the_same(tmp_path):
    """One is enough: a process takes seconds to begin."""
    beta, place = registry.EXPERIMENTS["beta"], ("digits", 1.01, 0)

    def row(jobs):
        lab = Lab(out=tmp_path / str(jobs), name="beta", quick=True, epochs=EPOCHS, jobs=jobs)
        return lab.rows([place], beta.identity, beta.row, beta.result_of)["rows"][0]

    alone, apart = row(1), row(2)
    assert alone["test"] == apart["test"]
    assert alone["sizes"] == apart["sizes"]


def flat(value, upper=None):
    upper = value if upper is None else upper
    return lab_room.LogPartition(value, 0.0, value, upper, 1.0, upper == value, "made up", "ais")


def test_samples_are_written_down_to_a_sixteenth(out):
    fig9 = registry.EXPERIMENTS["fig9"]
    run = quick(out, "fig9")["rows"][0]
    lab = Lab(out=out, quick=True, epochs=EPOCHS)
    model, best = density_models.best_regrouped(lab, "digits", 0)
    assert run["model"] == model
    drawn, p = fig9.samples(best.machine, run["n_steps"], run["n_deep"], 0, fig9.FOR_SAMPLES)
    np.testing.assert_allclose(fig9.read(run["images"]), p.numpy(), atol=0.5 / 15 + 1e-6)
    # Drawn from these probabilities: their sum is within five standard deviations.
    spread = float((p * (1 - p)).sum()) ** 0.5
    assert abs(float(drawn.sum() - p.sum())) < 5 * spread
    likeliest = Plain(best.file).log_p_z(drawn.numpy().astype(np.float64))[:, :-1].argmax(1) + 1
    assert run["median_likeliest_z"]["samples"] == np.median(likeliest)


def test_single_pixels_are_those_unlike_all_their_neighbours():
    """Beside a count by loops, on noise; an edge has fewer neighbours, and a row of one pixel only two."""
    fig9, rng = registry.EXPERIMENTS["fig9"], np.random.default_rng(0)
    for h, w in ((4, 5), (1, 6)):
        images = rng.integers(0, 2, (50, h, w))
        alone = 0
        for image in images:
            for i, j in itertools.product(range(h), range(w)):
                around = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
                alone += all(image[a, b] != image[i, j] for a, b in around if 0 <= a < h and 0 <= b < w)
        assert fig9.single_pixels(torch.from_numpy(images.reshape(50, -1)), (h, w)) == alone / 50


def test_rows_that_an_earlier_table_had_are_left_out():
    table1 = registry.EXPERIMENTS["table1"]
    rows = [{"dataset": "digits", "model": model, "seed": 0} for model in ("iRBM", "iRBM RP and more", "iRBM RP")]
    assert [r["model"] for r in table1._result(rows)["rows"]] == ["iRBM RP", "iRBM"]


def test_rows_that_are_there_are_not_done_again(tmp_path):
    """A setting that came later, and is off, gives no training another name."""
    table1 = registry.EXPERIMENTS["table1"]
    for r in json.loads((Path(__file__).parents[2] / "results" / "table1.json").read_text())["rows"]:
        lab = Lab(out=tmp_path, device="cuda" if "NVIDIA" in r["device"] else "cpu", budget=r["budget"])
        assert table1._identity(lab, *r["place"]) == r["identity"], r["place"]


def test_rows_of_our_own_are_of_some_data_sets_and_change_what_their_names_say(tmp_path):
    lab = Lab(out=tmp_path)
    mnist, caltech = "binarized_mnist", "caltech101_silhouettes"
    changes = {
        (mnist, "iRBM RP 1000 chains"): {"n_chains": 1000},
        (mnist, "iRBM RP averaged"): {"averaging": 1000, "n_iter": 600},
        (mnist, "iRBM RP 0.9 l averaged"): {"regroup": 0.9, "averaging": 1000, "n_iter": 600},
        (mnist, "RBM averaged"): {"averaging": 1000, "n_iter": 600},
        (mnist, "iRBM averaged"): {"averaging": 1000, "n_iter": 600},
        (caltech, "iRBM RP 0.9 l"): {"regroup": 0.9},
        (caltech, "iRBM RP 0.9 l averaged"): {"regroup": 0.9, "averaging": 500},
        (caltech, "RBM averaged"): {"averaging": 500},
        (caltech, "iRBM averaged"): {"averaging": 500},
        ("digits", "iRBM RP averaged"): {"averaging": 100},
        ("digits", "iRBM RP 0.9 l"): {"regroup": 0.9},
    }
    names, models = density_models.EFFORT, density_models.OWN_MODELS
    own = [(name, model) for name in names for model in models if density_models.has(name, model)]
    assert set(own) == set(changes)
    for (name, model), change in changes.items():
        like = re.match("iRBM RP|iRBM|RBM", model)
        usual = density_models.training(name, like.group(), 0, lab)
        expected = replace(usual, settings=replace(usual.settings, **change))
        assert density_models.training(name, model, 0, lab) == expected
    assert [choice.epochs for choice in density_models.choices(lab, "binarized_mnist", "iRBM RP averaged", 0)] == [
        (100, 200, 300, 400, 500, 600)
    ]
    (averaged,), (plain,) = (density_models.choices(lab, caltech, model, 0) for model in ("RBM averaged", "RBM"))
    tried = replace(plain.training.settings, averaging=500)
    assert averaged == replace(plain, training=replace(plain.training, settings=tried))
    assert density_models.models_with_rp(caltech) == ("iRBM RP", "iRBM RP 0.9 l", "iRBM RP 0.9 l averaged")
    with pytest.raises(KeyError):
        density_models.training("caltech101_silhouettes", "iRBM RP 1000 chains", 0, lab)


def test_ways_to_regroup_are_compared_by_their_best_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(fractions, "SCHEDULES", ("adaptive", 0.9))
    monkeypatch.setattr(fractions, "SEEDS", (0, 1))
    monkeypatch.setattr(fractions, "EPOCHS", {"digits": (1, 2)})
    rows = fractions.compare(Lab(out=tmp_path, epochs=1), "digits", tmp_path / "found.json")
    assert [(r["regroup"], r["seed"]) for r in rows] == [("adaptive", 0), ("adaptive", 1), (0.9, 0), (0.9, 1)]
    assert [r["regrouped"] for r in rows[:2]] == [0, 0]  # in the first epoch of the schedule
    assert all(r["regrouped"] == int(0.9 * r["n_components"]) for r in rows[2:])
    found = json.loads((tmp_path / "found.json").read_text())
    held = [{"epoch": e, "value": 1 - e, "lower": -e, "upper": 2.5 - e, "reliable": False} for e in (3, 2, 4)]
    found["rows"][2] |= {"validation": held, "epoch": 2, "n_components": 7, "regrouped": 6, "mean_z": 5.0}
    assert "| 0.9 l | 0 | 7 | 6 | 5 | 2 | (-1.00) | [-2.00, 0.50] | not reliable |" in fractions.section(found)
    assert "| the schedule | 1 |" in fractions.section(found)


def test_ways_to_regroup_share_the_trainings_and_choices_of_table_1(tmp_path):
    lab = Lab(out=tmp_path)
    for name, model, how in (
        ("binarized_mnist", "iRBM RP", "adaptive"),
        ("caltech101_silhouettes", "iRBM RP 0.9 l", 0.9),
    ):
        assert [fractions.candidate(lab, name, how, 2)] == density_models.choices(lab, name, model, 2)


def test_a_search_of_one_model_keeps_the_others(tmp_path, monkeypatch):
    file = tmp_path / "search.json"
    monkeypatch.setitem(density_search.CANDIDATES, "digits", {"iRBM RP": [(0.1, 0.0)], "RBM": [(0.1, 0.0), (0.2, 0.0)]})
    monkeypatch.setitem(density_search.EPOCHS, "digits", 1)
    monkeypatch.setattr(density_search, "BUDGET", 20)
    lab = Lab(out=tmp_path, quick=True)
    density_search.search(lab, "digits", ["RBM"], 0, file)
    density_search.search(lab, "digits", ["iRBM RP"], 0, file)
    assert [r["model"] for r in json.loads(file.read_text())["runs"]] == ["iRBM RP", "RBM", "RBM"]
