import pytest


@pytest.fixture(autouse=True, scope="module")
def here(one_thread):
    """One thread for every test in this folder."""
