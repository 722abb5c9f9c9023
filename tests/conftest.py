import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """Tiny machines gain nothing from a second thread, and lose much where others run beside; bits stay the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
