import pytest
import torch

from interpreter import device_for_kernels


@pytest.fixture
def device():
    """A device that kernels run on."""
    return device_for_kernels()


@pytest.fixture
def use_threads():
    """Set torch's number of threads; put back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
