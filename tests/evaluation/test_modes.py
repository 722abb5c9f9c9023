"""The search for modes, and the bases that come of it."""

import math
from dataclasses import replace

import pytest
import torch

from irbm.evaluation import ais, modes, partition
from irbm.evaluation.paths import Base, Path
from irbm.experiments import known
from irbm.models import Fixed, Frozen, Infinite, Machine
from irbm.ops.noise import uniform_noise

D, K = 60, 40


def bimodal(depth) -> Machine:
    """Weight in the noise about v = 0 and at v = 1, where K units are on that everywhere else are off."""
    weights = torch.full((K, D), 0.6, dtype=torch.float64)
    return Machine(
        weights=weights,
        hidden_bias=torch.full((K,), -0.6 * (D - 5.0), dtype=torch.float64),
        visible_bias=torch.full((D,), -1.5, dtype=torch.float64),
        order=torch.arange(K),
        size=torch.tensor(K),
        depth=depth,
    )


def noise_of(seed):
    return uniform_noise(seed, dtype=torch.float64)


@pytest.mark.parametrize("depth", [Fixed(), Infinite(1.01)], ids=str)
def test_a_mode_that_noise_never_reaches_is_found(depth):
    machine, noise = bimodal(depth), noise_of(0)
    from_noise = machine.gibbs(modes._from_noise(machine, modes.STARTS, noise), None, noise, modes.SWEEPS)[0]
    assert from_noise.mean(1).max() < 0.7
    found = modes.hunt(machine, None, None, noise).mean(1)
    assert (found < 0.7).any()
    assert (found > 0.95).any()
    assert not ((found > 0.7) & (found < 0.95)).any()


def test_a_filter_is_asked_alone_and_as_if_there_were_many():
    """One of these units moves the visibles little; together they hold all of them at 1."""
    share = modes._from_filters(bimodal(Fixed()), 400, noise_of(5)).mean(1)
    assert (share < 0.75).double().mean() > 0.05
    assert (share > 0.95).double().mean() > 0.3


def haystack() -> Machine:
    """Fair coins, each held by four units, and one state that one unit of them all makes."""
    generator = torch.Generator().manual_seed(6)
    weights = torch.zeros(4 * D + 1, D, dtype=torch.float64)
    sign = torch.randint(0, 2, (4 * D,), generator=generator) * 2.0 - 1
    weights[torch.arange(4 * D), torch.arange(4 * D) // 4] = 4 * sign.double()
    bias = -(torch.nn.functional.softplus(weights) - math.log(2)).sum(0)
    weights[-1] = 4.0 * (torch.randint(0, 2, (D,), generator=generator) * 2 - 1)
    return Machine(
        weights=weights,
        hidden_bias=torch.tensor([0.0] * 4 * D + [3.0 - 4 * float((weights[-1] > 0).sum())], dtype=torch.float64),
        visible_bias=bias,
        order=torch.randperm(4 * D + 1, generator=generator),
        size=torch.tensor(4 * D + 1),
        depth=Fixed(),
    )


def test_every_unit_is_asked():
    """However few states the search goes on from, a state that one of many units makes is among them."""
    machine = haystack()
    machine = replace(machine, hidden_bias=machine.hidden_bias + torch.eye(4 * D + 1)[-1].double() * 0.7 * D)
    wanted = (machine.weights[-1] > 0).double()
    for seed in range(5):
        found = modes._from_filters(machine, 8, noise_of(seed))
        assert found.shape == (8, D)
        assert ((found - wanted).abs().sum(1) <= 2).any()


def test_a_narrow_state_is_a_part_of_its_own():
    """One heavy state among 300 noisy ones is not a cluster, but the base starts chains there."""
    machine = haystack()
    machine = replace(machine, hidden_bias=machine.hidden_bias + torch.eye(4 * D + 1)[-1].double() * 0.7 * D)
    wanted = (machine.weights[-1] > 0).double()
    noisy = modes._from_noise(machine, 300, noise_of(0))
    base = modes.base_of(machine, [torch.cat([noisy, wanted[None]])], noisy[:0], seed=0)
    assert len(base.bias_MD) == modes.PARTS + modes.HEAVIEST + modes.SINGLES
    assert ((base.bias_MD > 0).double() == wanted).all(1).any()
    without = modes.base_of(machine, [noisy], noisy[:0], seed=0)
    assert not ((without.bias_MD > 0).double() == wanted).all(1).any()
    known = modes.base_of(machine, [noisy], wanted[None], seed=0)  # an example that sweeps leave
    assert ((known.bias_MD > 0).double() == wanted).all(1).any()


def test_the_heaviest_state_is_a_part_of_its_own_where_others_are_served_worse(monkeypatch):
    """A cluster about it serves it, as it does not serve noise, of which no state counts."""
    machine = haystack()
    machine = replace(machine, hidden_bias=machine.hidden_bias + torch.eye(4 * D + 1)[-1].double() * 0.5 * D)
    heavy_D = (machine.weights[-1] > 0).double()
    near_BD = torch.where(torch.rand(100, D, generator=torch.Generator().manual_seed(7)) < 0.1, 1 - heavy_D, heavy_D)
    states_BD = torch.cat([modes._from_noise(machine, 300, noise_of(0)), near_BD, heavy_D[None]])

    def singles():
        return modes._missed(machine, states_BD, *modes._fitted(states_BD, seed=0))

    found = singles()
    assert (found == heavy_D).all(1).any()
    assert len(found.unique(dim=0)) == modes.HEAVIEST + modes.SINGLES
    assert torch.cdist(found[: modes.HEAVIEST], found[: modes.HEAVIEST], p=1).fill_diagonal_(D).min() > 0.15 * D
    monkeypatch.setattr(modes, "HEAVIEST", 0)
    assert not (singles() == heavy_D).all(1).any()


def test_a_second_mode_has_a_part_where_the_first_one_has_many_states():
    """Of the first, all but one pixel of most states are alike: none of them takes a part from the second."""
    machine, generator = bimodal(Fixed()), torch.Generator().manual_seed(9)
    first = torch.ones(200, D, dtype=torch.float64)
    first[torch.arange(200), torch.randint(0, D, (200,), generator=generator)] = 0.0
    noisy = (torch.rand(100, D, generator=generator) < 0.2).double()
    second = torch.zeros(1, D, dtype=torch.float64)
    states_BD = torch.cat([first, noisy, second])
    assert modes.minus_free_energy(machine, second) < modes.minus_free_energy(machine, first).min()
    assert modes.minus_free_energy(machine, second) > modes.minus_free_energy(machine, noisy).max()
    found = modes._missed(machine, states_BD, *modes._fitted(states_BD, seed=0))[: modes.HEAVIEST]
    assert (found == second).all(1).any()
    assert (found.mean(1) > 0.9).sum() == 1


@pytest.mark.parametrize("n_classes", [0, 3])
@pytest.mark.parametrize("depth", [Fixed(), Infinite(1.01)], ids=str)
def test_what_all_states_weigh_is_ln_z_and_some_weigh_less(depth, n_classes):
    make = torch.Generator().manual_seed(8)
    machine = replace(
        bimodal(depth),
        weights=torch.randn(K, 8, generator=make, dtype=torch.float64),
        visible_bias=torch.randn(8, generator=make, dtype=torch.float64),
    )
    if n_classes:
        machine = with_labels(machine, n_classes)
    states = (torch.arange(256)[:, None] >> torch.arange(8) & 1).to(torch.uint8)
    log_z = partition.exact(machine).value
    distinct = modes.heaviest(machine, states, states[100:].double())
    assert distinct.shape == (256, 8)
    assert modes.log_weight(machine, distinct) == pytest.approx(log_z, abs=1e-9)
    assert modes.log_weight(machine.to(dtype=torch.float32), distinct.float()) == pytest.approx(log_z, abs=1e-5)
    some = modes.heaviest(machine, states[:7], states[3:7])
    assert modes.log_weight(machine, some) < log_z
    copied = states[:100].repeat(3, 1)
    some = modes.heaviest(machine, copied, n=5)
    assert sorted(modes.minus_free_energy(machine, some).tolist()) == pytest.approx(
        sorted(modes.minus_free_energy(machine, states[:100]).tolist())[-5:]
    )


@pytest.mark.parametrize("n", [5, 8, 200])
def test_units_are_asked_again_and_again(n, monkeypatch):
    """As few of the times that a unit is asked may lead to a mode, however few of the states go on."""
    machine, asked = bimodal(Fixed()), []
    by_hand = modes._asked

    def listening(machine, unit_B, noise):
        asked.extend(unit_B.tolist())
        return by_hand(machine, unit_B, noise)

    monkeypatch.setattr(modes, "_asked", listening)
    assert len(modes._from_filters(machine, n, noise_of(3))) == n
    times = max(8, -(-n // K))
    assert sorted(asked) == sorted(list(range(K)) * times)


def test_examples_and_means_are_starts_too():
    machine, noise = bimodal(Fixed()), noise_of(1)
    means, examples = torch.full((D,), 0.5, dtype=torch.float64), torch.ones(3, D, dtype=torch.uint8)
    for more in ((means, None), (None, examples), (means, examples)):
        found = modes.hunt(machine, *more, noise)
        assert found.dtype == torch.float64
        assert modes.STARTS - 5 < len(found) <= modes.STARTS
        assert set(found.unique().tolist()) <= {0.0, 1.0}


def with_labels(machine: Machine, n: int) -> Machine:
    """The first label alone holds the mode in which all visibles are 1."""
    label_weights = torch.full((K, n), -6.0, dtype=torch.float64)
    label_weights[:, 0] = 0.0
    return replace(machine, label_weights=label_weights, label_bias=torch.zeros(n, dtype=torch.float64))


@pytest.mark.parametrize("n_classes", [0, 10])
@pytest.mark.parametrize("place", [0, 2999])
def test_an_example_that_is_a_mode_by_itself_is_found_among_thousands(place, n_classes, monkeypatch):
    machine, noise = bimodal(Fixed()), noise_of(2)
    if n_classes:
        machine = with_labels(machine, n_classes)
    for kind in ("_from_filters", "_from_sets"):
        monkeypatch.setattr(modes, kind, modes._from_noise)
    examples = torch.zeros(3000, D, dtype=torch.uint8)
    examples[place] = 1
    for _ in range(3):  # not by chance
        assert modes.hunt(machine, None, examples, noise).mean(1).max() > 0.95
    assert modes.hunt(machine, None, torch.zeros_like(examples), noise).mean(1).max() < 0.7


def test_copies_of_an_example_leave_room_for_others():
    machine = bimodal(Fixed())
    examples = torch.zeros(500, D, dtype=torch.uint8)
    examples[:300] = 1  # the heaviest
    examples[400, :5] = 1
    starts = modes._from_examples(machine, examples, 20, noise_of(4))
    assert len(starts) == 20
    assert (starts == examples[400]).all(1).any()


def test_examples_show_a_mode_that_nothing_else_reaches(monkeypatch):
    machine, noise = bimodal(Fixed()), noise_of(2)
    for kind in ("_from_filters", "_from_sets"):
        monkeypatch.setattr(modes, kind, modes._from_noise)
    assert modes.hunt(machine, None, None, noise).mean(1).max() < 0.7
    examples = torch.ones(1, D, dtype=torch.uint8)
    share = (modes.hunt(machine, None, examples, noise).mean(1) > 0.95).double().mean()
    assert share == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_unique", [1, 2, 5, 60])
def test_bases_are_mixtures(n_unique, dtype):
    generator = torch.Generator().manual_seed(3)
    unique = (torch.rand(n_unique, D, generator=generator) < 0.5).to(dtype)
    states = unique[torch.arange(200) % n_unique]
    base = modes.base_of(bimodal(Fixed()).to(dtype=dtype), [states], states[:0], seed=0)
    assert len(base.bias_MD) == min(n_unique, modes.PARTS) + min(n_unique, modes.HEAVIEST + modes.SINGLES)
    assert base.bias_MD.dtype == dtype
    assert base.log_share_M.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    assert base.bias_MD.abs().max() <= math.log((1 - modes.SMOOTHING / 2) / (modes.SMOOTHING / 2)) + 1e-5
    if n_unique <= modes.PARTS:
        found = {tuple(row) for row in (base.bias_MD > 0).tolist()}
        assert found == {tuple(row) for row in (unique > 0).tolist()}


def test_a_base_has_the_means_less_smoothing():
    means = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    machine = bimodal(Fixed())
    base = modes.mixture(replace(machine, weights=machine.weights[:, :3]), means[None])
    torch.testing.assert_close(torch.sigmoid(base.bias_MD[0]), 0.95 * means + 0.025, rtol=0, atol=1e-12)
    assert base.log_share_M.tolist() == [0.0]


def test_shares_follow_the_weights_of_the_chains_that_started_there():
    """Two parts far apart: what comes of a chain is credited to the part it started from."""
    bias_MD = torch.stack([torch.full((D,), -4.0), torch.full((D,), 4.0)]).double()
    machine = bimodal(Fixed())
    answer_MK = machine.activations(torch.sigmoid(bias_MD))
    path = Path(
        "test", Frozen.of(machine), Base(bias_MD, answer_MK, torch.tensor([0.5, 0.5], dtype=torch.float64).log())
    )
    starts = path.start(50, noise_of(4))
    in_second = starts.v_BD.mean(1) > 0.5
    assert 0 < in_second.sum() < 50
    log_w_B = torch.where(in_second, math.log(3.0), 0.0).double()
    right = float(torch.softmax(log_w_B, 0)[in_second].sum())
    ess = float(1 / (torch.softmax(log_w_B, 0) ** 2).sum())
    shares = ais._reweighted(path, starts, log_w_B).base.log_share_M.exp()
    assert shares.sum().item() == pytest.approx(1.0, abs=1e-12)
    believed = (2 * 0.5 + ess * right) / (2 + ess)
    assert shares[1].item() == pytest.approx(ais.EVEN_PARTS / 2 + (1 - ais.EVEN_PARTS) * believed, abs=1e-6)


def test_units_with_like_filters_ask_together(monkeypatch):
    """A state that eight units make, of which none would make it alone."""
    machine = known.known("company", Infinite(1.01), seed=0, n=0).machine
    units = torch.nonzero((machine.weights != 0).sum(1) == 32)[:, 0]
    field_D = machine.weights[units].sum(0)
    state_D, matters_D = (field_D > 0).double(), field_D != 0

    def share():
        found = modes.hunt(machine, None, None, noise_of(6))
        return float(((found == state_D)[:, matters_D].double().mean(1) > 0.9).double().mean())

    together = share()
    assert together > 0.1
    monkeypatch.setattr(modes, "COMPANY", 1)
    assert share() < 0.3 * together
