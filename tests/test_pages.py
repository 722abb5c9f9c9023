"""Pages that are written from results: those in the repository are of the results in the repository."""

import shutil
import sys
from pathlib import Path

import pytest

from irbm.bench import __main__ as performance
from irbm.experiments import classifiers_page, likelihoods, page, regrouping

ROOT = Path(__file__).parent.parent
WRITERS = {
    "results.md": (page, []),
    "classification.md": (classifiers_page, []),
    "likelihoods.md": (likelihoods, ["page"]),
    "regrouping.md": (regrouping, ["page"]),
    "performance.md": (performance, []),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the results alone, and what every writer made of them."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "results", folder / "results", ignore=shutil.ignore_patterns("runs", "chosen", "quick"))
    shutil.copy(ROOT / "README.md", folder)
    (folder / "docs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for module, arguments in WRITERS.values():
            patch.setattr(sys, "argv", ["writer", *arguments])
            module.main()
    return folder


@pytest.mark.parametrize("name", [*(f"docs/{name}" for name in WRITERS), "README.md"])
def test_a_page_is_of_the_results_that_are_there(written, name):
    assert (ROOT / name).read_text() == (written / name).read_text(), "`make pages` writes it anew"
