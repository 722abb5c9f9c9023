"""The estimators' own contract: shapes, dtypes, order, input checks. Numbers are checked against brute force."""

import copy
import itertools
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse, stats

import irbm
from brute import enumerate_all, visible_states
from irbm.estimators.base import choose_device
from machines import random_small

KINDS = {
    "fixed": (irbm.RBM, irbm.RBMClassifier),
    "ordered": (irbm.OrderedRBM, None),
    "infinite": (irbm.InfiniteRBM, irbm.InfiniteRBMClassifier),
}


def build(small):
    cls = KINDS[small.depth][small.U is not None]
    more = {} if small.depth == "fixed" else {"beta": small.beta, "penalty": small.penalty}
    if small.U is not None:
        more |= {"label_weights": small.U, "label_bias": small.d}
    return cls.from_parameters(small.W, small.c, small.b, order=small.order, **more)


@pytest.mark.parametrize("penalty", ["constant", "softplus"])
@pytest.mark.parametrize(
    ("depth", "labels"), [("fixed", 0), ("ordered", 0), ("infinite", 0), ("fixed", 3), ("infinite", 3)]
)
def test_every_number_against_brute_force(depth, labels, penalty):
    small = random_small(np.random.default_rng(11), depth=depth, penalty=penalty, labels=labels, n_hidden=3)
    truth, model = enumerate_all(small), build(small)
    X = visible_states(4)
    close = lambda ours, exact: np.testing.assert_allclose(ours, exact, rtol=1e-10, atol=1e-10)  # noqa: E731
    close(model.free_energy(X), truth.free_energy())
    close(model.log_partition("exact").value, truth.log_z)
    close(model.score_samples(X), -truth.free_energy() - truth.log_z)
    close(model.transform(X), truth.p_h())
    p_z = np.exp(model.log_prob_z(X))
    close(p_z, {"fixed": np.ones((16, 1)), "ordered": truth.p_z()[:, :-1], "infinite": truth.p_z()}[depth])
    p_v = np.exp(-truth.free_energy())
    pseudo = [sum(np.log(p_v[n] / (p_v[n] + p_v[n ^ (1 << bit)])) for bit in range(4)) for n in range(16)]
    close(model.pseudo_log_likelihood(X), pseudo)
    if labels:
        close(model.predict_proba(X), truth.p_y())
        close(model.predict_log_proba(X), np.log(truth.p_y()))
        assert (model.predict(X) == truth.p_y().argmax(1)).all()
        close(model.label_components_, small.U[small.order])
    close(model.components_, small.W[small.order])
    close(model.intercept_hidden_, small.c[small.order])
    assert model.n_components_ == 3
    assert model.n_features_in_ == 4


def irbm_4(**more):
    rng = np.random.default_rng(0)
    return irbm.InfiniteRBM.from_parameters(rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4), **more)


X4 = np.array([[0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize(
    "X",
    [
        *(X4.astype(bool), X4.astype(np.uint8), X4.astype(np.float32), X4.tolist(), sparse.csr_matrix(X4)),
        *(torch.tensor(X4), torch.tensor(X4).bfloat16()),
    ],
)
def test_every_kind_of_input_means_the_same(X):
    expected = irbm_4().free_energy(X4.astype(float))
    np.testing.assert_allclose(irbm_4().free_energy(X), expected, rtol=1e-12)
    np.testing.assert_allclose(irbm_4().transform(X), irbm_4().transform(X4.astype(float)), rtol=1e-12)


def test_dtypes():
    single = irbm.InfiniteRBM.from_parameters(*(np.ones(s, np.float32) for s in [(3, 4), 3, 4]))
    assert single.transform(X4.astype(np.float32)).dtype == np.float32
    assert single.transform(X4).dtype == np.float32
    assert single.transform(X4.astype(np.float64)).dtype == np.float64
    assert single.components_.dtype == np.float32
    assert single.free_energy(X4).dtype == np.float64
    assert irbm_4().transform(X4.astype(np.float32)).dtype == np.float64


def test_binarize():
    grey = X4 * 0.7 + 0.1
    expected = irbm_4().free_energy(X4)
    np.testing.assert_array_equal(irbm_4().set_params(binarize=0.5).free_energy(grey), expected)
    np.testing.assert_array_equal(irbm_4().set_params(binarize=0.5).free_energy(sparse.csr_matrix(grey)), expected)


BAD_INPUT = {
    "grey": (X4 * 0.5, "must hold only 0 and 1, got 0.5.*binarize"),
    "twos": (X4 * 2, "must hold only 0 and 1, got 2.*binarize"),
    "sparse twos": (sparse.csr_matrix(X4 * 2), "must hold only 0 and 1"),
    "NaN": (np.where(X4, np.nan, 0.0), "NaN"),
    "wrong width": (X4[:, :3], "expecting 4 features"),
    "empty": (X4[:0], "0 sample"),
    "one-dimensional": (X4[0], "2D array"),
    "words": (np.array([["a", "b", "c", "d"]]), "numeric"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
@pytest.mark.parametrize("method", ["free_energy", "transform", "log_prob_z", "score_samples", "gibbs"])
def test_bad_input_is_refused(name, method):
    X, message = BAD_INPUT[name]
    with pytest.raises(ValueError, match=message):
        getattr(irbm_4(), method)(X)


W, C, B = np.ones((3, 4)), np.ones(3), np.ones(4)
BAD_PARAMETERS = {
    "beta at one": (lambda: irbm.InfiniteRBM.from_parameters(W, C, B, beta=1.0), "beta must be > 1.*got 1.0"),
    "beta NaN": (lambda: irbm.InfiniteRBM.from_parameters(W, C, B, beta=np.nan), "beta must be > 1"),
    "beta negative": (lambda: irbm.OrderedRBM.from_parameters(W, C, B, beta=-1), "beta must be > 0 and at most 1e"),
    "penalty": (
        lambda: irbm.InfiniteRBM.from_parameters(W, C, B, penalty="linear"),
        "penalty must be one of.*'linear'",
    ),
    "bias": (lambda: irbm.RBM.from_parameters(W, B, B), r"hidden_bias must have shape \(3,\)"),
    "order": (lambda: irbm.RBM.from_parameters(W, C, B, order=[0, 0, 1]), "order must be a permutation of 0..2"),
    "NaN": (lambda: irbm.RBM.from_parameters(W * np.nan, C, B), "weights must be finite"),
    "complex": (lambda: irbm.RBM.from_parameters(W * 1j, C, B), "weights must hold real numbers"),
    "classes": (
        lambda: irbm.RBMClassifier.from_parameters(
            W, C, B, label_weights=np.ones((3, 2)), label_bias=np.ones(2), classes=["a"]
        ),
        "classes must be 2 different labels",
    ),
    "device": (lambda: irbm.RBM(device="abacus")._from_arrays({"device": "abacus"}, W, C, B, None), "device must be"),
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_are_refused(name):
    make, message = BAD_PARAMETERS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_settings_of_methods():
    with pytest.raises(ValueError, match="n_steps must be a whole number >= 1, got 0"):
        irbm_4().gibbs(X4, n_steps=0)
    with pytest.raises(ValueError, match="n_samples must be a whole number >= 1, got -1"):
        irbm_4().sample(-1)
    with pytest.raises(ValueError, match="clamp must be boolean"):
        irbm_4().gibbs(X4, clamp=[1, 0, 0, 0])
    with pytest.raises(ValueError, match="binarize must be None or a finite number, got 'x'"):
        irbm_4().set_params(binarize="x").transform(X4)
    with pytest.raises(ValueError, match="method must be"):
        irbm_4().log_partition("guess")


def test_not_fitted():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="call fit, from_parameters or load"):
        irbm.InfiniteRBM().transform(X4)


def test_too_many_states_says_how_many_and_what_to_do():
    rng = np.random.default_rng(0)
    model = irbm.RBM.from_parameters(rng.normal(size=(30, 40)), rng.normal(size=30), rng.normal(size=40))
    with pytest.raises(ValueError, match=r"needs 2\^30 states, the limit is 2\^25; use"):
        model.log_partition("exact")


def test_sampling_repeats_with_its_seed_and_finds_the_distribution():
    model = irbm_4(beta=1.5)
    first, again, other = (model.sample(50, n_steps=20, random_state=s) for s in [1, 1, 2])
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    n = 20_000
    counts = np.bincount(model.sample(n, n_steps=60, random_state=0).astype(int) @ [8, 4, 2, 1], minlength=16)
    p = np.exp(model.score_samples(visible_states(4)))
    assert (np.abs(counts / n - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


def test_in_painting_keeps_what_is_clamped():
    clamp = np.array([True, True, False, False])
    out = irbm_4().gibbs(X4, n_steps=30, clamp=clamp, random_state=0)
    assert np.array_equal(out[:, clamp], X4[:, clamp])


def test_pickle_keeps_everything():
    model = irbm_4(order=[2, 0, 1])
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.score_samples(X4), again.score_samples(X4))


def test_memory_stays_under_one_gib():
    """60,000 x 784 with 1,000 units: the process is given 1 GiB beyond the input, results included, and no more."""
    code = """
        import re, resource, numpy as np, irbm
        rng = np.random.default_rng(0)
        draw = lambda *s: rng.normal(0, 0.1, s)
        model = irbm.InfiniteRBM.from_parameters(draw(1000, 784), draw(1000), draw(784))
        X = rng.integers(0, 2, (60_000, 784), dtype=np.uint8).astype(np.float32)
        model.log_prob_z(X[:2])
        used = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + 2**30, resource.RLIM_INFINITY))
        print(model.free_energy(X).shape, model.log_prob_z(X).shape)
        try:
            np.ones(2**30, np.uint8)
        except MemoryError:
            print("and no more")
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux, to limit the memory of a process")
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert out.stdout.splitlines() == ["(60000,) (60000, 1001)", "and no more"], out.stderr[-500:]


def test_results_do_not_depend_on_the_chunks(monkeypatch):
    X = np.random.default_rng(3).integers(0, 2, (23, 4))
    model = irbm_4()
    whole = [getattr(model, name)(X) for name in ("free_energy", "transform", "log_prob_z", "pseudo_log_likelihood")]
    monkeypatch.setattr("irbm.estimators.base.CHUNK_BYTES", 2000)  # a few rows at a time
    parts = [getattr(model, name)(X) for name in ("free_energy", "transform", "log_prob_z", "pseudo_log_likelihood")]
    for part, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12)
    assert len(list(model._dense_chunks(X, torch.float64))) > 1


def test_chains_in_chunks_keep_their_frequencies_and_their_clamps(monkeypatch):
    """The chains of later chunks are chains of the same model, each with its own row of the mask."""
    model, rng = irbm_4(), np.random.default_rng(4)
    monkeypatch.setattr("irbm.estimators.base.CHUNK_BYTES", 8000)
    states = np.array(list(itertools.product([0, 1], repeat=4)))
    p = np.exp(model.score_samples(states))
    X = rng.integers(0, 2, (4000, 4))
    for drawn in (model.sample(4000, n_steps=30, random_state=0), model.gibbs(X, 30, random_state=1)):
        counts = np.bincount((drawn @ [8, 4, 2, 1]).astype(int), minlength=16)
        assert stats.chisquare(counts, p / p.sum() * counts.sum()).pvalue > 1e-3
    clamp = rng.random(X.shape) < 0.5
    assert np.array_equal(model.gibbs(X, clamp=clamp, random_state=2)[clamp], X[clamp])


def test_samples_find_a_mode_behind_a_barrier_of_z():
    """300 equal units reward 40 visibles all on, and cost beta ln 2 each where these are noise: z = 1 is a trap."""
    rewards = np.full((300, 40), 0.2)
    model = irbm.InfiniteRBM.from_parameters(rewards, np.full(300, -7.0), np.zeros(40))
    noise = np.random.default_rng(0).integers(0, 2, (50, 40))
    assert model.gibbs(noise, 400, random_state=0).mean() < 0.6
    assert model.sample(50, n_steps=400, random_state=0).mean() > 0.95


def test_ln_z_is_forgotten_when_parameters_change():
    model = irbm_4()
    before = model.score_samples(X4)
    model.set_params(learning_rate=0.5, optimizer="constant").partial_fit(X4)
    after = model.score_samples(X4)
    exact = -model.free_energy(X4) - model.log_partition("exact").value
    np.testing.assert_allclose(after, exact, rtol=1e-12)
    assert not np.allclose(before, after)


def test_an_unreliable_ln_z_is_warned_about():
    model = irbm_4()
    found = irbm.LogPartition(5.0, 1.0, 3.0, 9.0, 1.2, False, "the chains disagree", "ais")
    model.log_partition = lambda: found
    with pytest.warns(UserWarning, match=r"ln Z = 5.00 in \[3.00, 9.00\] is not reliable: the chains disagree"):
        model.score_samples(X4)


def test_fitted_attributes_are_copies():
    model = irbm_4()
    before = model.free_energy(X4)
    for name in ("components_", "intercept_hidden_", "intercept_visible_"):
        getattr(model, name)[:] = 7.0
    np.testing.assert_array_equal(model.free_energy(X4), before)


def test_partial_fit_takes_the_settings_of_today(tmp_path):
    model = irbm_4().set_params(beta=1.7).partial_fit(X4)
    assert model.machine_.depth.beta == 1.7
    model.save(tmp_path / "m")
    assert irbm.InfiniteRBM.load(tmp_path / "m").machine_.depth.beta == 1.7


def test_torch_parameters():
    model = irbm.RBM.from_parameters(torch.zeros(2, 3), torch.zeros(2), torch.zeros(3))
    assert model.n_components == 2
    assert model.machine_.weights.dtype == torch.float32


@pytest.mark.parametrize("beta", ["x", None, [2], True, 1e40, np.inf])
def test_beta_must_be_a_number(beta):
    with pytest.raises(ValueError, match="beta must be"):
        irbm.InfiniteRBM(beta=beta).fit(X4)


def test_a_gpu_that_is_not_the_current_one_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [choose_device(name) for name in ("cuda", "cuda:1")] == [torch.device("cuda"), torch.device("cuda:1")]
    with pytest.raises(ValueError, match=r"'cuda:0' is not the current GPU, 1: call torch\.cuda\.set_device\(0\)"):
        choose_device("cuda:0")


def test_a_gpu_where_there_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(None) == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="torch sees no GPU"):
        choose_device("cuda")
    with pytest.raises(ValueError, match="device must be None or a name"):
        choose_device("tpu9")


@pytest.mark.parametrize("device", ["cpu", None])
def test_what_a_model_turns_into_stays_on_its_device(device, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "irbm.estimators.base.choose_device", lambda wanted: asked.append(wanted) or torch.device("cpu")
    )
    for kind in (irbm.InfiniteRBM, irbm.FrankWolfeRBM):
        model = kind.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3))
        model.set_params(device=device, random_state=7)
        asked.clear()
        rbm = model.to_rbm() if kind is irbm.FrankWolfeRBM else model.to_rbm("all")
        assert asked == [device]
        assert (rbm.device, rbm.random_state, rbm.n_components_) == (device, 7, 2)


@pytest.mark.parametrize("regrouped", [2.5, "a", 0])
def test_orders_of_no_count_are_refused(regrouped):
    model = irbm.InfiniteRBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="regrouped"):
        model.averaged_likelihood(np.ones((4, 3)), regrouped=regrouped)


@pytest.mark.parametrize("kind", [irbm.InfiniteRBM, irbm.OrderedRBM])
def test_a_penalty_set_since_training_is_not_that_of_the_saved_machine(kind, tmp_path):
    model = kind.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3), beta=1.5)
    expected = model.free_energy(np.eye(3))
    model.set_params(beta=1.2, penalty="softplus").save(tmp_path / "m.safetensors")
    loaded = kind.load(tmp_path / "m.safetensors")
    assert (loaded.beta, loaded.penalty) == (1.5, "constant")
    np.testing.assert_array_equal(loaded.free_energy(np.eye(3)), expected)


def test_ln_z_is_of_the_parameters_as_they_are():
    model = irbm.RBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3))
    states = visible_states(3)
    assert np.exp(model.score_samples(states)).sum() == pytest.approx(1)
    model.machine_.weights.mul_(3)
    assert np.exp(model.score_samples(states)).sum() == pytest.approx(1)


def test_an_estimate_does_not_take_the_place_of_an_exact_ln_z():
    model = irbm.InfiniteRBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3))
    exact = model.log_partition("exact")
    assert model.log_partition("ais", budget=1, random_state=0).method == "ais"
    expected = -model.free_energy(np.eye(3)) - exact.value
    np.testing.assert_array_equal(model.score_samples(np.eye(3)), expected)


def test_entries_of_one_place_of_a_sparse_matrix_add_up():
    model = irbm.RBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3))
    two = sparse.csr_matrix((np.ones(2), [1, 1], [0, 2]), shape=(1, 3))
    with pytest.raises(ValueError, match="got 2"):
        model.free_energy(two)
    assert two.nnz == 2, "the caller's matrix stays as it was"
    halves = sparse.csr_matrix(([0.5, 0.5], [1, 1], [0, 2]), shape=(1, 3))
    np.testing.assert_array_equal(model.free_energy(halves), model.free_energy(halves.toarray()))


def test_names_of_columns_survive_a_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.eye(3), columns=list("abc"))
    irbm.RBM(2, n_iter=1).fit(frame).save(tmp_path / "m.safetensors")
    loaded = irbm.RBM.load(tmp_path / "m.safetensors")
    assert loaded.feature_names_in_.tolist() == list("abc")
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[list("cba")])


def test_a_fixed_size_is_effective_whoever_made_it():
    assert irbm.RBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3)).effective_size_ == 2


@pytest.mark.parametrize("beta", [1e7, np.inf])
def test_a_penalty_that_drowns_all_else_is_refused(beta):
    with pytest.raises(ValueError, match="beta"):
        irbm.InfiniteRBM.from_parameters(np.ones((2, 3)), np.zeros(2), np.zeros(3), beta=beta)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_knows_ln_z_as_long_as_it_holds(copied, monkeypatch):
    model = irbm.RBM(2, n_iter=2, random_state=0).fit(np.eye(3))
    expected = model.score_samples(np.eye(3))
    again = copied(model)
    monkeypatch.setattr(type(again), "log_partition", lambda self: pytest.fail("found again"))
    np.testing.assert_array_equal(again.score_samples(np.eye(3)), expected)
    monkeypatch.undo()
    model.machine_.weights.mul_(3)
    assert np.exp(copied(model).score_samples(visible_states(3))).sum() == pytest.approx(1)
