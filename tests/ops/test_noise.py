"""Uniforms are never 0: by one that is, an event of any probability would happen."""

import numpy as np
import pytest
import torch

from irbm.ops import compiled
from irbm.ops.noise import CountedStream, KeyedStream, Stream

DRAWS, CALLS = 2**24, 10  # of 24 bits: ten zeros are expected where nothing keeps them away


def streams():
    yield pytest.param(Stream(torch.device("cpu"), torch.float32), id="NumPy")
    missing = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")
    yield pytest.param(CountedStream(), id="compiled", marks=missing)


@pytest.mark.parametrize("noise", list(streams()))
def test_no_uniform_is_zero_or_one(noise):
    noise.reseed(0)
    smallest = 1.0
    for _ in range(CALLS):
        u = noise(DRAWS).numpy()
        smallest = min(smallest, u.min())
        assert u.max() < 1
    assert 0 < smallest < 2.0**-23, smallest


def test_float64_goes_further():
    noise = Stream(torch.device("cpu"), torch.float64)
    noise.reseed(0)
    noise._numpy = type("Zeros", (), {"random": staticmethod(lambda shape, dtype: np.zeros(shape, dtype))})()
    assert 0 < noise(1).item() < 2.0**-53


@pytest.mark.parametrize("noise", list(streams()))
def test_a_seed_of_numpy_is_a_seed(noise):
    draws = []
    for key in ((3, 1), (np.int64(3), np.uint8(1))):
        noise.reseed(*key)
        draws.append(noise(10))
    assert torch.equal(*draws)


def test_keys_are_neighbours_in_their_last_number_unless_it_is_alone():
    """A stream of many sweeps goes on through as many keys: it must not come to that of another seed."""
    noise = KeyedStream(torch.device("cpu"))

    def key(*numbers):
        noise.reseed(*numbers)
        return int(noise.key)

    assert key(7, 3) - key(7, 2) == 1
    starts = sorted(key(seed) for seed in range(200))
    assert min(np.diff(starts)) > 10**6
    assert min(abs(key(7, 0) - key(8, 0)), abs(key(7, 0) - key(8))) > 10**6
