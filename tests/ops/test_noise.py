"""Uniforms are never 0: by one that is, an event of any probability would happen."""

import numpy as np
import pytest
import torch

from irbm.ops import compiled
from irbm.ops.noise import CountedStream, Stream

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
