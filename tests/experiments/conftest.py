from dataclasses import replace

import pytest

from irbm.experiments import density_models, fig7, paper
from irbm.experiments.paper import DIGITS


@pytest.fixture(autouse=True, scope="module")
def here(one_thread):
    """One thread for every test in this folder."""


@pytest.fixture(autouse=True)
def few_units(monkeypatch):
    """Machines of the digits that can be enumerated: their likelihoods are exact, and seconds do."""
    few, effort = fig7.QUICK_SIZE, density_models.EFFORT[DIGITS]
    monkeypatch.setitem(paper.DENSITY, DIGITS, replace(paper.DENSITY[DIGITS], max_components=few))
    small = replace(effort, sizes=dict.fromkeys(effort.sizes, few))
    monkeypatch.setitem(density_models.EFFORT, DIGITS, small)


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """One folder for all: experiments share trainings, and what is there is not done again."""
    return tmp_path_factory.mktemp("results")
