import pytest

from interpreter import device_for_kernels


@pytest.fixture
def device():
    """A device that kernels run on."""
    return device_for_kernels()
