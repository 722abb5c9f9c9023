"""What the documentation says is so: its code runs, its commands exist, its parameters are those of the classes.

Blocks of a page run in the order they stand in, in one folder, with few epochs and small machines.
"""

import ast
import doctest
import importlib.util
import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

import irbm
from irbm import cli
from irbm.training import growth

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/index.md", "docs/guide.md", "docs/frank-wolfe.md")
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
ENTRY = re.compile(r"^    (\w+) : .*?(?:, default (.+))?$", re.MULTILINE)
ESTIMATORS = [kind for kind in vars(irbm).values() if inspect.isclass(kind) and hasattr(kind, "fit")]
LONG = re.compile(r"irbm (bench|reproduce)|mnist|caltech|cuda")
FEW = (
    (r"n_iter=\d+", "n_iter=2"),
    (r"n_components=\d+", "n_components=5"),
    (r"\brange\(\d+\)", "range(2)"),
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def small(monkeypatch):
    """Growth ends where ln Z is still summed exactly, in no time."""
    grow_ = growth.update_
    monkeypatch.setattr(growth, "update_", lambda size, pos, neg, limit: grow_(size, pos, neg, min(limit, 8)))


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text())


def commands(text):
    """The arguments of each `irbm` in a block of shell lines, comments left out."""
    return [shlex.split(line, comments=True)[1:] for line in text.splitlines() if line.startswith("irbm ")]


def with_few(text):
    for pattern, quick in FEW:
        text = re.sub(pattern, quick, text)
    return text


def call(arguments, monkeypatch):
    """Run `irbm` in this process, with few epochs."""
    few = ["--n-iter", "2"] if arguments[0] in ("train", "demo") else []  # the last one counts
    monkeypatch.setattr(sys, "argv", ["irbm", *arguments, *few])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, arguments


def parse(arguments):
    """Read a command line as `irbm` would, without doing it."""
    group = typer.main.get_command(cli.app)
    command = group.get_command(None, arguments[0])
    assert command is not None, f"there is no irbm {arguments[0]}"
    command.make_context(arguments[0], list(arguments[1:]))


# -- pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    names = {}
    for kind, more, text in blocks(page):
        if kind == "python":
            exec(compile(with_few(text), page, "exec"), names)
        elif kind == "toml":
            Path(re.search(r'title="(.+)"', more)[1]).write_text(with_few(text))
        elif kind == "bash":
            for arguments in commands(text):
                if not LONG.search(shlex.join(["irbm", *arguments])):
                    call(arguments, monkeypatch)


@pytest.mark.parametrize("page", [str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]])
def test_every_command_can_be_read(page):
    for _, _, text in blocks(page):
        for arguments in commands(text):
            parse(arguments)


def test_examples_of_the_help_can_be_read():
    for command in typer.main.get_command(cli.app).commands.values():
        shown = re.findall(r"^\s*(?:Examples?: )?(irbm .+)$", command.callback.__doc__, re.MULTILINE)
        assert shown
        for arguments in commands("\n".join(shown)):
            parse(arguments)


def test_a_command_that_cannot_be_read_is_seen():
    with pytest.raises(Exception, match="--epochs"):
        parse(["train", "digits", "--out", "runs/x", "--epochs", "3"])
    with pytest.raises(AssertionError, match="fit"):
        parse(["fit", "digits"])


def test_the_pages_have_blocks_of_every_kind():
    kinds = {kind for kind, _, _ in blocks("docs/guide.md")}
    assert {"python", "bash", "toml"} <= kinds
    assert sum(len(commands(text)) for _, _, text in blocks("docs/guide.md")) > 5


def test_links_of_the_readme_lead_somewhere():
    links = LINK.findall((ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


# -- docstrings ---------------------------------------------------------------------------------------------


def section(kind, name):
    return re.search(rf"    {name}\n    -+\n(.*?)(?=\n    \w+\n    ---|\Z)", kind.__doc__, re.DOTALL)[1]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_parameter_is_described_with_its_default(kind):
    said = {name: ast.literal_eval(default) for name, default in ENTRY.findall(section(kind, "Parameters"))}
    assert said == {name: p.default for name, p in inspect.signature(kind).parameters.items()}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_attribute_is_listed(kind):
    listed = {name for name, _ in ENTRY.findall(section(kind, "Attributes"))}
    there = {name for name in dir(kind) if name.endswith("_") and not name.startswith("_")}
    assert listed == there | {"n_features_in_"} | ({"classes_"} if hasattr(kind, "predict") else set())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_examples_of_the_docstrings_hold(kind):
    (test,) = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


# -- equations ----------------------------------------------------------------------------------------------


@pytest.fixture
def hooks():
    pytest.importorskip("latex2mathml", reason="the site is not built here")
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_equations_become_mathml(hooks):
    made = hooks.to_mathml(r"\frac{a}{b}", "block", "page")
    assert made.startswith("<math")
    assert "<mfrac>" in made


@pytest.mark.parametrize("tex", [r"\nonsense x", r"a & b", r"a_"])
def test_an_equation_that_cannot_be_shown_is_refused(hooks, tex):
    with pytest.raises(Exception, match="page: "):
        hooks.to_mathml(tex, "inline", "page")
