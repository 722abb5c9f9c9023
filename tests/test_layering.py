"""Who may import whom. A room that reaches where it may not fails here."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "irbm"

MAY_IMPORT = {
    "ops": set(),
    "data": set(),
    "plots": set(),
    "files": set(),
    "version": set(),
    "models": {"ops"},
    "training": {"ops", "models", "files"},
    "evaluation": {"ops", "models"},
    "estimators": {"ops", "models", "files", "training", "evaluation"},
    "experiments": {"ops", "models", "training", "evaluation", "estimators", "data", "plots", "files"},
    "bench": {"ops", "models", "training", "evaluation", "experiments", "plots", "files"},
    "runs": {"training", "estimators", "data", "files"},
    "assessment": {"runs", "models", "evaluation", "estimators", "data"},
    "report": {"runs", "version", "evaluation", "estimators", "data", "plots", "files"},
    "cli": {
        "runs",
        "models",
        "training",
        "evaluation",
        "estimators",
        "experiments",
        "data",
        "plots",
        "report",
        "assessment",
        "bench",
        "files",
    },
}


def imported_rooms(source: str) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "irbm":
                rooms |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("irbm."):
                rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            # "import irbm" reaches every room.
            rooms |= {(a.name + ".irbm").split(".")[1] for a in node.names if a.name.split(".")[0] == "irbm"}
    return rooms


def breaches(room: str, source: str) -> set[str]:
    return imported_rooms(source) - MAY_IMPORT[room] - {room}


def files():
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room != "__init__":
            yield pytest.param(room, path, id=str(path.relative_to(SOURCE)))


@pytest.mark.parametrize(("room", "path"), list(files()))
def test_no_room_imports_what_it_may_not(room, path):
    assert breaches(room, path.read_text()) == set()


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("ops", "from irbm.models import Machine"),
        ("models", "import irbm.training.trainer"),
        ("training", "def late():\n    from irbm.evaluation.partition import exact"),
        ("evaluation", "from irbm.training import growth"),
        ("data", "from irbm import ops"),
        ("ops", "import irbm"),
        ("plots", "from irbm.estimators import RBM"),
    ],
)
def test_a_breach_is_seen(room, source):
    assert breaches(room, source)
