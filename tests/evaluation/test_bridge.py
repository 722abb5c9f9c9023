"""Both sides of a path at once: moves turned round in time, sums that are known, sides that contradict each other."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from annealed import DTYPES, code_of, every_state, exact_samples, path_of
from irbm.evaluation import ais, partition
from irbm.evaluation import estimate as record
from irbm.evaluation.bridge import _kinds, _pooled, bridge
from irbm.evaluation.estimate import Bracket, Round
from irbm.evaluation.paths import Path
from irbm.ops.noise import uniform_noise
from machines import DEPTHS

LOG_Z = 7.0  # of sides that are made up


def run_of(log_weights, family=None):
    """An estimate with these log-weights, of a path and states that nobody asks for."""
    _, path = path_of("infinite")
    one = ais.forward(path, torch.linspace(0, 1, 3, dtype=torch.float64), 2, uniform_noise(0, dtype=torch.float64))
    return replace(one, log_weights=torch.as_tensor(log_weights, dtype=torch.float64), family_B=family)


def sides(n_forward, n_back, spread, seed=0, log_z=LOG_Z):
    """Normal log-weights that obey p_back(x) = p_forward(x) e^x / Z: of means ln Z -+ spread^2 / 2."""
    draw = np.random.default_rng(seed)
    x = draw.normal(log_z - spread**2 / 2, spread, n_forward)
    y = draw.normal(log_z + spread**2 / 2, spread, n_back)
    return run_of(x), run_of(-y)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize("tau", [0.2, 0.6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_move_back_is_a_move_with_time_turned_round(depth, labels, tau, dtype):
    """In balance pairs (before, after) are as frequent as the move back's (after, before)."""
    _, path = path_of(depth, labels, dtype=dtype, scale=2.0)
    noise, n = uniform_noise(11, dtype=dtype), 30_000
    heat, n_states = path.at(torch.tensor(tau, dtype=torch.float64)), len(every_state(path).v_BD)
    pairs = []
    for back in (False, True):
        before = exact_samples(path, tau, n, noise)
        after = path.step(before, heat, heat, noise, back=back)[1]
        first, second = (code_of(path, states) for states in ((after, before) if back else (before, after)))
        pairs.append(torch.bincount(first * n_states + second, minlength=n_states**2).numpy())
    table = np.array(pairs)
    rare = table.sum(0) < 10
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)]) if table[:, rare].sum() else table[:, ~rare]
    assert chi2_contingency(table).pvalue > 1e-4


def test_chains_come_back_by_moves_turned_round(monkeypatch):
    taken, real = [], Path.step

    def step(self, states, here, there, noise, *, back=False):
        taken.append((back, float(there.tau - here.tau) < 0))
        return real(self, states, here, there, noise, back=back)

    monkeypatch.setattr(Path, "step", step)
    _, path = path_of("infinite")
    schedule, noise = torch.linspace(0, 1, 4, dtype=torch.float64), uniform_noise(0, dtype=torch.float64)
    ends = ais.forward(path, schedule, 10, noise).states
    ais.reverse(path, schedule, ends, noise)
    assert taken == 3 * [(False, False)] + 3 * [(True, True)]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("way", ["deep", "clamped"])
def test_both_sides_of_a_short_path_agree_with_enumeration(depth, way):
    """Three points between parts far apart, where moves that are not turned round show, and exact samples."""
    _, path = path_of(depth, labels=2, way=way, scale=2.0)
    base = path.base._replace(bias_MD=4 * path.base.bias_MD, answer_MK=2 * path.base.answer_MK)
    path, n = replace(path, base=base), 60_000
    log_z = partition.exact(path.machine).value
    schedule, noise = torch.linspace(0, 1, 4, dtype=torch.float64), uniform_noise(3, dtype=torch.float64)
    samples = exact_samples(path, 1.0, n, noise)
    there = ais.forward(path, schedule, n, noise)
    back = ais.reverse(path, schedule, path.of_machine(samples.v_BD, samples.y_B, noise), noise)
    found = bridge(there, [back], 4.0)
    assert found.stderr < 0.02
    assert abs(found.value - log_z) < 4 * found.stderr
    assert found.shifts_agree


@pytest.mark.parametrize(("n_forward", "n_back"), [(400, 400), (400, 1200), (900, 300)])
def test_what_both_sides_have_in_common_says_more_than_either(n_forward, n_back):
    """Log-weights with a spread of 3 nats: either side waits for a chain in a hundred."""
    found = [bridge(*_pair(n_forward, n_back, seed), 4.0) for seed in range(100)]
    off, errors = np.array([b.value - LOG_Z for b in found]), np.array([b.stderr for b in found])
    assert abs(off.mean()) < 4 * off.std() / 10
    assert off.std() == pytest.approx(math.sqrt((errors**2).mean()), rel=0.3)
    alone = [ais.log_mean(_pair(n_forward, n_back, seed)[0].log_weights) - LOG_Z for seed in range(100)]
    assert off.std() < 0.3 * math.sqrt(np.square(alone).mean())
    assert sum(b.low <= LOG_Z <= b.high for b in found) == 100
    assert sum(not b.shifts_agree for b in found) <= 20  # two errors either way, of two looks: some nine by chance


def _pair(n_forward, n_back, seed, spread=3.0):
    there, back = sides(n_forward, n_back, spread, seed)
    return there, [back]


def test_the_best_c_is_the_one_of_least_error():
    there, back = sides(400, 1200, 2.0)
    both = _pooled(_kinds(there, [back], []))
    c = both.best()
    looks = {by: both.look(c + by) for by in (-1.0, -0.5, 0.0, 0.5, 1.0)}
    assert min(looks, key=lambda by: looks[by].stderr) == 0.0
    assert c == pytest.approx(looks[0.0].value - math.log(3), abs=1e-9)


@pytest.mark.parametrize("gap", [1.0, 3.0, 10.0])
def test_sides_that_are_trapped_apart_are_noticed(gap):
    """Narrow log-weights that differ, which no machine has: either side has found something else, or nothing."""
    draw = np.random.default_rng(0)
    there, back = run_of(draw.normal(0, 0.1, 400)), run_of(-draw.normal(gap, 0.1, 400))
    found = bridge(there, [back], 4.0)
    assert not found.shifts_agree
    assert found.high - found.low > 0.5 * min(gap, 3.0)
    assert _round(there, back, found).definite is None


def _round(there, back, both):
    return Round(500, 400, [there], [("chains", back)], 0.5, there.states.v_BD, both)


def test_a_mode_that_forward_chains_never_meet_counts_by_those_that_come_back():
    """Half of all weight is in a mode of which no path leads there: the other half alone would be ln 2 too low."""
    draw = np.random.default_rng(1)
    met, missed = draw.normal(LOG_Z - math.log(2) + 0.5, 1.0, 2000), draw.normal(LOG_Z + 30, 1.0, 2000)
    there = run_of(draw.normal(LOG_Z - math.log(2) - 0.5, 1.0, 4000))
    found = bridge(there, [run_of(-np.concatenate([met, missed]))], 4.0)
    assert found.value == pytest.approx(LOG_Z, abs=4 * found.stderr)
    assert found.stderr < 0.05


def descended(seed, n=1600, slow=1.0, fast=1.0):
    """Sides of a machine with modes that never mix: starts are drawn by the weights of forward chains, and stay.

    A chain's log-weight is that of its mode, of mean -slow^2 / 2, and of its way, of mean -+fast^2 / 2; ln Z is 0.
    """
    draw = np.random.default_rng(seed)
    mode = draw.normal(-(slow**2) / 2, slow, n)
    x = mode + draw.normal(-(fast**2) / 2, fast, n)
    rows = draw.choice(n, n, p=np.exp(x) / np.exp(x).sum())
    return run_of(x), run_of(-(mode[rows] + draw.normal(fast**2 / 2, fast, n)), torch.from_numpy(rows))


def test_errors_know_that_starts_descend_from_forward_chains():
    """Where nothing mixes, both sides have the same luck: taken for independent, errors would be too small by half."""
    found, alone = [], []
    for seed in range(200):
        there, back = descended(seed)
        found.append(bridge(there, [back], 4.0))
        alone.append(bridge(there, [replace(back, family_B=None)], 4.0))
    for bridges, least, most in ((found, 0.85, 1.2), (alone, 1.35, 3.0)):
        assert least < np.std([b.value / b.stderr for b in bridges]) < most
    assert sum(b.low <= 0 <= b.high for b in found) >= 199


def test_copies_of_those_that_come_back_say_no_more_than_once():
    there, back = descended(0)
    copies = replace(back, log_weights=back.log_weights.repeat(8), family_B=back.family_B.repeat(8))
    assert bridge(there, [copies], 4.0)[:3] == pytest.approx(bridge(there, [back], 4.0)[:3], rel=1e-9)
    assert bridge(there, [back, back], 4.0)[:3] == pytest.approx(bridge(there, [back], 4.0)[:3], rel=1e-9)
    assert bridge(there, [back], 4.0, [copies]).low == pytest.approx(bridge(there, [back], 4.0, [back]).low)


@pytest.mark.parametrize("apart", [False, True])
def test_a_kind_of_start_that_disagrees_is_noticed(apart):
    there, back = sides(4000, 4000, 1.0)
    _, other = sides(4000, 4000, 1.0, seed=1)
    odd = replace(other, log_weights=other.log_weights - 1.0)
    kinds = (([back], [other]), ([back], [odd])) if apart else (([back, other], []), ([back, odd], []))
    same, found = (bridge(there, descended, 4.0, others) for descended, others in kinds)
    assert same.starts_agree
    assert not found.starts_agree
    assert found.high - found.low > 0.4 > 2 * (same.high - same.low)
    assert (found.value == pytest.approx(same.value, abs=0.1)) == apart  # of which the value knows nothing


def believed_and_wrong(n, repeats, *off):
    """Of rounds whose two kinds of start and the kind that is asked are so far off: in how many the range misses ln Z,
    of those in which it is half a nat at most."""
    found = []
    for seed in range(repeats):
        there, back = sides(n, n, 1.5, seed)
        others = [sides(n, n, 1.5, seed + more)[1] for more in (1000, 2000)]
        backs = [replace(e, log_weights=e.log_weights - by) for e, by in zip([back, *others], off, strict=True)]
        found.append(_round(there, back, bridge(there, backs[:2], 4.0, backs[2:])).definite)
    believed = [b for b in found if b and b.high - b.low <= 0.5]
    return len(believed), sum(not b.low <= LOG_Z <= b.high for b in believed)


@pytest.mark.parametrize("by", [0.15, -0.15])
def test_a_range_reaches_beyond_what_other_starts_say(by):
    """Starts of the value that are off, and others that are right: what is told is wide enough for both."""
    believed, wrong = believed_and_wrong(1600, 60, by, by, 0.0)
    assert believed > 15
    assert wrong <= 1


@pytest.mark.parametrize("by", [1.0, -1.0])
def test_a_kind_of_start_that_is_far_off_leaves_half_a_nat_and_more(by):
    assert believed_and_wrong(1600, 20, by, by, 0.0) == (0, 0)
    assert believed_and_wrong(1600, 20, 0.0, 0.0, by) == (0, 0)


@pytest.mark.parametrize("by", [0.4, -0.4])
def test_starts_that_are_all_off_are_seen_by_other_c(by):
    """Of thousands of chains, with a spread of two and a half nats: three times what other c show would not do."""
    found = []
    for seed in range(20):
        there, back = sides(12_800, 12_800, 2.5, seed)
        found.append(bridge(there, [replace(back, log_weights=back.log_weights - by)], 4.0))
    assert sum(b.shifts_agree for b in found) <= 1


@pytest.mark.parametrize("by", [0.3, -0.3])
def test_what_no_error_explains_counts_three_times(by):
    """Of thousands of chains errors are hundredths; as far as a kind of start is off, others may be, unseen."""
    there, back = sides(40_000, 40_000, 1.0)
    off = replace(back, log_weights=back.log_weights - by)
    found = bridge(there, [back], 4.0, [off])
    end = found.high if by > 0 else found.low
    assert abs(end - found.value) == pytest.approx(3 * abs(by) / 2, rel=0.1)
    assert found.shifts_agree
    assert not found.starts_agree


def test_a_range_reaches_two_errors_past_what_may_be_chance():
    there, back = sides(4000, 4000, 1.5)
    few = sides(12, 12, 1.5, seed=1)[1]
    alone, asked = bridge(there, [back], 4.0), bridge(there, [back], 4.0, [few])
    own, other = (kind.look(kind.best()) for kind in _kinds(there, [back], [few]))
    by, error = other.differs(own)
    assert abs(by) < 2 * error
    assert asked.low == pytest.approx(min(alone.low, alone.value + by - 2 * error))
    assert asked.high == pytest.approx(max(alone.high, alone.value + by + 2 * error))
    assert asked.high - asked.low > 1.2 * (alone.high - alone.low)


def test_kinds_of_start_are_told_apart_whatever_their_order():
    there, back = sides(400, 400, 1.5)
    other = sides(400, 400, 1.5, seed=1)[1]
    first, second = (bridge(there, backs, 4.0) for backs in ([back, other], [other, back]))
    assert first == pytest.approx(second, rel=1e-9)


# -- the bracket --------------------------------------------------------------------------------------------------


def estimates(forward, back):
    """A round of estimates with these values and errors, and both sides at once from the same log-weights."""
    there, coming = sides(4000, 4000, 2.0)
    both = bridge(there, [coming], 4.0)
    there = replace(there, value=forward[0], stderr=forward[1], ess=100.0)
    coming = replace(coming, value=back[0], stderr=back[1], ess=100.0)
    return _round(there, coming, both), both


def test_both_sides_at_once_narrow_the_bracket():
    one, both = estimates((6.9, 0.2), (7.3, 0.2))
    found = Bracket.of([one], -math.inf)
    assert (found.value, found.stderr, found.ess) == both[:3]
    assert (found.lower, found.upper) == (both.low, max(both.high, 6.9 + 0.2))
    assert not found.contradicted
    without = Bracket.of([replace(one, both=None)], -math.inf)
    assert without.lower < found.lower < found.upper < without.upper


def test_no_forward_value_is_above_what_both_sides_allow_by_its_error_alone():
    one, both = estimates((6.95, 0.3), (7.3, 0.2))
    assert both.high < 7.25
    assert Bracket.of([one], -math.inf).upper == pytest.approx(7.25)


def test_precise_runs_on_either_side_narrow_what_both_allow():
    one, both = estimates((7.0, 0.005), (7.0, 0.005))
    assert both.high > 7.05
    assert Bracket.of([one], -math.inf).upper == pytest.approx(7.02)


def test_a_precise_forward_value_raises_the_lower_end():
    one, both = estimates((LOG_Z + 0.02, 0.01), (LOG_Z + 0.05, 0.02))
    found = Bracket.of([one], -math.inf)
    assert found.lower == pytest.approx(max(LOG_Z - 0.02, both.low))
    assert found.lower <= found.value <= found.upper


def test_a_value_that_known_states_raise_has_that_error():
    one, both = estimates((6.9, 0.2), (7.3, 0.2))
    found = Bracket.of([one], both.value + 0.08)
    assert (found.value, found.stderr) == pytest.approx((both.value + 0.08, 0.08))


@pytest.mark.parametrize(("forward", "back", "known"), [(8.5, 9.0, -math.inf), (6.9, 7.2, 8.0), (5.0, 5.2, -math.inf)])
def test_both_sides_at_once_against_all_else_are_not_believed(forward, back, known):
    """A forward value, or known states, above them; or runs back that allow less."""
    one, both = estimates((forward, 0.05), (back, 0.05))
    found = Bracket.of([one], known)
    assert found.contradicted
    assert found.upper - found.lower > both.high - both.low
    assert not record.verdict([one], ["test"], 0.1, known).reliable


def test_what_contradicts_itself_reaches_as_far_as_both_sides_say():
    """Runs back allow 8.1 at most, where both sides at once say 9; and 6.7, where a forward run has 6.96 at least."""
    (above,) = rounds_of((9.0, 0.1, 100.0, True))
    found = Bracket.of([above], -math.inf)
    assert found.contradicted
    assert found.upper >= 9.1
    one, _ = estimates((7.0, 0.01), (6.5, 0.05))
    wide = rounds_of((6.9, 0.24, 100.0, True))[0].both
    assert Bracket.of([replace(one, both=wide)], -math.inf).contradicted


def test_rounds_that_are_definite_and_far_apart_are_not_believed():
    there, coming = sides(4000, 4000, 1.0)
    low, high = (
        _round(*(replace(e, value=v, stderr=0.1, ess=100.0) for e, v in ((there, 6.9), (coming, 7.3))), both)
        for both in (bridge(there, [coming], 4.0), bridge(*_moved(there, coming, 0.3), 4.0))
    )
    assert low.definite
    assert high.definite
    for rounds in ([low, high], [high, low]):
        found = record.verdict(rounds, ["test"], 0.1)
        assert not found.reliable
        assert "than in a round before" in found.reason
        assert found.upper >= high.both.high
    assert record.verdict([low, low], ["test"], 0.1).reliable


def rounds_of(*told):
    """Rounds of doubling work, whose both sides say (value, half the width) by so many chains, which may not agree."""
    clear, both = estimates((6.9, 0.2), (7.3, 0.2))
    made = []
    for n, (value, half, ess, agrees) in enumerate(told):
        said = both._replace(value=value, ess=ess, low=value - half, high=value + half, shifts_agree=agrees)
        made.append(replace(clear, n_points=500 * 2**n, both=said))
    return made


CLEAR = (7.0, 0.1, 100.0, True)


@pytest.mark.parametrize("last", [(7.2, 0.6, 12.0, True), (7.0, 0.1, 100.0, False), (math.nan, 0.1, 100.0, False)])
def test_what_the_last_round_leaves_open_no_earlier_one_settles(last):
    """Few chains; other c that say something else; numbers that are none."""
    rounds = rounds_of(CLEAR, last)
    assert Bracket.of(rounds[:1], -math.inf).by_both
    assert Bracket.of(rounds, -math.inf) == Bracket.of([replace(r, both=None) for r in rounds], -math.inf)
    assert not record.verdict(rounds, ["test"], 0.1).reliable
    assert record.verdict(rounds[::-1], ["test"], 0.1).reliable != math.isnan(last[0])


@pytest.mark.parametrize("first", [(7.05, 0.02), (7.05, 0.2), (6.95, 0.02)])
def test_the_last_round_counts(first):
    found = Bracket.of(rounds_of((*first, 100.0, True), CLEAR), -math.inf)
    assert (found.value, found.lower, found.upper) == pytest.approx((7.0, 6.9, 7.1))


@pytest.mark.parametrize(
    ("value", "points", "chains", "reliable"),
    [(6.5, 2, 2, False), (6.5, 2, 3, True), (6.5, 5, 1, True), (7.5, 2, 2, False), (7.5, 5, 1, False)],
)
def test_less_than_a_quarter_of_the_work_may_have_found_less_but_not_more(value, points, chains, reliable):
    first, last = rounds_of((value, 0.1, 100.0, True), CLEAR)
    last = replace(last, n_points=points * first.n_points, n_chains=chains * first.n_chains)
    assert record.verdict([first, last], ["test"], 0.1).reliable == reliable


def test_the_reason_names_both_sides_only_where_they_speak():
    one, _ = estimates((8.5, 0.05), (7.0, 0.05))
    with_both, alone = (record.verdict([r], ["test"], 0.1).reason for r in (one, replace(one, both=None)))
    assert "both sides together gave something else" in with_both
    assert "forward runs gave more" in alone


def test_starts_that_differ_ask_for_more_points():
    one, both = estimates((6.9, 0.2), (7.3, 0.2))
    assert not one.is_apart
    assert replace(one, both=both._replace(starts_agree=False)).is_apart
    assert replace(one, both=both._replace(shifts_agree=False)).is_apart


def test_a_number_that_is_none_is_not_believed():
    one, _ = estimates((6.9, 0.2), (7.3, 0.2))
    assert record.verdict([one], ["test"], 0.1).reliable
    odd = replace(one.reverse[0][1], value=math.nan)
    assert not record.verdict([replace(one, reverse=[*one.reverse, ("odd", odd)])], ["test"], 0.1).reliable


def _moved(there, coming, by):
    return replace(there, log_weights=there.log_weights + by), [replace(coming, log_weights=coming.log_weights - by)]


def test_few_chains_in_common_leave_the_bracket_as_it_was():
    there, coming = sides(400, 400, 7.0)
    both = bridge(there, [coming], 4.0)
    one = _round(there, coming, both)
    assert one.definite is None
    assert Bracket.of([one], -math.inf) == Bracket.of([replace(one, both=None)], -math.inf)
