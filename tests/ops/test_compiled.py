"""The compiled twins against the reference, decision by decision, on fresh random input."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from fresh import SEED
from irbm.models import Fixed, Frozen, Infinite, Machine, Ordered
from irbm.ops import compiled, dispatch, reference
from irbm.ops.compiled import loops
from irbm.ops.compiled.loops import Kernel
from irbm.ops.compiled.philox import QUARTER
from irbm.ops.kernels import Key
from irbm.ops.noise import CountedStream, Stream, stream
from irbm.ops.reference import Heat

needs_numba = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")

DEPTHS = [Fixed(), Ordered(), Infinite(), Ordered(penalty="softplus"), Infinite(penalty="softplus")]
SIZES = [(1, 1, 1), (3, 5, 5), (7, 5, 37), (64, 100, 160), (100, 500, 544)]  # examples, size, capacity
NAMES = [f"{type(d).__name__}-{getattr(d, 'penalty', '')}" for d in DEPTHS]
NEW = {"warm_up": 10, "epsilon": 1e-8}  # of an update: how new units start


def hidden_input(depth, B, l, K, seed, scale=3.0):
    """Activations, a permuted order with padding behind it, penalties, size, kind, tail."""
    rng = torch.Generator().manual_seed(seed)
    a_BK = scale * torch.randn(B, K, generator=rng)
    c_K = torch.randn(K, generator=rng)
    a_BK[:, l:] = 0
    c_K[l:] = 0
    order_K = torch.cat([torch.randperm(l, generator=rng), torch.arange(l, K)])
    return a_BK, order_K, depth.penalties(c_K), torch.tensor(l), depth.kind, depth.tail


def assert_hardly_any(differing, decisions):
    """A uniform has 24 bits: about one decision in ten million falls between two roundings of a probability.

    A test of few decisions, allowed none, fails by that once in a thousand runs or less; one of many, allowed two, in a
    million.
    """
    assert differing <= min(2, decisions // 10_000)


def uniforms(*shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@needs_numba
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("B", "l", "K"), SIZES)
@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
class TestHiddenSide:
    def test_same_samples(self, depth, B, l, K, threads, use_threads):
        use_threads(threads)
        differing = 0
        for seed in range(SEED, SEED + 5):
            given = hidden_input(depth, B, l, K, seed)
            u_B, u_BK = uniforms(B, seed=seed + 100), uniforms(B, K, seed=seed + 200)
            z_B, h_BK = compiled.hidden_sample(*given, u_B, u_BK)
            expected_z, expected_h = reference.hidden_sample(*given, u_B, u_BK)
            same = z_B == expected_z
            differing += int((~same).sum()) + int((h_BK != expected_h)[same].sum())
            assert (h_BK[:, l:] == 0).all() or depth.kind == "infinite"
        assert_hardly_any(differing, 5 * B * (K + 1))

    def test_same_reach(self, depth, B, l, K, threads, use_threads):
        use_threads(threads)
        given = hidden_input(depth, B, l, K, SEED + 7)
        u_B = uniforms(B, seed=SEED + 8)
        reach, active, z_B, mode_B = compiled.hidden_reach(*given, u_B)
        expected = reference.hidden_reach(*given, u_B)
        torch.testing.assert_close(reach, expected[0], rtol=2e-5, atol=1e-15)
        torch.testing.assert_close(active, expected[1], rtol=1e-6, atol=1e-15)
        assert torch.equal(mode_B, expected[3])
        assert_hardly_any(int((z_B != expected[2]).sum()), B * K)  # a z is decided by up to K thresholds
        assert (reach[:, l:] == 0).all()


@needs_numba
class TestExtremes:
    @pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
    @pytest.mark.parametrize("scale", [1e-6, 40.0, 1e4])
    def test_any_scale(self, depth, scale):
        given = hidden_input(depth, 40, 90, 96, seed=3, scale=scale)
        u_B, u_BK = uniforms(40, seed=1), uniforms(40, 96, seed=2)
        for ours, expected in zip(
            (*compiled.hidden_sample(*given, u_B, u_BK), *compiled.hidden_reach(*given, u_B)),
            (*reference.hidden_sample(*given, u_B, u_BK), *reference.hidden_reach(*given, u_B)),
            strict=True,
        ):
            torch.testing.assert_close(ours, expected, rtol=2e-5, atol=1e-15)

    def test_a_hundred_thousand_nats_decide_nothing(self):
        """t grows to 1e5 while z hangs on differences of one: float32 sums would lose them."""
        gain_K = torch.tensor([1e4] * 10 + [0.5, -0.5, 0.25, -0.25])
        beta_K = torch.zeros(14)
        a_BK = torch.where(gain_K > 1, gain_K, torch.log(torch.expm1(gain_K + 1)))[None]
        beta_K[10:] = 1.0
        given = (a_BK, torch.arange(14), beta_K, torch.tensor(14), "ordered", -np.inf)
        reach, *_ = compiled.hidden_reach(*given, torch.tensor([0.5]))
        weights = np.exp(np.array([0.0, 0.5, 0.0, 0.25, 0.0]))
        expected = weights[::-1].cumsum()[::-1] / weights.sum()
        np.testing.assert_allclose(reach[0, 9:], expected, rtol=1e-5)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("depth", DEPTHS[1:], ids=NAMES[1:])
    def test_nan_is_not_hidden(self, depth, bad):
        given = hidden_input(depth, 3, 20, 24, seed=1)
        given[0][1, 4] = bad
        reach, active, _, _ = compiled.hidden_reach(*given, torch.full((3,), 0.5))
        assert reach[1, :20].isnan().all()
        assert not reach[[0, 2]].isnan().any()
        assert active[1, 4].isnan() == np.isnan(bad)

    def test_no_product_of_reach_and_activity_is_denormal(self):
        """A unit costs 0.7 nats and gives nothing: P(z >= k) falls through all of float32 within 150 positions."""
        given = hidden_input(Infinite(), 50, 400, 416, seed=1)
        a_BK = given[0]
        a_BK[:, :400] = -torch.linspace(3, 60, 50)[:, None]
        beta_K = torch.full((416,), 0.7)
        reach, active, _, _ = compiled.hidden_reach(a_BK, given[1], beta_K, *given[3:], uniforms(50, seed=1))
        smallest = np.finfo(np.float32).tiny
        plain = reference.hidden_reach(a_BK, given[1], beta_K, *given[3:], uniforms(50, seed=1))
        assert (((plain[0] * plain[1]) > 0) & ((plain[0] * plain[1]) < smallest)).any()
        on = (reach * active / 50).numpy()
        assert (on[on > 0] >= smallest).all()
        assert (on > 0).any()


SAMPLED = [pytest.param(False, id="exact"), pytest.param(True, id="sampled")]


@needs_numba
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sampled", SAMPLED)
@pytest.mark.parametrize(("B", "l", "K"), SIZES)
@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
def test_phases_are_the_reach_weighed(depth, B, l, K, sampled, threads, use_threads, monkeypatch):
    """Against what dispatch makes of the reference operations in float64."""
    use_threads(threads)
    a_BK, order_K, beta_K, *rest = hidden_input(depth, B, l, K, SEED + 11)
    u_B, share_B = uniforms(B, seed=SEED + 12), uniforms(B, seed=SEED + 13) - 0.5
    on, reach, z_B, mode_B = compiled.phases(
        a_BK, order_K, beta_K, *rest, u_B, share_B, sampled=sampled, sloped=depth.sloped
    )
    exact = (a_BK.double(), order_K, beta_K.double(), *rest, share_B.double())
    expected = dispatch.phases(*exact, lambda *_: u_B.double(), sampled=sampled, sloped=depth.sloped)
    same_B = z_B == expected.z_R  # where z is sampled, all else hangs on it
    assert_hardly_any(int((~same_B).sum()), B * K)
    assert torch.equal(mode_B, expected.mode_R)
    torch.testing.assert_close(on.double()[same_B], expected.on_RK[same_B], rtol=4e-5, atol=1e-15)
    assert (reach is None) == (not depth.sloped)
    if reach is not None:
        torch.testing.assert_close(reach.double()[same_B], expected.reach_RK[same_B], rtol=4e-5, atol=1e-15)
    assert (on[:, l:] == 0).all()


@needs_numba
class TestOwnDraws:
    """A key gives what the uniforms written out for it give, bit by bit, on any number of threads."""

    @pytest.mark.parametrize(("B", "l", "K"), SIZES)
    @pytest.mark.parametrize("depth", DEPTHS[:3], ids=NAMES[:3])
    def test_hidden_side(self, depth, B, l, K, use_threads):
        given, key = hidden_input(depth, B, l, K, seed=5), Key(2**60 + 7, 3)
        u_B, u_BK = compiled.row_uniforms(B, K, *key)
        z_B, h_BK = compiled.hidden_sample(*given, u_B, u_BK)
        options = {"sampled": False, "sloped": True}
        phases = compiled.phases(*given, u_B, torch.ones(B), **options)
        for threads in (1, 2):
            use_threads(threads)
            drawn = compiled.hidden_sample_keyed(*given, *key)
            assert torch.equal(drawn[0], z_B)
            assert torch.equal(drawn[1], h_BK)
            for ours, expected in zip(compiled.phases(*given, key, torch.ones(B), **options), phases, strict=True):
                assert torch.equal(ours, expected)

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
    def test_sweeps_at_once_are_sweeps_one_by_one(self, depth, threads, use_threads):
        use_threads(threads)
        rng = torch.Generator().manual_seed(SEED)
        W_KD, c_K, b_D = (torch.randn(shape, generator=rng) for shape in ((40, 30), (40,), (30,)))
        W_KD[33:], c_K[33:] = 0, 0
        order_K = torch.cat([torch.randperm(33, generator=rng), torch.arange(33, 40)])
        machine = Machine(W_KD, c_K, b_D, order_K, torch.tensor(33), depth)
        v_BD, noise = (torch.rand(9, 30, generator=rng) < 0.5).float(), stream("cpu")
        start_BD = v_BD.clone()
        noise.reseed(4)
        at_once, _ = Frozen.of(machine).gibbs(v_BD, None, noise, 5)
        assert torch.equal(v_BD, start_BD)
        noise.reseed(4)
        for _ in range(5):
            v_BD, _ = machine.gibbs_step(v_BD, None, noise)
        assert torch.equal(at_once, v_BD)
        assert not torch.equal(at_once, start_BD)

    @pytest.mark.parametrize("shape", [(1, 1), (5, 63), (100, 784)])
    def test_visible_side(self, shape, use_threads):
        field, key = torch.randn(shape, generator=torch.Generator().manual_seed(SEED)), Key(11, 4)
        expected = compiled.sample_bernoulli(field, compiled.row_uniforms(*shape, *key)[1])
        for threads in (1, 2):
            use_threads(threads)
            assert torch.equal(compiled.sample_bernoulli(field, key), expected)

    def test_against_philox_in_whole_numbers(self):
        key, call = 0x299F31D0A4093822, 0x85A308D3
        words = key & 0xFFFFFFFF, key >> 32
        u_B, u_BK = compiled.row_uniforms(3, 10, key, call)  # ten units take three counters
        for row in range(3):
            counters = np.array([philox((q, call, row, 0), words, rounds=7) for q in range(3)])
            assert u_BK[row].tolist() == ((counters.T.ravel() >> 8) * 2.0**-24)[:10].tolist()
            assert float(u_B[row]) == (philox((0, call, row, 1), words, rounds=7)[0] >> 8) * 2.0**-24

    def test_uniform_and_independent(self):
        u_B, u_BK = (u.double().numpy() for u in compiled.row_uniforms(1000, 400, 2**63 - 1, 5))
        for u, other in ((u_BK.ravel(), np.roll(u_BK, 1, 0).ravel()), (u_B, u_BK[:, 0]), (u_B, np.roll(u_B, 1))):
            assert kstest(u, "uniform").pvalue > 1e-3
            assert abs(np.corrcoef(u, other)[0, 1]) < 4 / np.sqrt(len(u))


@needs_numba
class TestCounting:
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("length", [0, 1, 2, 33, 600, 640])
    def test_the_shuffle_is_a_stable_sort(self, length, ties):
        order, u = torch.randperm(640, generator=torch.Generator().manual_seed(SEED)), uniforms(640, seed=SEED + length)
        u = (u * 10).floor() / 10 if ties else u
        expected = torch.cat([order[:length][torch.argsort(u[:length], stable=True)], order[length:]])
        compiled.shuffle_(order, length, u)
        assert torch.equal(order, expected)

    @pytest.mark.parametrize("B", [1, 100, 1500])
    def test_the_sums_are_those_of_the_likeliest_z(self, B):
        mode, sums = torch.randint(1, 700, (B,), generator=torch.Generator().manual_seed(B)), torch.tensor([3.0, 5.0])
        sums = sums.double()
        compiled.tally_(sums, mode)
        assert sums.tolist() == [3 + int(mode.sum()), 5 + int(mode.max())]

    @pytest.mark.parametrize(
        ("z_pos", "z_neg", "limit", "expected"),
        [
            ([9, 1], [1, 9], 10, 3),
            ([9, 1], [1, 9, 1, 9, 9], 10, 4),
            ([1, 1, 9, 1], [9, 1], 10, 4),
            ([1, 1, 9, 1], [1, 9], 10, 3),
            ([4], [4], 10, 4),
            ([3], [4], 10, 3),
            ([9], [9], 3, 3),
        ],
    )
    def test_growth_pairs_each_example_with_its_partner(self, z_pos, z_neg, limit, expected):
        size = torch.tensor(3)
        compiled.grow_(size, torch.tensor(z_pos), torch.tensor(z_neg), limit)
        assert int(size) == expected


@needs_numba
class TestVisibleSide:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("scale", [0.0, 3.0, 100.0])
    @pytest.mark.parametrize("shape", [(1, 1), (5, 64), (100, 784)])
    def test_same_samples(self, shape, scale, threads, use_threads):
        use_threads(threads)
        rng = torch.Generator().manual_seed(SEED)
        field = scale * torch.randn(shape, generator=rng)
        u = torch.rand(shape, generator=rng)
        differing = compiled.sample_bernoulli(field, u) != reference.sample_bernoulli(field, u)
        assert int(differing.sum()) <= (1 if field.numel() > 10_000 else 0)

    def test_views_are_read_rightly(self):
        field, u = torch.randn(6, 20), torch.rand(20, 6)
        assert torch.equal(
            compiled.sample_bernoulli(field[:, ::2], u.T[:, ::2]), (field.sigmoid() > u.T).float()[:, ::2]
        )


@needs_numba
class TestUpdate:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize(("l1", "l2", "max_norm"), [(0, 0, None), (0.05, 0, None), (0, 0.1, 2.0), (0.02, 0.1, 1.0)])
    @pytest.mark.parametrize("shape", [(1, 1), (7, 5), (60, 784)])
    def test_against_float64(self, shape, l1, l2, max_norm, threads, use_threads):
        use_threads(threads)
        rng = np.random.default_rng(SEED)
        w, g = rng.normal(size=shape), rng.normal(size=shape)
        s, age = rng.random(shape), rng.integers(0, 20, len(w))
        tensors = [torch.tensor(x, dtype=torch.float32) for x in (w, g, s)]
        lr = torch.tensor(0.3)
        compiled.update_weights_(*tensors, torch.tensor(age), lr, l1, l2, max_norm, **NEW)
        slope = g + l2 * w
        squares = s + slope**2
        moved = w - 0.3 * slope / np.where(age[:, None] < 10, 1.0, np.sqrt(squares) + 1e-8)
        expected = np.sign(moved) * np.maximum(np.abs(moved) - 0.3 * l1, 0)
        if max_norm is not None:
            norm = np.linalg.norm(expected, axis=1, keepdims=True)
            expected *= np.minimum(1, max_norm / np.maximum(norm, 1e-30))  # L1 may leave a row of zeros
        np.testing.assert_allclose(tensors[0], expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(tensors[2], squares, rtol=1e-5)
        if l1:
            assert ((tensors[0] == 0).numpy() == (expected == 0)).mean() > 0.99

    def test_biases_against_float64(self):
        rng = np.random.default_rng(SEED)
        K, D, size = 9, 5, 6
        arrays = {n: [rng.normal(size=m), rng.normal(size=m), rng.random(m)] for n, m in (("c", K), ("b", D))}
        tensors = {n: tuple(torch.tensor(x, dtype=torch.float32) for x in a) for n, a in arrays.items()}
        age = np.array([30, 10, 9, 8, 0, 0, 0, 0, 0])
        ages, step = torch.tensor(age), torch.tensor(41)
        size = torch.tensor(size)
        compiled.update_biases_(tensors["c"], tensors["b"], ages, size, step, 0.3, **NEW)
        for name, (bias, slope, squares) in arrays.items():
            squares = squares + slope**2
            young = age < 10 if name == "c" else np.zeros(D, bool)
            expected = bias - 0.3 * slope / np.where(young, 1.0, np.sqrt(squares) + 1e-8)
            np.testing.assert_allclose(tensors[name][0], expected, rtol=1e-5)
            np.testing.assert_allclose(tensors[name][2], squares, rtol=1e-5)
        assert ages.tolist() == [31, 11, 10, 9, 1, 1, 0, 0, 0]
        assert int(step) == 42

    def test_nan_is_not_hidden(self):
        w, g, s = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 4)
        g[1, 2] = np.nan
        compiled.update_weights_(w, g, s, torch.full((3,), 50), torch.tensor(0.1), 0.5, 0.0, 1.0, **NEW)
        assert w[1, 2].isnan()
        assert not w[[0, 2]].isnan().any()

    def test_an_infinite_rate_warns_of_nothing_by_itself(self):
        """The trainer finds parameters that ran away; an update must get that far."""
        w = torch.ones(2, 3)
        compiled.update_weights_(w, w.clone(), w.clone(), torch.ones(2), torch.tensor(np.inf), 0.0, 0.0, None, **NEW)
        assert w.isinf().all()


def philox(counter, key, rounds):
    """Philox4x32 in Python's own integers."""
    c, (k0, k1) = counter, key
    for i in range(rounds):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        first, second = (k0 + i * 0x9E3779B9) % 2**32, (k1 + i * 0xBB67AE85) % 2**32
        c = (b >> 32 ^ c[1] ^ first, b % 2**32, a >> 32 ^ c[3] ^ second, a % 2**32)
    return c


@needs_numba
class TestUniforms:
    @pytest.mark.parametrize(("key", "call"), [(0, 0), (0x299F31D0A4093822, 0x85A308D3)])
    def test_against_philox_in_whole_numbers(self, key, call):
        drawn = compiled.uniforms(key, call, (8 * QUARTER,)).reshape(2, 4, -1)
        for counter in (0, 1, QUARTER - 1, QUARTER, 2 * QUARTER - 1):
            words = philox((counter, call, 0, 0), (key & 0xFFFFFFFF, key >> 32), rounds=7)
            block, place = divmod(counter, QUARTER)
            assert drawn[block, :, place].tolist() == [(word >> 8) * 2.0**-24 for word in words]

    def test_philox_is_its_authors(self):
        """Their published answers for ten rounds hold the rounds themselves."""
        assert philox((0,) * 4, (0, 0), 10) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
        pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
        assert philox(*pi, 10) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)

    def test_uniform_and_independent(self):
        u = compiled.uniforms(2**63 - 1, 5, (400_000,)).double().numpy()
        assert kstest(u, "uniform").pvalue > 1e-3
        neighbours = compiled.uniforms(2**63 - 1, 6, (400_000,)).double().numpy()
        for other in (np.roll(u, 1), np.roll(u, QUARTER), neighbours):
            assert abs(np.corrcoef(u, other)[0, 1]) < 4 / np.sqrt(len(u))
        counts = np.histogram2d(u[::2], u[1::2], bins=16, range=[[0, 1], [0, 1]])[0]
        expected = len(u) / 2 / 256
        assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, 255)

    @pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 100_000])
    def test_the_same_for_any_number_of_threads_and_any_length(self, n, use_threads):
        use_threads(2)
        shared = compiled.uniforms(9, 1, (n,))
        use_threads(1)
        assert torch.equal(shared, compiled.uniforms(9, 1, (n,)))
        assert torch.equal(shared, compiled.uniforms(9, 1, (200_000,))[:n])
        assert (shared >= 0).all()
        assert (shared < 1).all()

    def test_a_stream_is_replayed_from_its_key(self):
        noise = stream("cpu")
        assert isinstance(noise, CountedStream)
        noise.reseed(1, 2, 3)
        first = [noise(4, 5), noise(4, 5), noise(7)]
        noise.reseed(1, 2, 3)
        assert all(torch.equal(a, noise(*a.shape)) for a in first)
        assert not torch.equal(first[0], first[1])
        noise.reseed(1, 2, 4)
        assert not torch.equal(first[0], noise(4, 5))

    def test_float64_keeps_numpys_generator(self):
        assert isinstance(stream("cpu", torch.float64), Stream)


@needs_numba
class TestDispatch:
    def test_float32_goes_to_the_kernels_and_float64_to_the_reference(self, monkeypatch):
        seen = []
        original = compiled.hidden_sample_keyed
        monkeypatch.setattr(compiled, "hidden_sample_keyed", lambda *a: seen.append(a[0].dtype) or original(*a))
        given = hidden_input(Infinite(), 4, 5, 8, seed=0)
        for dtype in (torch.float32, torch.float64):
            noise = stream("cpu", dtype)
            noise.reseed(0)
            dispatch.hidden_sample(given[0].to(dtype), *given[1:], noise)
        assert seen == [torch.float32]

    def test_autograd_goes_to_the_reference(self):
        assert not compiled.runs_on(torch.zeros(2, requires_grad=True))


def test_the_package_trains_without_numba(tmp_path):
    """Hidden from the import, numba is not needed for anything."""
    script = """
import sys
sys.modules["numba"] = None
import numpy as np
from irbm import InfiniteRBM
from irbm.ops import compiled
assert not compiled.available()
X = (np.random.default_rng(0).random((60, 9)) < 0.3).astype(np.uint8)
model = InfiniteRBM(n_iter=2, batch_size=20, random_state=0).fit(X)
assert np.isfinite(model.components_).all()
"""
    source = Path(compiled.__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONWARNINGS": "default"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, cwd=tmp_path, timeout=120)


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_works_alone(use_threads):
    use_threads(2)
    drawn = compiled.uniforms(1, 1, (100_000,)).numpy()
    child = os.fork()
    if child == 0:  # NumPy compares: torch's own threads do not live through a fork
        same = np.array_equal(drawn, compiled.uniforms(1, 1, (100_000,)).numpy())
        os._exit(0 if same and not Kernel.shared else 1)
    assert os.waitpid(child, 0)[1] == 0


def machine(depth, l=30, K=32, D=20, dtype=torch.float32):
    rng = torch.Generator().manual_seed(SEED)
    weights = torch.randn(K, D, generator=rng, dtype=torch.float64).to(dtype)
    weights[l:] = 0
    zeros = torch.zeros(K, dtype=dtype)
    return Machine(weights, zeros, torch.zeros(D, dtype=dtype), torch.arange(K), torch.tensor(l), depth)


@needs_numba
@pytest.mark.parametrize("depth", DEPTHS, ids=NAMES)
def test_phase_gradients_against_the_closed_form_in_float64(depth):
    """What training computes by the kernels is the exact gradient of the free energy."""
    small, exact = machine(depth), machine(depth, dtype=torch.float64)
    v_BD = (uniforms(25, 20, seed=SEED) < 0.4).float()
    noise = stream("cpu")
    noise.reseed(0)
    hidden = small.hidden(v_BD, None, noise)
    ours = small.phase_gradients(v_BD, None, hidden.reach_BK, hidden.active_BK)
    expected = exact.free_energy_gradients(v_BD.double())
    for name in ("weights", "hidden_bias", "visible_bias"):
        torch.testing.assert_close(getattr(ours, name).double(), getattr(expected, name), rtol=1e-5, atol=1e-7)


# -- annealing ----------------------------------------------------------------------------------------------------


@needs_numba
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("K", [1, 2, 40, 300])
@pytest.mark.parametrize("pulls", [(1, 1), (0, 100), (100, 0)])  # weak; to a clamp, and let go
@pytest.mark.parametrize("kind", ["fixed", "ordered", "infinite"])
def test_annealed_sums_and_samples_are_those_of_the_twin(kind, K, pulls, per_row):
    B, tail, generator = 50, reference.log_tail(1.01), torch.Generator().manual_seed(SEED + K)

    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    a_BK, beta_K = 6 * torch.randn(B, K, generator=generator), 1.4 * uniform(K)
    answer_MK, part_B = 6 * torch.randn(3, K, generator=generator), torch.arange(B) % 3
    shape = (B,) if per_row else ()
    here, there = (Heat(uniform(*shape).double(), pull * uniform(*shape).double()) for pull in pulls)
    u_B, u_BK = uniform(B), uniform(B, K)
    found = compiled.annealed_sample(a_BK, answer_MK, part_B, beta_K, kind, tail, here, there, u_B, u_BK)
    wanted = reference.annealed_sample(a_BK, answer_MK, part_B, beta_K, kind, tail, here, there, u_B, u_BK)
    for log_sum, expected in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(log_sum, expected, rtol=0, atol=2e-6 * K + 2e-6)
    there_BK = reference.heated(a_BK, answer_MK[part_B], there.tau)
    survival_BZ = reference.survival(reference.annealed_table(there_BK, beta_K, kind, tail, there.kappa))
    at_an_edge = ((survival_BZ - u_B[:, None]).abs() < 1e-5).any(1, keepdim=True)
    at_an_edge = at_an_edge | ((torch.sigmoid(there_BK) - u_BK).abs() < 1e-5)
    assert not ((found[2] != wanted[2]) & ~at_an_edge).any()
    assert at_an_edge.all(1).sum() <= 5  # of fifty rows


# -- what is kept on disk -----------------------------------------------------------------------------------


@needs_numba
def test_a_kernel_is_kept_until_any_source_changes(tmp_path, monkeypatch):
    """A new function from the same file stands for a new process."""
    source = tmp_path / "kernel.py"
    source.write_text("def twice(x):\n    return 2 * x\n")

    def hits():
        names = {"__name__": "irbm"}  # a module that numba can import, once the function before this is gone
        exec(compile(source.read_text(), source, "exec"), names)
        gc.collect()
        twice = loops.jit(names["twice"])
        assert twice(3) == 6
        return sum(twice.stats.cache_hits.values())

    sources = tmp_path / "sources"
    sources.mkdir()
    found = []
    for text in ("one = 1", "one = 1", "one = 2"):
        (sources / "elementary.py").write_text(text)
        monkeypatch.setattr(loops, "SOURCES", loops.digest(sources))
        found.append(hits())
    assert found == [0, 1, 0]
