import pytest
import torch

from interpreter import device_for_kernels
from irbm.ops.compiled import loops


@pytest.fixture
def device():
    """A device that kernels run on."""
    return device_for_kernels()


@pytest.fixture
def use_threads(monkeypatch):
    """Set the number of threads of torch and of the compiled kernels; put back afterwards."""
    before = torch.get_num_threads()
    monkeypatch.setattr(loops, "SHARED_FROM", 0)
    yield torch.set_num_threads
    torch.set_num_threads(before)
