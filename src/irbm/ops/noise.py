"""Where uniforms come from: keys, turned into streams that a run can replay from any step.

A key is a few non-negative integers, such as (seed, purpose, step): whoever knows them can replay the stream, so no
generator's state needs to be kept.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from irbm.ops import compiled, fused
from irbm.ops.kernels import Key, available

Noise = Callable[..., Tensor]
"""``noise(*shape)`` returns uniforms in (0, 1), fresh at each call."""


class Stream:
    """Uniforms from a generator that is seeded by a key."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype

    def reseed(self, *key: int) -> None:
        seed = np.random.SeedSequence(key)
        if self._device.type == "cpu":
            # NumPy draws uniforms faster than torch here.
            self._numpy = np.random.Generator(np.random.SFC64(seed))
        else:
            self._torch = torch.Generator(self._device).manual_seed(_as_int64(seed))

    def __call__(self, *shape: int) -> Tensor:
        if self._device.type == "cpu":
            kind = np.float64 if self._dtype == torch.float64 else np.float32
            u = torch.from_numpy(self._numpy.random(shape, dtype=kind))
        else:
            u = torch.rand(shape, generator=self._torch, device=self._device, dtype=self._dtype)
        return u.clamp_(min=torch.finfo(self._dtype).eps / 4)  # none is 0, as in ``kernels.LEAST``


class CountedStream:
    """Uniforms in float32 on the CPU, compiled: a key and a number for each call, as the fused kernels have them.

    Faster than NumPy's generators, and any number of threads may share a draw.
    """

    def reseed(self, *key: int) -> None:
        # A hash takes a tenth of NumPy's seed sequence, which small steps would feel.
        self._key = int.from_bytes(hashlib.blake2b(repr(tuple(map(int, key))).encode(), digest_size=8).digest())
        self._calls = 0

    def next_key(self) -> Key:
        """What a kernel needs to draw the uniforms of one call."""
        self._calls += 1
        return Key(self._key, self._calls)

    def __call__(self, *shape: int) -> Tensor:
        return compiled.uniforms(*self.next_key(), shape)


class KeyedStream:
    """Uniforms that fused kernels draw themselves: a key on the device, and a number for each call.

    The key is a tensor, so that a captured graph can be replayed with another one; draws do not depend on shapes.
    """

    def __init__(self, device: torch.device) -> None:
        self.key = torch.zeros((), dtype=torch.int64, device=device)
        self._calls = 0

    def reseed(self, *key: int) -> None:
        # Neighbours in the last number are neighbours as keys: Philox makes unrelated streams of them, and a step
        # need not wait for a hash of its number. Not so a number that is alone: its stream may go on for many keys.
        first, last = (key[:-1], key[-1]) if len(key) > 1 else (key, 0)
        self.key.fill_((_first_key(*first) + last) % 2**63)
        self.rewind()

    def rewind(self) -> None:
        """Number the calls from 0 again."""
        self._calls = 0

    def advance_(self) -> None:
        """Go on to the next key, on the device: a captured graph draws afresh at each replay."""
        self.key.add_(1)

    def next_key(self) -> Key:
        """What a kernel needs to draw the uniforms of one call."""
        self._calls += 1
        return Key(self.key, self._calls)

    def __call__(self, *shape: int) -> Tensor:
        rows, columns = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
        return fused.visible_uniforms(rows, columns, *self.next_key(), self.key.device).view(shape)


def stream(device: torch.device | str, dtype: torch.dtype = torch.float32) -> Stream | CountedStream | KeyedStream:
    """The kind of stream that suits the device, not seeded yet."""
    device = torch.device(device)
    if device.type == "cpu" and dtype == torch.float32 and compiled.available():
        return CountedStream()
    if device.type == "cuda" and dtype == torch.float32 and available(device):
        return KeyedStream(device)
    return Stream(device, dtype)


def uniform_noise(*key: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Noise:
    """A stream seeded by a key: the same uniforms for the same key and calls."""
    noise = stream(device, dtype)
    noise.reseed(*key)
    return noise


@lru_cache
def _first_key(*key: int) -> int:
    return _as_int64(np.random.SeedSequence(key))


def _as_int64(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint64)[0] >> 1)
