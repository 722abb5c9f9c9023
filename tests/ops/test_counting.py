"""The shuffle, growth and sums by kernel, against the plain ones: equal in every bit."""

import math

import pytest
import torch

from fresh import SEED
from irbm.ops import counting, fused, kernels, reference
from irbm.training import regroup

LIMITS = [(0.0, 0.0), (0.75, math.inf), (1.0, math.inf), (0.9, 31.7), (0.9, 0.2)]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("K", "l"), [(1, 1), (7, 7), (64, 33), (640, 601), (1100, 1099)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_shuffle_is_a_stable_sort_of_the_first_positions(K, l, limits, ties, device):
    make = torch.Generator().manual_seed(SEED + K)
    order = torch.cat([torch.randperm(l, generator=make), torch.arange(l, K)]).to(device)
    u = torch.rand(K, generator=make)
    u = ((u * 10).floor() / 10 if ties else u).to(device)
    size = torch.tensor(l, device=device)
    bounds = torch.tensor(limits, dtype=torch.float64, device=device)
    expected, got = order.clone(), order.clone()
    reference.shuffle_(expected, regroup.regrouped(size, bounds), u)
    counting.shuffle_(got, size, bounds, u)
    assert torch.equal(got, expected)
    n = int(regroup.regrouped(size, bounds))
    assert torch.equal(got[n:], order[n:])
    assert n < 20 or not torch.equal(got, order)  # which few may be by chance


def test_a_key_shuffles_by_the_draws_written_out_for_it(device):
    K = 650
    key = kernels.Key(torch.tensor(2**40 + 3, device=device), 9)
    size, bounds = torch.tensor(K, device=device), torch.tensor([0.9, math.inf], dtype=torch.float64, device=device)
    drawn, given = torch.arange(K, device=device), torch.arange(K, device=device)
    counting.shuffle_(drawn, size, bounds, key)
    counting.shuffle_(given, size, bounds, fused.visible_uniforms(1, K, *key, device)[0])
    assert torch.equal(drawn, given)
    assert not torch.equal(drawn, torch.arange(K, device=device))


@pytest.mark.parametrize(("B", "N"), [(1, 1), (5, 2), (2, 5), (100, 100), (100, 1000), (1500, 7)])
def test_growth_is_the_plain_one(B, N, device):
    make = torch.Generator().manual_seed(SEED + B + N)
    grown = 0
    for limit in (3, 100):
        for rare in (2, B + N):  # how many values z has: many pairs reach beyond, or hardly one
            z_pos, z_neg = (3 + (torch.rand(n, generator=make) < 1 / rare).long().to(device) for n in (B, N))
            for start in (2, 3, 4):
                got, expected = torch.tensor(start, device=device), torch.tensor(start, device=device)
                counting.grow_(got, z_pos, z_neg, limit)
                reference.grow_(expected, z_pos, z_neg, limit)
                assert torch.equal(got, expected)
                grown += int(got) - start
    assert B < 100 or 0 < grown < 12  # of few examples none may reach beyond


def test_growth_pairs_each_example_with_its_partner(device):
    apart, fifth_meets_first = ([9, 1], [1, 9], 3), ([9, 1], [1, 9, 1, 9, 9], 4)
    third_meets_first, third_meets_none = ([1, 1, 9, 1], [9, 1], 4), ([1, 1, 9, 1], [1, 9], 3)
    for z_pos, z_neg, expected in (apart, fifth_meets_first, third_meets_first, third_meets_none):
        size = torch.tensor(3, device=device)
        counting.grow_(size, torch.tensor(z_pos, device=device), torch.tensor(z_neg, device=device), 10)
        assert int(size) == expected


@pytest.mark.parametrize("B", [1, 100, 1500])
def test_the_sums_are_the_plain_ones(B, device):
    mode = torch.randint(1, 700, (B,), generator=torch.Generator().manual_seed(SEED + B)).to(device)
    mode[0] = 900
    got, expected = (torch.tensor([3.0, 5.0], dtype=torch.float64, device=device) for _ in range(2))
    counting.tally_(got, mode)
    reference.tally_(expected, mode)
    assert torch.equal(got, expected)
    assert got[1] == 905
