"""Products in full float32, whatever torch has been told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Never judge in TF32, whatever the user has set for training, by either of torch's ways to set it."""
    settings, own = _precision_settings(), []
    for setting, meanwhile in settings:
        own.append(setting.fp32_precision)
        setting.fp32_precision = meanwhile
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for (setting, _), value in zip(settings, own, strict=True):
            setting.fp32_precision = value


def _precision_settings() -> list[tuple[Any, str]]:
    """In torch 2.9 and later: those of products, and what they are to be.

    Before them come those that they follow: with these out of the way, each tells what it is set to itself.
    """
    backends: Any = torch.backends
    if not hasattr(backends, "fp32_precision"):
        return []
    followed = [(backends, "none"), (backends.cudnn, "none")]
    return [*followed, (backends.cuda.matmul, "ieee"), (backends.mkldnn.matmul, "ieee")]
