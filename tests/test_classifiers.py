"""What classifiers add: validation, averages over orders, missing pixels, samples of a class. Against enumeration."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import irbm
from brute import enumerate_all, visible_states
from irbm.evaluation.permutations import mean_log_prob_y, permuted
from irbm.files import read_tensors, write_tensors
from irbm.models import Infinite
from irbm.models import machine as models_machine
from irbm.ops.noise import uniform_noise
from irbm.training import Callback, Checkpointer, EarlyStopping, checkpoint
from irbm.training.initial import initial_machine
from machines import DEPTHS, as_machine, random_small

CLASSIFIERS = {"fixed": irbm.RBMClassifier, "infinite": irbm.InfiniteRBMClassifier}
NAMES = np.array(["ash", "birch", "cedar"])

rng = np.random.default_rng(0)
X = (rng.random((120, 12)) < 0.4).astype(np.float64)
Y = NAMES[X[:, :3].argmax(1)]
XV, YV = X[80:], Y[80:]

pytestmark = pytest.mark.usefixtures("one_thread")


def small_of(depth, seed=11, **more):
    return random_small(np.random.default_rng(seed), depth=depth, labels=3, n_hidden=4, **more)


def classifier_of(small):
    more = {} if small.depth == "fixed" else {"beta": small.beta, "penalty": small.penalty}
    more |= {"label_weights": small.U, "label_bias": small.d, "classes": NAMES, "order": small.order}
    return CLASSIFIERS[small.depth].from_parameters(small.W, small.c, small.b, **more)


def quick(cls=irbm.InfiniteRBMClassifier, **more):
    settings = {"n_iter": 6, "batch_size": 20, "gibbs_steps": 1, "random_state": 0, "device": "cpu"}
    settings |= {"learning_rate": 0.2, "alpha": 0.1} if "Classifier" in cls.__name__ else {}
    return cls(**(settings | more))


# -- p(y | v) averaged over orders, eq. 35 ------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["constant", "softplus"])
@pytest.mark.parametrize("depth", ["ordered", "infinite"])
def test_the_mean_over_orders_is_that_of_enumeration(depth, penalty):
    """All 3! orders of the first three positions of four."""
    small = small_of(depth, penalty=penalty)
    orders = [[*first, small.order[3]] for first in itertools.permutations(small.order[:3])]
    exact = np.mean([enumerate_all(replace(small, order=order)).p_y() for order in orders], axis=0)
    machine = as_machine(small)
    machines = [replace(machine, order=torch.tensor(order)) for order in orders]
    ours = mean_log_prob_y(machines, torch.tensor(visible_states(4))).exp()
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-12)
    assert np.abs(exact - enumerate_all(small).p_y()).max() > 0.01  # the order matters here


def test_orders_are_uniform_and_leave_the_others_alone():
    machine = as_machine(small_of("infinite"))
    before = machine.order.clone()
    noise, n = uniform_noise(3, dtype=torch.float64), 6000
    found = [tuple(permuted(machine, 3, noise).order.tolist()) for _ in range(n)]
    assert {order[3] for order in found} == {int(before[3])}
    counts = [found.count((*p, int(before[3]))) for p in itertools.permutations(before[:3].tolist())]
    assert sum(counts) == n
    assert chisquare(counts).pvalue > 1e-4
    assert torch.equal(machine.order, before)


def test_predictions_average_over_orders_of_what_training_regrouped():
    model = quick(n_iter=8, regroup=0.6).fit(X, Y)
    m, machine = model.history_[-1]["regrouped"], model.machine_
    assert 1 < m < model.n_components_
    alone = model.predict_proba(X)
    orders = [permuted(machine, m, uniform_noise(n)).order for n in range(5)]
    assert all(torch.equal(order[m:], machine.order[m:]) for order in orders)
    each = [replace(machine, order=order).to(dtype=torch.float64).log_prob_y(torch.tensor(X)).exp() for order in orders]
    model.set_params(n_permutations=5)
    averaged = model.predict_proba(X)
    np.testing.assert_allclose(averaged, np.mean([p.numpy() for p in each], axis=0), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(averaged, model.predict_proba(X))  # the same orders at each call
    assert np.abs(averaged - alone).max() > 1e-9
    assert (model.predict(X) == NAMES[averaged.argmax(1)]).all()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), averaged, rtol=1e-12)


def test_averages_need_to_know_what_was_regrouped():
    model = classifier_of(small_of("infinite")).set_params(n_permutations=3)
    with pytest.raises(ValueError, match="n_permutations needs a model trained by fit"):
        model.predict(visible_states(4))
    with pytest.raises(ValueError, match="n_permutations must be a whole number >= 1, got 0"):
        quick(n_permutations=0).fit(X, Y)


def test_averages_survive_a_file(tmp_path):
    model = quick(n_permutations=4).fit(X, Y, validation=(XV, YV))
    model.save(tmp_path / "m")
    again = irbm.InfiniteRBMClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.best_epoch_ == model.best_epoch_


# -- missing pixels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("each_its_own", [False, True])
@pytest.mark.parametrize("depth", CLASSIFIERS)
def test_labels_given_a_part_of_the_pixels(depth, each_its_own):
    """p(y | observed) by enumeration of the rest, within standard errors over independent chains."""
    small, n = small_of(depth), 400
    weights = enumerate_all(small).w.sum(2)  # (state, label)
    states = visible_states(4)
    patterns = (
        [[True, False, True, False], [False, True, False, False]] if each_its_own else [[True, False, True, False]]
    )
    for seen in map(np.array, patterns):
        for state in states[[0, 6, 15]]:
            alike = (states[:, seen] == state[seen]).all(1)
            exact = weights[alike].sum(0) / weights[alike].sum()
            given = np.where(seen, state, np.nan)
            observed = np.tile(seen, (n, 1)) if each_its_own else seen
            found = classifier_of(small).predict_proba_missing(
                np.tile(given, (n, 1)), observed, n_samples=40, burn_in=40, random_state=1
            )
            error = found.std(0) / np.sqrt(n)
            # 3 x 3 entries a pattern, each about normal: 4.5 standard errors leave 1e-4 for all.
            assert (np.abs(found.mean(0) - exact) < 4.5 * error + 1e-9).all()
            np.testing.assert_allclose(found.sum(1), 1)


def test_with_every_pixel_seen_nothing_is_sampled():
    model, states = classifier_of(small_of("infinite")), visible_states(4)
    found = model.predict_proba_missing(states, np.ones(4, bool), n_samples=2, burn_in=1)
    np.testing.assert_allclose(found, model.predict_proba(states), rtol=0, atol=1e-12)


def test_what_is_not_seen_does_not_matter_and_bad_input_is_refused():
    model, states, seen = classifier_of(small_of("infinite")), visible_states(4), np.array([True, True, False, False])
    options = {"n_samples": 3, "burn_in": 2, "random_state": 0}
    first = model.predict_proba_missing(states, seen, **options)
    np.testing.assert_array_equal(model.predict_proba_missing(np.where(seen, states, 7.5), seen, **options), first)
    with pytest.raises(ValueError, match="observed must be boolean"):
        model.predict_proba_missing(states, [1, 1, 0, 0])
    with pytest.raises(ValueError, match="must hold only 0 and 1"):
        model.predict_proba_missing(np.where(seen, 0.5, states), seen)
    with pytest.raises(ValueError, match="NaN"):
        model.predict_proba_missing(np.where(seen, np.nan, states), seen)
    with pytest.raises(ValueError, match="n_samples must be"):
        model.predict_proba_missing(states, seen, n_samples=0)


# -- samples of a class -------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", CLASSIFIERS)
def test_samples_of_a_class_have_its_distribution(depth):
    small, n = small_of(depth), 20_000
    model, joint = classifier_of(small), enumerate_all(small).w.sum(2)
    for label, name in enumerate(NAMES):
        v, y = model.sample(n, y=name, n_steps=60, random_state=label)
        assert (y == name).all()
        counts = np.bincount(v.astype(int) @ [8, 4, 2, 1], minlength=16)
        assert chisquare(counts, n * joint[:, label] / joint[:, label].sum()).pvalue > 1e-4


def test_each_sample_can_have_a_class_of_its_own():
    model = classifier_of(small_of("infinite"))
    wanted = NAMES[[2, 0, 0, 1]]
    assert (model.sample(4, y=wanted, n_steps=2)[1] == wanted).all()
    with pytest.raises(ValueError, match=r"unseen before, such as .*oak"):
        model.sample(4, y="oak")
    with pytest.raises(ValueError, match=r"y must be one label or n_samples=4 of them, got shape \(2,\)"):
        model.sample(4, y=NAMES[:2])


# -- validation ---------------------------------------------------------------------------------------------


class Machines(Callback):
    """The machine of each epoch."""

    def __init__(self):
        self.kept = []

    def after_epoch(self, trainer, report):
        self.kept.append(trainer.machine.with_capacity(report.n_components))


def best_by_hand(machines):
    """The first of the epochs that classify most, with the highest mean ln p(y | v) among them; from 1."""
    codes = np.searchsorted(NAMES, YV)
    found = []
    for machine in machines:
        log_p = machine.log_prob_y(torch.tensor(XV, dtype=torch.float32)).numpy()
        found.append(((log_p.argmax(1) == codes).mean(), log_p[np.arange(len(codes)), codes].mean()))
    return 1 + max(range(len(found)), key=lambda n: found[n]), found


@pytest.mark.parametrize("cls", CLASSIFIERS.values())
def test_the_epoch_that_validates_best_is_kept(cls):
    more = {"n_components": 6} if cls is irbm.RBMClassifier else {}
    seen = Machines()
    model = quick(cls, n_iter=12, **more).fit(X[:80], Y[:80], validation=(XV, YV), callbacks=[seen])
    best, found = best_by_hand(seen.kept)
    assert model.best_epoch_ == best
    assert [row["validation_score"] for row in model.history_] == pytest.approx([f[0] for f in found])
    for name, tensor in model.machine_.tensors().items():
        assert torch.equal(tensor, getattr(seen.kept[best - 1], name))
    assert model.score(XV, YV) == pytest.approx(found[best - 1][0])
    assert model.effective_size_ == model.history_[best - 1]["effective_size"]


def test_ties_are_broken_by_the_probabilities():
    scores = [(0.5, -1.0), (0.7, -2.0), (0.7, -1.0), (0.7, -3.0), (0.6, -0.5)]
    left = iter(scores)
    stopping = EarlyStopping(lambda machine: next(left), patience=None)
    model = quick(n_iter=5).fit(X, Y, callbacks=[stopping])
    best = model.training_state_.best
    assert (best.epoch, best.score) == (3, (0.7, -1.0))
    assert [row["validation_score"] for row in model.history_] == [score[0] for score in scores]


def test_density_models_choose_by_pseudo_likelihood():
    seen = Machines()
    model = quick(irbm.InfiniteRBM, n_iter=8, learning_rate=0.5, l1=0.0).fit(X[:30], validation=XV, callbacks=[seen])
    scores = []
    for machine in seen.kept:
        probe = irbm.InfiniteRBM.from_parameters(
            machine.weights.numpy(),
            machine.hidden_bias.numpy(),
            machine.visible_bias.numpy(),
            order=machine.order.numpy(),
        )
        scores.append(probe.pseudo_log_likelihood(XV).mean())
    assert [row["validation_score"] for row in model.history_] == pytest.approx(scores, rel=1e-5)
    assert model.best_epoch_ == 1 + int(np.argmax(scores))
    assert torch.equal(model.machine_.weights, seen.kept[model.best_epoch_ - 1].weights)


def test_patience_ends_a_fit(monkeypatch):
    scores = iter([(0.5, -1.0), (0.7, -1.0), (0.7, -2.0), (0.6, 0.0), (0.7, -1.0), (0.9, 0.0)])
    monkeypatch.setattr(irbm.InfiniteRBMClassifier, "_label_score", lambda *_: lambda machine: next(scores))
    model = quick(n_iter=20).fit(X, Y, validation=(XV, YV), patience=3)
    assert len(model.history_) == 5
    assert model.best_epoch_ == 2
    assert model.effective_size_ == model.history_[1]["effective_size"] != model.history_[-1]["effective_size"]


def test_without_validation_there_is_no_best_epoch_and_no_patience():
    model = quick().fit(X, Y)
    with pytest.raises(AttributeError, match="without validation"):
        _ = model.best_epoch_
    assert all(row["validation_score"] is None for row in model.history_)
    with pytest.raises(ValueError, match="patience=3 needs validation"):
        quick().fit(X, Y, patience=3)
    with pytest.raises(ValueError, match="patience must be a whole number >= 1, got 0"):
        quick().fit(X, Y, validation=(XV, YV), patience=0)
    with pytest.raises(ValueError, match=r"validation must be a pair \(X, y\)"):
        quick().fit(X, Y, validation=XV)
    with pytest.raises(ValueError, match="features"):
        quick().fit(X, Y, validation=(XV[:, :5], YV))
    with pytest.raises(ValueError, match=r"validation must hold labels of training, .*ash.*got none of them but .*oak"):
        quick().fit(X, Y, validation=(XV, np.full(len(XV), "oak")))


def test_a_validation_label_that_training_never_saw_is_an_error_of_the_machine():
    strange = np.where(np.arange(len(YV)) < 4, "oak", YV)
    strange[4:8] = "aaa"
    model = quick(n_iter=3).fit(X[:80], Y[:80], validation=(XV, strange))
    assert max(row["validation_score"] for row in model.history_) <= 1 - 8 / len(YV)
    best = model.history_[model.best_epoch_ - 1]["validation_score"]
    assert best == pytest.approx((model.predict(XV) == strange).mean())


def test_learning_goes_on_from_the_epoch_that_was_chosen(monkeypatch):
    scores = iter([0.9, 0.1, 0.1])
    monkeypatch.setattr(irbm.InfiniteRBMClassifier, "_label_score", lambda *_: lambda machine: next(scores))
    model = quick(n_iter=3, learning_rate=1e-4, optimizer="constant").fit(X, Y, validation=(XV, YV))
    before = model.machine_
    model.partial_fit(X, Y)
    moved = (model.machine_.visible_bias - before.visible_bias).abs().max()
    assert 0 < moved < 1e-4 * 7  # six small steps, from the chosen machine
    assert int(model.training_state_.optimizer.step) == 6  # the optimiser of the last epoch is of another machine
    with pytest.raises(AttributeError):
        _ = model.best_epoch_
    assert len(model.history_) == 4


def test_an_interrupted_validated_fit_ends_as_if_undisturbed(tmp_path):
    """The best machine and the patience that is left go through the checkpoint."""
    whole = quick(n_iter=9).fit(X[:80], Y[:80], validation=(XV, YV))
    path = tmp_path / "c"
    quick(n_iter=5).fit(X[:80], Y[:80], validation=(XV, YV), callbacks=[Checkpointer(path)])
    saved = checkpoint.load(path)[0]
    assert isinstance(saved.best.score, tuple)
    resumed = quick(n_iter=9).fit(X[:80], Y[:80], validation=(XV, YV), resume_from=path)
    assert resumed.best_epoch_ == whole.best_epoch_
    assert [r["validation_score"] for r in resumed.history_] == [r["validation_score"] for r in whole.history_]
    for name, tensor in whole.machine_.tensors().items():
        assert torch.equal(tensor, getattr(resumed.machine_, name))


def test_a_fit_that_ran_out_of_patience_is_not_taken_up_again(tmp_path, monkeypatch):
    scores = iter([0.9, 0.1, 0.1])
    monkeypatch.setattr(irbm.InfiniteRBMClassifier, "_label_score", lambda *_: lambda machine: next(scores))
    path = tmp_path / "c"
    model = quick(n_iter=20).fit(X, Y, validation=(XV, YV), patience=2, callbacks=[Checkpointer(path)])
    again = quick(n_iter=20).fit(X, Y, validation=(XV, YV), patience=2, resume_from=path)
    assert len(again.history_) == len(model.history_) == 3
    assert again.best_epoch_ == 1
    assert torch.equal(again.machine_.weights, model.machine_.weights)


@pytest.mark.parametrize("score", ["[]", "0", '["a"]', "null", "[0.5, null]"])
def test_a_checkpoint_with_a_score_that_is_none_is_refused(score, tmp_path):
    path = tmp_path / "c"
    quick(n_iter=1).fit(X, Y, callbacks=[EarlyStopping(lambda machine: (0.5, 0.25)), Checkpointer(path)])
    tensors, about = read_tensors(path, "checkpoint")
    about["best"]["score"] = json.loads(score)
    write_tensors(path, tensors, "checkpoint", about)
    with pytest.raises(ValueError, match="score"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", ["weights", "label_weights", "label_bias"])
def test_label_scores_have_gradients_for_whoever_asks(name):
    machine = initial_machine(Infinite(), 6, n_components=4, n_classes=3)
    leaf = torch.zeros_like(getattr(machine, name)).requires_grad_()
    scores = replace(machine, **{name: leaf}).label_scores(torch.ones(2, 6))
    scores.square().sum().backward()
    assert leaf.grad.abs().max() > 0


@pytest.mark.parametrize("depth", DEPTHS)
def test_label_scores_do_not_depend_on_the_chunks(depth, monkeypatch):
    machine, v = as_machine(small_of(depth)), torch.tensor(visible_states(4))
    whole = machine.log_prob_y(v)
    monkeypatch.setitem(models_machine.LABEL_ENTRIES, "cpu", 1)
    torch.testing.assert_close(machine.log_prob_y(v), whole, rtol=0, atol=1e-14)
    assert machine.log_prob_y(v[:0]).shape == (0, 3)
