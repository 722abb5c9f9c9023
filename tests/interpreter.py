"""Where kernels are tested: on CUDA, or on the CPU in Triton's interpreter, which ops/test_interpreter.py starts."""

import importlib

import pytest
import torch

from irbm.ops import kernels


def device_for_kernels():
    if kernels.triton is None:
        pytest.skip("Triton is not installed")
    if kernels.INTERPRETED:
        _let_numbers_bound_loops()
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: ops/test_interpreter.py runs this file")
    return "cuda"


def _let_numbers_bound_loops():
    """The interpreter keeps numbers as arrays of one element, which NumPy 2.4 no longer takes for an index."""
    interpreter = importlib.import_module("triton.runtime.interpreter")
    real = interpreter._patch_lang_tensor
    if real.__name__ == "mended":
        return

    def mended(tensor, scope):
        real(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = mended
