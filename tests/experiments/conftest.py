"""One thread for the small machines here: as fast, and the same bits however many cores there are."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """One folder for all: experiments share trainings, and what is there is not done again."""
    return tmp_path_factory.mktemp("results")
