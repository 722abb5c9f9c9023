import pytest


@pytest.fixture(autouse=True, scope="module")
def here(one_thread):
    """One thread for every test in this folder."""


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """One folder for all: experiments share trainings, and what is there is not done again."""
    return tmp_path_factory.mktemp("results")
