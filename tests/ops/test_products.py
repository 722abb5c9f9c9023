"""Products in two bfloat16 parts, and the half-steps and gradients made of them, against float64 and the slow path."""

import math

import pytest
import torch

from fresh import SEED
from irbm.models import Fixed, Infinite, Machine, Ordered
from irbm.ops import dispatch, fused, kernels, products
from irbm.ops import reference as ops
from irbm.ops.noise import KeyedStream, uniform_noise
from irbm.training import Settings, objectives
from irbm.training.chains import Chains
from twins import undisputed

# Of each weight, what the two parts leave over at most: half a last bit of half a last bit. The interpreter cuts off
# where the device rounds, which leaves whole bits.
BOUND = 2.0**-14 if kernels.INTERPRETED else 2.0**-16
# B, K, D: single rows, odd widths, exact tiles, and more rows than the small tiles are for.
SHAPES = [(1, 32, 6), (3, 96, 101), (40, 64, 128), (33, 33, 17), (260, 40, 20)]


def random_arranged(K, D, device, scale=1.0):
    make = torch.Generator().manual_seed(SEED + 1000 * K + D)
    weights_KD = scale * torch.randn(K, D, generator=make)
    bias_K, penalty_K = torch.randn(K, generator=make), torch.rand(K, generator=make)
    order_K = torch.randperm(K, generator=make)
    parts = [t.to(device) for t in (weights_KD, bias_K, penalty_K, order_K)]
    return parts, products.arrange(*parts, torch.tensor(K, device=device))


def padded(weights, bias, penalty, order, room):
    """The same parameters with room for more units; where the copy of the weights may be anything, it is NaN."""
    l, more = len(weights), room - len(weights)
    order = torch.cat([order, torch.arange(l, room, device=order.device)])
    size = torch.tensor(l, device=order.device)
    parts = [torch.cat([t, t.new_zeros(more, *t.shape[1:])]) for t in (weights, bias, penalty)]
    copy = products.arrange(*parts, order, size)
    for part in (copy.hi_KD, copy.lo_KD):
        part[l:] = float("nan")
    return copy


def binary(*shape, device):
    u = torch.rand(shape, generator=torch.Generator().manual_seed(SEED + 3 + sum(shape)))
    return (u < 0.4).float().to(device)


def uniforms(*shape, device):
    return torch.rand(shape, generator=torch.Generator().manual_seed(SEED + 5 + sum(shape))).to(device)


# -- the copy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "D"), [(1, 1), (5, 37), (32, 300)])
def test_the_copy_is_by_position_and_exact_to_the_bound(K, D, device):
    (weights, bias, penalty, order), copy = random_arranged(K, D, device)
    assert copy.hi_KD.dtype == copy.lo_KD.dtype == torch.bfloat16
    both = copy.hi_KD.double() + copy.lo_KD.double()
    error = (both - weights[order].double()).abs()
    assert (error <= BOUND * weights[order].abs().double()).all()
    assert K * D < 100 or error.max() > 2.0**-24  # it is a rounding, not a copy
    assert torch.equal(copy.bias_K, bias[order])
    assert torch.equal(copy.penalty_K, penalty[order])


def test_zero_huge_and_tiny_weights_survive_the_copy(device):
    weights = torch.tensor([[0.0, 1e30, -1e30, 1e-30, -3.0, 1.0]], device=device)
    one = torch.ones(1, device=device)
    copy = products.arrange(weights, one, one, torch.tensor([0], device=device), torch.tensor(1, device=device))
    both = copy.hi_KD.double() + copy.lo_KD.double()
    assert ((both - weights.double()).abs() <= BOUND * weights.abs().double()).all()
    assert both[0, 0] == 0


# -- activations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("B", "K", "D"), SHAPES)
def test_activations_are_near_the_exact_ones(B, K, D, dtype, device):
    (weights, bias, _, order), copy = random_arranged(K, D, device)
    v = binary(B, D, device=device)
    a = products.activations(v.to(dtype), copy)
    exact = (v.double() @ weights.double().T + bias.double())[:, order]
    added = (v.double() @ weights.double().abs().T + bias.double().abs())[:, order]
    assert a.shape == (B, K)
    assert ((a - exact).abs() <= (BOUND + 2.0**-22) * added).all()


@pytest.mark.parametrize("room", [1, 7, 128])
@pytest.mark.parametrize(("B", "K", "D"), SHAPES)
def test_padding_has_no_part_in_activations_and_visible_units(B, K, D, room, device):
    parts, copy = random_arranged(K, D, device, scale=0.2)
    wide, v = padded(*parts, room=K + room), binary(B, D, device=device)
    a = products.activations(v, wide)
    assert torch.equal(a[:, :K], products.activations(v, copy))
    assert torch.equal(a[:, K:], torch.zeros(B, room, device=device))
    h, bias, u = binary(B, K + room, device=device), uniforms(D, device=device), uniforms(B, D, device=device)
    h[:, -(-K // 128) * 128 :] = float("nan")  # whole tiles beyond l are not even read
    drawn, alone = (torch.empty(B, D, dtype=torch.bfloat16, device=device) for _ in range(2))
    products.visible_sample(h.bfloat16(), wide, bias, u, out=drawn)
    products.visible_sample(h[:, :K].bfloat16().contiguous(), copy, bias, u, out=alone)
    assert torch.equal(drawn, alone)


# -- the visible half-step ----------------------------------------------------------------------------------------


def assert_drawn(v, h, copy, bias, u):
    """v is 1 where u < s(field), but for draws within the field's error; and those are as few as that error says."""
    weights = copy.hi_KD.double() + copy.lo_KD.double()
    p = torch.sigmoid(h.double() @ weights + bias.double())
    edge = 2.0**-22 * (h.double() @ weights.abs() + bias.abs().double()) + 2e-7
    sure = (u - p).abs() > edge
    assert torch.equal(v.double()[sure], (u < p).double()[sure])
    assert (~sure).sum() <= 2 + 5 * (2 * edge).sum()


@pytest.mark.parametrize(("B", "K", "D"), SHAPES)
def test_visible_units_are_drawn_from_their_probabilities(B, K, D, device):
    _, copy = random_arranged(K, D, device, scale=0.2)
    bias, h, u = uniforms(D, device=device) - 0.5, binary(B, K, device=device), uniforms(B, D, device=device)
    v, again = torch.full((B, D), -1.0, dtype=torch.bfloat16, device=device), torch.full((B, D), -1.0, device=device)
    products.visible_sample(h.bfloat16(), copy, bias, u, out=v, copy=again)
    assert_drawn(v, h, copy, bias, u)
    assert torch.equal(v.float(), again)


@pytest.mark.parametrize("by_pointer", [False, True])
@pytest.mark.parametrize(("B", "K", "D"), SHAPES[:4])
def test_a_key_draws_what_is_written_out_for_it(B, K, D, by_pointer, device):
    _, copy = random_arranged(K, D, device, scale=0.2)
    bias, h = uniforms(D, device=device) - 0.5, binary(B, K, device=device)
    key = kernels.Key(torch.tensor(2**40 + 3, device=device) if by_pointer else 2**40 + 3, 5)
    drawn, given = (torch.empty(B, D, dtype=torch.bfloat16, device=device) for _ in range(2))
    products.visible_sample(h.bfloat16(), copy, bias, key, out=drawn)
    products.visible_sample(h.bfloat16(), copy, bias, fused.visible_uniforms(B, D, *key, device), out=given)
    assert torch.equal(drawn, given)


def test_hidden_units_by_position_are_those_by_unit(device):
    K = 70
    make = torch.Generator().manual_seed(SEED)
    a, order = torch.randn(9, K, generator=make).to(device), torch.randperm(K, generator=make).to(device)
    beta, size = torch.full((K,), 0.7, device=device), torch.tensor(K, device=device)
    u_B, u_BK = uniforms(9, device=device), uniforms(9, K, device=device)
    z, h = fused.hidden_sample(a, order, beta, size, "infinite", 1.0, u_B, u_BK)
    moved = (a[:, order].contiguous(), None, beta, size, "infinite", 1.0, u_B, u_BK[:, order].contiguous())
    same_z, same_h = fused.hidden_sample(*moved, torch.bfloat16)
    assert same_h.dtype == torch.bfloat16
    assert torch.equal(z, same_z)
    assert torch.equal(h[:, order], same_h.float())


# -- both phases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", ["fixed", "ordered", "infinite"])
def test_phases_are_the_reference_by_position_and_weighted(kind, sampled, device):
    K, l, n, N = 70, 50, 5, 7
    make = torch.Generator().manual_seed(SEED + 1)
    a = 0.4 * torch.randn(n + N, K, generator=make)
    a[:, l:] = 0
    a, beta, size = a.to(device), torch.full((K,), 0.7, device=device), torch.tensor(l, device=device)
    u = uniforms(n + N, device=device)
    hi, lo, reach, z, mode = fused.phases(a, beta, size, kind, 4.96, u, n, sampled=sampled, sloped=True)
    order = torch.arange(K, device=device)
    true_reach, active, true_z, true_mode = ops.hidden_reach(a, order, beta, size, kind, 4.96, u)
    assert torch.equal(z, true_z)
    assert torch.equal(mode, true_mode)
    if sampled:
        true_reach = (ops.within(order, z) & (order < size)).float()
    share = torch.tensor([-1 / n] * n + [1 / N] * N, device=device)[:, None]
    torch.testing.assert_close(reach, true_reach * share, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(hi.float() + lo.float(), true_reach * active * share, rtol=2 * BOUND, atol=1e-6)
    keyed = fused.phases(a, beta, size, kind, 4.96, kernels.Key(7, 2), n, sampled=sampled, sloped=False)
    given = fused.phases(
        a, beta, size, kind, 4.96, fused.hidden_uniforms(n + N, 1, 7, 2, device)[0], n, sampled=sampled, sloped=False
    )
    assert keyed[2] is None
    for one, other in zip(keyed, given, strict=True):
        assert one is other or torch.equal(one, other)


@pytest.mark.parametrize("sloped", [False, True])
@pytest.mark.parametrize(
    ("n", "N", "K", "l", "D"), [(1, 1, 32, 32, 6), (3, 5, 70, 70, 101), (40, 60, 64, 64, 128), (3, 5, 200, 70, 101)]
)
def test_gradients_are_the_products_of_both_phases(n, N, K, l, D, sloped, device):
    make = torch.Generator().manual_seed(SEED + n)
    R = n + N
    on = (torch.randn(R, K, generator=make) / 10).to(device)
    on[:, l:] = 0
    hi = on.bfloat16()
    lo = (on - hi.float()).bfloat16()
    v, order = binary(R, D, device=device), torch.randperm(K, generator=make).to(device)
    reach = torch.rand(R, K, generator=make).to(device) if sloped else None
    slope = torch.rand(K, generator=make).to(device) if sloped else None
    size = torch.tensor(l, device=device)
    weights, hidden, visible = products.gradients(hi, lo, reach, v.bfloat16(), order, size, slope, n)
    whole = hi.double() + lo.double()
    hi[:, -(-l // 64) * 64 :] = float("nan")  # whole tiles beyond l are not even read
    assert torch.equal(products.gradients(hi, lo, reach, v.bfloat16(), order, size, slope, n)[0], weights)
    by_unit = ops.inverse(order)
    torch.testing.assert_close(weights, (whole.T @ v.double())[by_unit].float(), rtol=1e-5, atol=1e-5)
    true_hidden = whole.sum(0)[by_unit]
    if reach is not None:
        true_hidden = true_hidden - slope.double() * reach.double().sum(0)[by_unit]
    torch.testing.assert_close(hidden, true_hidden.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(visible, v[n:].mean(0) - v[:n].mean(0), rtol=1e-5, atol=1e-6)


# -- the whole of it ----------------------------------------------------------------------------------------------


def random_machine(depth, device, *, K=64, l=45, D=30):
    make = torch.Generator().manual_seed(SEED)
    weights, bias = 0.3 * torch.randn(K, D, generator=make), 0.3 * torch.randn(K, generator=make)
    weights[l:], bias[l:] = 0, 0
    order = torch.cat([torch.randperm(l, generator=make), torch.arange(l, K)])
    return Machine(weights, bias, torch.randn(D, generator=make), order, torch.tensor(l), depth).to(device=device)


DEPTHS = [Fixed(), Ordered(), Infinite(), Infinite(penalty="softplus")]
CHAINS = {"CD": 0, "fewer chains": 3, "more chains": 11}


class Written:
    """What kernels draw from a keyed stream, as a noise that is asked for it: z and h, then v, again and again."""

    def __init__(self, key, machine):
        self.stream = keyed(*key, device=machine.weights.device)
        self.machine, self.by_unit = machine, ops.inverse(machine.order)

    def __call__(self, *shape):
        device, K = self.machine.weights.device, self.machine.capacity
        if len(shape) == 1:
            z_B, by_position_BK = fused.hidden_uniforms(*shape, K, *self.stream.next_key(), device)
            self.hidden_BK = by_position_BK[:, self.by_unit]
            return z_B
        if shape[1] == K:
            return self.hidden_BK
        return fused.visible_uniforms(*shape, *self.stream.next_key(), device)


@pytest.mark.parametrize("gradient", ["expected", "sampled"])
@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("depth", DEPTHS, ids=str)
def test_a_step_on_tensor_cores_is_the_step_without(depth, chains, gradient, device, monkeypatch):
    def noise_of(n):
        cpu = uniform_noise(SEED, n)
        return lambda *shape: cpu(*shape).to(device)

    compare_a_step(depth, chains, gradient, device, noise_of, noise_of, monkeypatch)


@pytest.mark.parametrize("chains", CHAINS)
def test_a_step_that_draws_from_keys_is_the_step_without(chains, device, monkeypatch):
    """As training has it."""
    machine = random_machine(Infinite(), device)

    noises = (lambda n: Written((SEED, n), machine)), (lambda n: keyed(SEED, n, device=device))
    compare_a_step(Infinite(), chains, "expected", device, *noises, monkeypatch)


def keyed(*key, device):
    stream = KeyedStream(torch.device(device))
    stream.reseed(*key)
    return stream


def compare_a_step(depth, chains, gradient, device, noise_of, fast_noise_of, monkeypatch):
    """The same uniforms: the same decisions, and gradients that differ by the rounding of the weights."""
    settings = Settings(gibbs_steps=2, gradient=gradient, persistent=chains != "CD")
    machine, v = random_machine(depth, device), binary(7, 30, device=device)

    def step(noise, *, fast=False):
        monkeypatch.setattr(dispatch, "has_kernels", lambda _: fast)
        start = Chains(binary(CHAINS[chains], 30, device=device)) if CHAINS[chains] else Chains()
        found = objectives.generative(machine, v, None, start, settings, noise)
        decided = [found.z_pos_B, found.z_neg_N, found.mode_B]
        return decided + ([] if start.v_ND is None else [start.v_ND]), found.gradients

    n, wanted, slow = undisputed(step, noise_of, lambda gradients: gradients.visible_bias)
    decided, fast = step(fast_noise_of(n), fast=True)
    assert all(map(torch.equal, decided, wanted))
    assert CHAINS[chains] == 0 or decided[-1].dtype == torch.float32
    for name in ("weights", "hidden_bias", "visible_bias"):
        one, other = getattr(fast, name), getattr(slow, name)
        # a differs by 2^-16 of sum |W| v, up to 3 here; t, which decides the reach, by the sum of 45 such.
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
        assert other.abs().max() > 0.05


def test_no_two_draws_of_a_run_have_the_same_key(device, monkeypatch):
    """Neither those of one step nor those of several: keys of steps are neighbours."""
    machine, used = random_machine(Infinite(), device), []
    monkeypatch.setattr(dispatch, "has_kernels", lambda _: True)
    noise, real = keyed(SEED, device=device), KeyedStream.next_key

    def noted(stream):
        key = real(stream)
        used.append((int(key.seed), key.stream))
        return key

    monkeypatch.setattr(KeyedStream, "next_key", noted)
    v, chains = binary(7, 30, device=device), Chains(binary(3, 30, device=device))
    for step in range(3):
        noise.reseed(SEED, step)
        objectives.generative(machine, v, None, chains, Settings(gibbs_steps=2), noise)
    assert len(used) == 3 * 5  # two sweeps of two draws, and the phases' z
    assert len(set(used)) == len(used)


def test_the_path_is_for_float32_without_labels_and_not_for_evaluation(device, monkeypatch):
    """No product of the machine itself is made of parts."""
    machine, v = random_machine(Infinite(), device), binary(7, 30, device=device)
    monkeypatch.setattr(dispatch, "has_kernels", lambda a: a.dtype != torch.float64)

    def refuse(*_, **__):
        raise AssertionError("a product in parts")

    for name in ("arrange", "activations", "visible_sample", "gradients"):
        monkeypatch.setattr(products, name, refuse)
    noise = uniform_noise(0, device=device)
    machine.free_energy(v)
    machine.hidden_mean(v)
    machine.hidden(v, None, noise)
    machine.gibbs(v, None, noise, 2)
    objectives.generative(machine.to(dtype=torch.float64), v.double(), None, Chains(), Settings(), noise)
    with pytest.raises(AssertionError, match="in parts"):
        objectives.generative(machine, v, None, Chains(), Settings(), noise)


def test_too_many_rows_for_32_bits_take_the_slow_path(device, monkeypatch):
    monkeypatch.setattr(dispatch, "has_kernels", lambda _: True)
    weights = torch.empty(640, 784, device=device)
    assert dispatch.has_products(weights, 10_000)
    assert not dispatch.has_products(weights, math.ceil(2**31 / 784))
