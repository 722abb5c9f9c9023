"""Annealing against enumeration: the ends of a path, its moves, the weights' mean, brackets and verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from annealed import DTYPES, WAYS, counts, every_state, exact_samples, log_f, path_of, probabilities
from brute import enumerate_all, visible_states
from irbm import RBM, InfiniteRBM
from irbm.evaluation import ais, partition
from irbm.evaluation import estimate as record
from irbm.evaluation.estimate import Round, estimate, verdict
from irbm.evaluation.paths import Base, Path
from irbm.evaluation.tempering import temper
from irbm.experiments.known import known
from irbm.models import Frozen, Infinite, Machine
from irbm.ops.noise import uniform_noise
from machines import DEPTHS, as_machine, random_small


@pytest.fixture(autouse=True)
def modest_effort(monkeypatch):
    """Small machines need few chains and points."""
    for name, value in {"CHAINS": 100, "CHAINS_ON_GPU": 100, "FIRST_POINTS": 150, "SWEEPS": 50, "LADDER": 10}.items():
        monkeypatch.setattr(record, name, value)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("labels", [0, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "off"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_both_ends_of_a_path_are_what_they_claim(depth, labels, way, dtype, off):
    """In float32 to within a few roundings, 6e-8 each, of numbers up to 10."""
    small, path = path_of(depth, labels, way, dtype=dtype)
    states = every_state(path)
    assert torch.logsumexp(log_f(path, states, 0.0), 0).item() == pytest.approx(0.0, abs=off)
    truth = enumerate_all(small).joint_free_energy().T.ravel()
    over_parts = torch.logsumexp(log_f(path, states, 1.0).view(2, -1), 0)
    np.testing.assert_allclose(over_parts, -truth, rtol=0, atol=10 * off)


@pytest.mark.parametrize("depth", ["ordered", "infinite"])
@pytest.mark.parametrize("labels", [0, 3])
def test_a_clamped_path_comes_to_the_sum_over_deep_z_before_it_lets_go(depth, labels):
    """Of an RBM, which has every unit in it, less their penalties, and the tail with it; 1 - tau adds some 1e-6."""
    small, path = path_of(depth, labels, "clamped")
    before = torch.logsumexp(log_f(path, every_state(path), 1 - ais.FLOAT32_STEP), 0).item()
    rbm = np.logaddexp.reduce(-enumerate_all(replace(small, depth="fixed")).joint_free_energy().ravel())
    tail = np.logaddexp(0, path.machine.depth.tail) if depth == "infinite" else 0.0
    penalties = small.beta * math.log(2) * len(small.c)
    assert before == pytest.approx(rbm - penalties + tail, abs=1e-5)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("labels", [0, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_path_starts_from_samples_of_its_first_point(depth, labels, dtype):
    p = probabilities(path_of(depth, labels)[1], 0.0)
    _, path = path_of(depth, labels, dtype=dtype)
    starts = path.start(20_000, uniform_noise(5, dtype=dtype))
    assert chisquare(counts(path, starts), 20_000 * p.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize(
    ("tau", "way"), [(0.0, "deep"), (0.35, "deep"), (0.85, "deep"), (1.0, "deep"), (0.35, "clamped"), (1.0, "clamped")]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_leave_every_point_of_the_path_invariant(depth, labels, tau, way, dtype):
    """By the float64 path's probabilities: what float32 adds to them is far below what 40,000 chains can tell."""
    p = probabilities(path_of(depth, labels, way)[1], tau)
    _, path = path_of(depth, labels, way, dtype=dtype)
    noise = uniform_noise(7, dtype=dtype)
    heat = path.at(torch.tensor(tau, dtype=torch.float64))
    after = path.step(exact_samples(path, tau, 40_000, noise), heat, heat, noise)[1]
    assert chisquare(counts(path, after), 40_000 * p.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("way", ["deep", "clamped"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_weights_average_to_z_even_on_a_short_path(depth, way, dtype):
    """The estimate of Z itself is unbiased for any schedule; so is that of 1/Z from exact samples.

    Standard errors are some 1e-2; what float32 adds is below 1e-5.
    """
    _, path = path_of(depth, labels=2, way=way, scale=1.5, dtype=dtype)
    log_z = partition.exact(path.machine).value
    schedule = torch.linspace(0, 1, 6, dtype=torch.float64)
    noise = uniform_noise(1, dtype=dtype)
    found = ais.forward(path, schedule, 20_000, noise)
    assert abs(math.expm1(found.value - log_z)) < 5 * found.stderr
    samples = exact_samples(path, 1.0, 20_000, noise)
    back = ais.reverse(path, schedule, path.of_machine(samples.v_BD, samples.y_B, noise), noise)
    assert abs(math.expm1(log_z - back.value)) < 5 * back.stderr


@pytest.mark.parametrize("depth", ["ordered", "infinite"])
@pytest.mark.parametrize("penalty", ["constant", "softplus"])
@pytest.mark.parametrize("labels", [0, 2])
def test_both_sides_of_a_clamped_path_agree_with_enumeration(depth, penalty, labels, monkeypatch):
    """Four machines, each with the schedule of its pilot: errors in units of their standard errors, 0.1 nat at most."""
    monkeypatch.setattr(ais, "PILOT_POINTS", 64)
    errors = []
    for seed in range(4):
        small, path = path_of(depth, labels, "clamped", seed, n_hidden=5, dtype=torch.float32, penalty=penalty)
        log_z = np.logaddexp.reduce(-enumerate_all(small).joint_free_energy().ravel())
        noise = uniform_noise(seed)
        tried = ais.pilot(path, 100, noise)
        schedule = ais.schedule_from(tried.density, 40)
        there = ais.forward(tried.path, schedule, 1500, noise)
        back = ais.reverse(tried.path, schedule, exact_samples(tried.path, 1.0, 1500, noise), noise)
        assert max(there.stderr, back.stderr) < 0.1
        errors += [(there.value - log_z) / there.stderr, (back.value - log_z) / back.stderr]
    assert np.abs(errors).max() < 4
    assert np.square(errors).mean() < 3  # eight errors of variance 1: more in one of a thousand sets


def test_no_points_are_spent_on_letting_go():
    """ln P(z >= l|v) varies by a nat, all in the last step: taken for a place to refine, that has one in 20 points."""
    _, path = path_of("ordered", way="clamped", n_hidden=30)
    path = replace(path, frozen=Frozen.of(replace(path.machine, hidden_bias=path.machine.hidden_bias - 2)))
    tried = ais.pilot(path, 200, uniform_noise(0, dtype=torch.float64))
    assert path.machine.log_prob_z(tried.estimate.states.v_BD)[:, 29].std() > 0.8
    before_last = ais.tau_at(torch.tensor(254 / 255, dtype=torch.float64))
    assert (ais.schedule_from(tried.density, 1000) > before_last).double().mean() < 0.01


def test_clamped_z_sees_a_trap_that_free_z_does_not():
    """From a single part, whose visibles are coins."""
    machine, exact = known("deep_trap", Infinite(), seed=0, n=0)[1:]
    machine, half = record._working_copy(machine), torch.full((16,), 0.5)
    paths = {p.name: p for p in record.ensemble(Frozen.of(machine), [torch.eye(16)], torch.eye(16), half, seed=0)}
    noise = uniform_noise(0)
    free, clamped = (ais.pilot(paths[f"base of means{z}"], 100, noise).estimate for z in ("", ", clamped z"))
    assert free.value < exact - 5
    assert abs(clamped.value - exact) < 4 * clamped.stderr < 0.5


@pytest.mark.parametrize("depth", DEPTHS)
def test_z_is_free_drawn_deep_and_clamped_where_there_is_a_choice_of_z(depth):
    machine = as_machine(random_small(np.random.default_rng(0), depth=depth))
    states = torch.eye(4, dtype=torch.float64)
    paths = record.ensemble(Frozen.of(machine), [states], states, torch.full((4,), 0.5), seed=0)
    bases = ["base of clusters", "base of means"]
    kinds = [""] if depth == "fixed" else ["", ", deep z", ", clamped z"]
    assert [p.name for p in paths] == [base + kind for kind in kinds for base in bases]


def density_at(first, last):
    density = torch.zeros(255, dtype=torch.float64)
    density[first:last] = 1.0
    return density


def test_schedules_cover_the_path_and_follow_the_variance():
    schedule = ais.schedule_from(density_at(100, 120), 1000)
    assert schedule[0] == 0
    assert schedule[-1] == 1
    low, high = ais.tau_at(torch.tensor([100 / 255, 120 / 255], dtype=torch.float64))
    assert 0.75 < ((schedule > low) & (schedule < high)).double().mean() < 0.9


def test_the_last_step_can_be_refined():
    """Where all the variance is in the pilot's last step, that is where most points go."""
    schedule = ais.schedule_from(density_at(254, 255), 50)
    before_last = ais.tau_at(torch.tensor(254 / 255, dtype=torch.float64))
    assert ((schedule > before_last) & (schedule < 1)).double().mean() > 0.7
    torch.testing.assert_close(schedule[-2], 1 - (1 - before_last) / 40, rtol=0, atol=2**-24)


@pytest.mark.parametrize("first", [0, 100, 254])
@pytest.mark.parametrize("n_points", [2, 16, 100_000])
def test_points_are_those_that_float32_holds_and_increase(first, n_points):
    """All of the variance in one step of the pilot, be it as short as a few steps of float32."""
    schedule = ais.schedule_from(density_at(first, first + 1), n_points)
    assert (schedule[0], schedule[-1], len(schedule)) == (0, 1, n_points)
    assert (schedule.diff() > 0).all()
    for tau in (schedule, 1 - schedule):
        assert torch.equal(tau.float().double(), tau)
    assert torch.equal((1 - schedule.float()).double(), 1 - schedule)


def test_points_crowd_before_the_end():
    tau = ais.tau_at(torch.linspace(0, 1, 1001, dtype=torch.float64))
    assert (tau[0], tau[-1]) == (0, 1)
    torch.testing.assert_close(tau[:900].diff(), torch.full((899,), 0.99 / 900, dtype=torch.float64))
    steps = tau[900:].diff()
    torch.testing.assert_close(steps[1:] / steps[:-1], torch.full((99,), 1e-3**0.01, dtype=torch.float64))
    assert 1e-7 < steps[-1] < 1e-6


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("way", ["deep", "clamped"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tempering_samples_the_machine(depth, way, dtype):
    p = probabilities(path_of(depth, scale=2.0)[1], 1.0).view(2, 8).sum(0).numpy()
    _, path = path_of(depth, way=way, scale=2.0, dtype=dtype)
    noise = uniform_noise(3, dtype=dtype)
    ladder = torch.linspace(0, 1, 5, dtype=torch.float64)
    tempered = temper(path, ladder, path.start(4000, noise), 40, 4000, noise)
    code = (tempered.states.v_BD.long() * torch.tensor([4, 2, 1])).sum(1)
    assert chisquare(torch.bincount(code, minlength=8).numpy(), 4000 * p).pvalue > 1e-4
    assert tempered.swap_rates.shape == (4,)
    assert ((tempered.swap_rates > 0) & (tempered.swap_rates <= 1)).all()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])  # recorded there
@pytest.mark.parametrize("labels", [0, 2])
def test_sweeps_sample_the_machine(labels, device):
    _, path = path_of("infinite", labels=labels, scale=2.0, dtype=torch.float32)
    p = probabilities(path, 1.0).view(2, -1).sum(0)
    v, y = torch.zeros(4000, 3, device=device), torch.zeros(4000, dtype=torch.long, device=device) if labels else None
    v, y = Frozen.of(path.machine.to(device=device)).gibbs(v, y, uniform_noise(4, 0, device=device), 60)
    code = (v.long() * torch.tensor([4, 2, 1], device=device)).sum(1) + (0 if y is None else 8 * y)
    assert chisquare(torch.bincount(code, minlength=len(p)).cpu().numpy(), 4000 * p.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("labels", [0, 2])
def test_brackets_hold_the_exact_value(depth, labels):
    small = random_small(
        np.random.default_rng(21), depth=depth, labels=labels, n_visible=10, n_hidden=14, scale=1.0, beta=1.01
    )
    machine = as_machine(small)
    exact = partition.exact(machine).value
    found = estimate(machine, seed=1, tol=0.5, budget=150)
    assert found.lower <= exact <= found.upper
    assert found.reliable, found.reason
    assert abs(found.value - exact) < 0.2
    assert {trial.n_points for trial in found.trials} == {150}


def noise_trap(n_visible=16, n_hidden=60, strength=4.0) -> Machine:
    """Units that together favour v = 1 by a wide margin and cost it dearly elsewhere: z small is a trap for noise."""
    weights = torch.full((n_hidden, n_visible), strength, dtype=torch.float64)
    hidden_bias = torch.full((n_hidden,), -strength * (n_visible - 1.0), dtype=torch.float64)
    return Machine(
        weights=weights,
        hidden_bias=hidden_bias,
        visible_bias=torch.zeros(n_visible, dtype=torch.float64),
        order=torch.arange(n_hidden),
        size=torch.tensor(n_hidden),
        depth=Infinite(1.01),
    )


def test_a_trap_for_free_z_is_seen():
    """Free z stays with the noise and flatters the likelihood by many nats; the estimate of record must not."""
    machine = noise_trap()
    exact = partition.exact(machine).value
    free = Path("naive", Frozen.of(machine), Base.usual(machine.visible_bias, machine.capacity))
    noise = uniform_noise(0, dtype=torch.float64)
    naive = ais.forward(free, torch.linspace(0, 1, 200, dtype=torch.float64), 50, noise)
    assert naive.value < exact - 5
    found = estimate(machine, seed=0, budget=1200)
    assert found.reliable
    assert found.lower <= exact <= found.upper


def test_disagreement_is_not_reliable():
    _, path = path_of("infinite")
    schedule = torch.linspace(0, 1, 4, dtype=torch.float64)
    low = ais.forward(path, schedule, 100, uniform_noise(0, dtype=torch.float64))
    shifted = replace(low, value=low.value + 3.0)
    found = verdict([Round(4, 100, [low], [("chains", shifted)], 0.5, low.states.v_BD)], ["test"], 0.1)
    assert not found.reliable
    assert "nats apart" in found.reason
    assert found.lower < low.value < shifted.value < found.upper


def a_round(n_points, forward, reverse):
    """A round with these values; each a number, or (value, standard error, effective sample size)."""
    _, path = path_of("infinite")
    schedule = torch.linspace(0, 1, 4, dtype=torch.float64)
    one = ais.forward(path, schedule, 100, uniform_noise(0, dtype=torch.float64))

    def at(said):
        value, stderr, ess = said if isinstance(said, tuple) else (said, 0.01, 90.0)
        return replace(one, n_points=n_points, value=value, stderr=stderr, ess=ess)

    return Round(n_points, 100, [at(v) for v in forward], [("chains", at(v)) for v in reverse], 0.5, one.states.v_BD)


def test_runs_in_one_place_count_together_by_their_work():
    """Where each has its luck, the mean of Z has less: 4 standard errors of it reach less far than those of any."""
    rounds = [a_round(400, [(100.02, 0.04, 60.0)], [100.2]), a_round(800, [(100.0, 0.04, 60.0)], [100.2])]
    found = verdict(rounds, ["test"], 0.1)
    third, rest = math.exp(0.02) / 3, 2 / 3
    assert found.value == pytest.approx(100 + math.log(third + rest))
    assert found.stderr == pytest.approx(0.04 * math.hypot(third, rest) / (third + rest))
    assert 60 < found.ess < 200
    assert found.lower == pytest.approx(found.value - record.ERRORS * found.stderr)


def test_runs_of_different_lengths_together_are_unbiased_and_know_their_error():
    """300 times two short runs: the mean of their Z is the machine's, and their spread is what they say."""
    _, path = path_of("infinite", labels=2, scale=1.5)
    log_z = partition.exact(path.machine).value
    noise, found = uniform_noise(5, dtype=torch.float64), []
    for _ in range(300):
        runs = [
            ais.forward(path, torch.linspace(0, 1, n_points, dtype=torch.float64), n_chains, noise)
            for n_points, n_chains in ((3, 50), (6, 30))
        ]
        found.append(ais.together(runs))
    off = np.expm1([one.value - log_z for one in found])
    assert abs(off.mean()) < 4 * off.std() / math.sqrt(300)
    assert off.std() == pytest.approx(math.sqrt(np.mean([one.stderr**2 for one in found])), rel=0.2)


def test_an_earlier_larger_forward_value_is_believed_and_doubted():
    found = verdict([a_round(400, [100.0], [101.0]), a_round(800, [90.0], [90.1])], ["test"], 0.1)
    assert found.value == 100.0
    assert found.lower <= found.value <= found.upper
    assert not found.reliable


def test_states_that_are_known_bound_ln_z_from_below():
    rounds = [a_round(400, [100.0], [100.05])]
    assert verdict(rounds, ["test"], 0.1, known=90.0) == verdict(rounds, ["test"], 0.1)
    closer = verdict(rounds, ["test"], 0.1, known=99.99)
    assert closer.lower == 99.99
    assert closer.value == 100.0
    assert closer.reliable


@pytest.mark.parametrize(("known", "upper"), [(103.0, 105.96), (100.29, 100.54)])
def test_runs_that_found_less_than_known_states_weigh_are_not_believed(known, upper):
    """Summed, not estimated: what runs found less they have missed, whatever the ways back allow."""
    missed = verdict([a_round(400, [100.0], [100.3])], ["test"], 0.1, known=known)
    assert missed.value == missed.lower == known
    assert missed.upper == pytest.approx(upper)  # as far above as the forward value, with its errors, is below
    assert missed.stderr == pytest.approx(known - 100.0)
    assert not missed.reliable
    assert f"states that are known weigh {known:.2f} alone" in missed.reason


def test_forward_runs_above_the_ways_back_leave_room():
    found = verdict([a_round(400, [100.0], [101.0]), a_round(800, [90.0], [90.1])], ["test"], 0.1)
    assert found.upper == pytest.approx(2 * (100 - record.ERRORS * 0.01) - (90.1 + record.ERRORS * 0.01))
    assert not found.reliable


@pytest.mark.parametrize("with_examples", [False, True])
def test_an_estimate_is_never_below_the_states_it_has_found_and_goes_on(with_examples, monkeypatch):
    """Runs along paths that all miss a state are no reason to believe less than it weighs, nor to stop."""
    machine = path_of("infinite")[1].machine
    weight, real = 3.0 + partition.exact(machine).value, record.modes.heaviest

    counted = []

    def heaviest(machine, *sets, **options):
        counted.append(len(sets))
        return real(machine, *sets, **options)

    monkeypatch.setattr(record.modes, "heaviest", heaviest)
    examples = torch.ones(3, machine.n_visible, dtype=torch.uint8) if with_examples else None
    options = {"examples": examples, "seed": 0, "budget": 2000}
    usual = estimate(machine, **options)
    assert counted[-1] == 1 + with_examples
    assert usual.reliable
    assert len(usual.trials) < 7  # a round or two
    monkeypatch.setattr(record.modes, "log_weight", lambda machine, states_BD: weight)
    found = estimate(machine, **options)
    assert found.value == found.lower == weight - record.ROUNDING
    assert not found.reliable
    assert len(found.trials) >= 3 * 4


def test_states_that_are_all_known_leave_room_for_rounding():
    """Parameters that float32 rounds, and every state among the examples: the bracket holds the truth all the same."""
    for seed in range(5):
        machine = path_of("infinite", seed=seed, scale=2.0)[1].machine
        examples = torch.tensor(visible_states(machine.n_visible), dtype=torch.uint8)
        found, exact = estimate(machine, examples=examples, seed=seed, budget=200), partition.exact(machine).value
        assert exact - 2 * record.ROUNDING < found.lower < exact < found.upper


def test_the_largest_forward_value_less_its_errors_is_believed_whatever_its_path_and_length():
    noisy = (100.04, 0.05, 40.0)  # larger, but not by more than its errors
    found = verdict([a_round(400, [100.02, noisy], [100.1]), a_round(800, [99.95, 99.99], [100.05])], ["test"], 0.1)
    assert found.value == 100.02
    assert found.lower == pytest.approx(100.02 - record.ERRORS * 0.01)
    assert found.reliable


@pytest.mark.parametrize(("value", "believed"), [(103.0, 99.99), (105.0, 105.0)])
def test_a_value_of_a_handful_of_chains_is_not_believed_unless_it_is_far_above(value, believed):
    """Four standard errors of one chain are 4 nats: by more than that a value exceeds ln Z once in fifty times."""
    rounds = [a_round(400, [(value, 1.0, 1.0), 99.9], [100.1]), a_round(800, [99.99, 99.9], [100.05])]
    found = verdict(rounds, ["test"], 0.1)
    assert found.value == believed
    assert found.lower <= found.value <= found.upper
    assert found.reliable == (believed == 99.99)
    if not found.reliable:
        assert "effective sample size is 1.0" in found.reason
        assert "forward runs gave more than the last ones back allow" in found.reason


@pytest.mark.parametrize("families", [None, torch.arange(40)])
def test_standard_errors_of_chains_are_those_of_their_mean(families):
    log_w = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = log_w.exp()
    stderr, n = ais._stderr(log_w, families)
    assert n == 40
    assert stderr == pytest.approx(float(w.std() / w.mean() / math.sqrt(40)), rel=1e-12)


def test_standard_errors_of_copies_are_those_of_the_originals():
    """Twice the same weights say no more than once; in families, they do not pretend to."""
    log_w = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    once, n = ais._stderr(log_w, None)
    twice, families = ais._stderr(log_w.repeat(5), torch.arange(40).repeat(5))
    assert (n, families) == (40, 40)
    assert twice == pytest.approx(once, rel=1e-12)
    assert ais._stderr(log_w.repeat(5), None)[0] < 0.5 * once


def test_standard_errors_of_sticky_chains_cover_what_repeats_show():
    """Means over correlated samples of 20 chains, again and again: their spread is what families say."""
    generator = torch.Generator().manual_seed(2)
    family = torch.arange(20).repeat_interleave(30)
    logs = torch.randn(400, 20, 1, dtype=torch.float64, generator=generator)
    logs = 0.3 * (logs + 0.5 * torch.randn(400, 20, 30, dtype=torch.float64, generator=generator))
    rows = logs.flatten(1)
    spread = float((torch.logsumexp(rows, 1)).std())
    said = torch.tensor([ais._stderr(row, family)[0] for row in rows])
    assert float(said.mean()) == pytest.approx(spread, rel=0.1)
    assert ais._stderr(rows[0], None)[0] < 0.5 * spread


# -- the estimators' log_partition --------------------------------------------------------------------------


def model_of(depth=InfiniteRBM):
    rng = np.random.default_rng(2)
    model = depth.from_parameters(rng.normal(size=(4, 5)), rng.normal(size=4), rng.normal(size=5))
    return model.set_params(device="cpu")  # a GPU has more chains


def test_annealing_never_enumerates(monkeypatch):
    exact = model_of().log_partition("exact").value

    def forbidden(*_):
        raise AssertionError("enumerated")

    for name in ("exact", "sum_over_visible", "sum_over_hidden", "_log_sum"):
        monkeypatch.setattr(partition, name, forbidden)
    found = model_of().log_partition("ais", random_state=0, budget=150)
    assert found.method == "ais"
    assert found.lower <= exact <= found.upper


def rounds_of(found):
    return list(dict.fromkeys((trial.n_points, trial.n_chains) for trial in found.trials))


@pytest.mark.parametrize("model", [model_of(), model_of(RBM)], ids=["infinite", "fixed"])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_the_smallest_budgets_are_enough_for_a_bracket(model, budget):
    found = model.log_partition("ais", random_state=0, budget=budget, tol=1e-9)
    assert math.isfinite(found.value)
    assert found.lower <= found.value <= found.upper
    assert rounds_of(found)[0] == (max(2, budget), 100)


def test_pilots_choose_again_where_bases_are_new_and_then_no_more(monkeypatch):
    """Whatever path leads them in a round goes on in it."""
    machine, piloted = as_machine(random_small(np.random.default_rng(0), depth="infinite")), []
    real = ais.pilot

    def ranked(path, n_chains, noise):
        found = real(path, n_chains, noise)
        lucky = len(piloted) % 6 == len(piloted) // 6  # the first of the first six, the second of the next, the third
        piloted.append(path.name)
        return found._replace(estimate=replace(found.estimate, value=found.estimate.value + 1000.0 * lucky))

    monkeypatch.setattr(ais, "pilot", ranked)
    found = estimate(machine, tol=1e-9, budget=8 * record.FIRST_POINTS)
    names = piloted[:6]
    assert piloted == names * (1 + record.REFITS)
    first = [t.name for t in found.trials if t.side == "forward"][:: record.KEPT_PATHS]
    assert first == [names[0], names[1], names[2], names[2]]


@pytest.mark.parametrize("points", [10, 400])
def test_chains_and_examples_mix_for_as_many_sweeps_as_the_path_has_points(points, monkeypatch):
    monkeypatch.setattr(record, "FIRST_POINTS", points)
    machine, sweeps = as_machine(random_small(np.random.default_rng(0), depth="infinite")), []
    real = Frozen.gibbs

    def counted(self, v, y, noise, n_steps):
        sweeps.append(n_steps)
        return real(self, v, y, noise, n_steps)

    monkeypatch.setattr(Frozen, "gibbs", counted)
    estimate(machine, examples=torch.ones(3, machine.n_visible), tol=1e-9, budget=points)
    assert sweeps[1:] == 2 * [max(record.SWEEPS, points)]  # the first is of the search for modes


def test_work_doubles_until_the_budget_is_spent():
    found = model_of().log_partition("ais", random_state=0, budget=700, tol=1e-9)
    work = [points * chains for points, chains in rounds_of(found)]
    assert work == [150 * 100, 300 * 100, 600 * 100]


def test_tempered_samples_count_as_their_ladders():
    found = model_of().log_partition("ais", random_state=0, budget=150)
    ladders = [trial.ess for trial in found.trials if trial.name == "tempering"]
    assert ladders
    assert max(ladders) <= 100 // record.LADDER + 1e-9


@pytest.mark.parametrize(
    ("rounds", "longer"),
    [
        ([(4, 90.0, 0.0)], False),  # most chains count, and both sides agree
        ([(4, 10.0, 0.0)], True),
        ([(4, 90.0, 0.5)], True),  # the sides differ by more than their errors
        ([(4, 10.0, 0.0), (8, 12.0, 0.0)], False),  # longer paths have not helped
        ([(4, 10.0, 0.0), (8, 20.0, 0.0)], True),
        ([(4, 90.0, 0.5), (8, 90.0, 0.2)], True),
        ([(4, 90.0, 0.5), (8, 90.0, 0.4)], False),
        ([(8, 10.0, 0.0), (8, 10.0, 0.0)], True),  # more chains came last
    ],
)
def test_points_double_where_that_helps_and_chains_elsewhere(rounds, longer):
    seen = [a_round(n, [(100.0, 0.01, ess)], [(100.0 + gap, 0.01, 50.0)]) for n, ess, gap in rounds]
    assert record._longer_pays(seen) == longer


def test_a_path_of_a_few_points_is_not_reliable():
    assert verdict([a_round(100, [100.0], [100.0])], ["test"], 0.1).reliable
    found = verdict([a_round(99, [100.0], [100.0])], ["test"], 0.1)
    assert not found.reliable
    assert found.reason.startswith("99 points are too few;")


def test_a_wide_tolerance_ends_the_first_round():
    found = model_of().log_partition("ais", random_state=0, budget=700, tol=5.0)
    assert rounds_of(found) == [(150, 100)]


@pytest.mark.parametrize(("tol", "says"), [(0.1, "estimates stay 2.08 nats apart"), (5.0, "as wide as tol=5 allows")])
def test_a_wide_bracket_is_not_reliable_whoever_asked_for_it(tol, says):
    found = verdict([a_round(400, [100.0], [102.0])], ["test"], tol)
    assert not found.reliable
    assert says in found.reason


@pytest.mark.parametrize(("gap", "spent"), [(0.0, False), (0.2, True)])
def test_a_bracket_above_its_tolerance_says_that_the_budget_is_spent(gap, spent):
    found = verdict([a_round(400, [100.0], [100.0 + gap])], ["test"], 0.1)
    assert found.reliable
    assert ("above tol=0.1: the budget is spent" in found.reason) == spent


def test_a_forward_value_above_the_bracket_is_named():
    noisy = (102.0, 0.9, 1.2)  # larger, but not by more than its errors
    found = verdict([a_round(400, [100.0, noisy], [100.1])], ["test"], 0.1)
    assert found.value == 100.0
    assert "102.00 along the test, of 1.2 effective chains, is passed over" in found.reason
    assert "100.00 along" not in found.reason


@pytest.mark.parametrize("tol", [0, -0.1, math.nan, math.inf, "narrow", None])
@pytest.mark.parametrize("method", ["ais", "exact", "auto"])
def test_a_bad_tolerance_is_named(method, tol):
    with pytest.raises(ValueError, match=r"tol must be a finite number > 0, got"):
        model_of().log_partition(method, tol=tol)


@pytest.mark.parametrize("budget", [0, -5, 2.5, True])
def test_a_bad_budget_is_named(budget):
    with pytest.raises(ValueError, match=r"budget must be a whole number >= 1, got"):
        model_of().log_partition("ais", budget=budget)


@pytest.mark.parametrize(("scale", "dtype"), [(1.0, torch.float32), (1e7, torch.float64)])
@pytest.mark.parametrize("large", ["weights", "label_weights"])
@pytest.mark.parametrize("start", [torch.float32, torch.float64])
def test_chains_run_in_float64_where_float32_would_round_too_much(scale, dtype, large, start):
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite", labels=2), dtype=start)
    machine = replace(machine, **{large: getattr(machine, large) * scale})
    assert record._working_copy(machine).weights.dtype == dtype


def test_a_large_penalty_is_rounding_too():
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"), dtype=torch.float32)
    machine = replace(machine, depth=Infinite(1e6))
    assert record._working_copy(machine).weights.dtype == torch.float64


@pytest.mark.parametrize("method", [partition.exact, record.estimate])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("name", ["weights", "hidden_bias", "visible_bias"])
def test_a_machine_that_diverged_has_no_verdict(name, value, method):
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"))
    bad = getattr(machine, name).clone()
    bad.view(-1)[0] = value
    with pytest.raises(ValueError, match=f"{name} must hold finite numbers"):
        method(replace(machine, **{name: bad}))


def test_no_examples_are_as_none():
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"))
    found = [record.estimate(machine, examples=e, budget=2) for e in (None, torch.zeros(0, machine.n_visible))]
    assert found[0] == found[1]


@pytest.mark.parametrize("method", [partition.exact, record.estimate])
def test_a_machine_whose_energies_overflow_has_no_verdict(method):
    machine = as_machine(random_small(np.random.default_rng(0), depth="infinite"))
    with pytest.raises(ValueError, match="parameters of this machine overflow"):
        method(replace(machine, weights=machine.weights * 1e307))


def test_no_verdict_is_good_of_what_is_not_a_number():
    assert not verdict([a_round(400, [math.nan], [100.0])], ["test"], 0.1).reliable
    assert not verdict([a_round(400, [100.0], [math.nan])], ["test"], 0.1).reliable
