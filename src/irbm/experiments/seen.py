"""What a person saw in our results that figures do not tell: results/seen.toml."""

import re
import tomllib
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

AGREES = ("yes", "mostly", "partly", "no")
SINGLE_END = re.compile(r"(?<!\n)\n(?!\n|- ) *")  # of a line in the middle of a paragraph or of a list's item


class Seen(NamedTuple):
    """Of one result, by its date: another result needs another look."""

    date: str
    agrees: str  # with the paper's claim: one of AGREES
    verdict: str  # the same in a few words
    words: str


def looks(folder: Path, names: Container[str]) -> dict[str, Seen]:
    """By the name of the experiment, one of ``names``; nothing where nobody has looked."""
    file = folder / "seen.toml"
    found = tomllib.loads(file.read_text()) if file.is_file() else {}
    unknown = [name for name in found if name not in names]
    if unknown:
        raise ValueError(f"[{unknown[0]}] in {file} is the name of no experiment")
    return {name: _look(f"[{name}] in {file}", table) for name, table in found.items()}


def _look(where: str, table: Any) -> Seen:
    if not isinstance(table, dict) or set(table) != set(Seen._fields):
        raise ValueError(f"{where} must have {', '.join(Seen._fields)} and nothing else, got {table!r:.200}")
    for key, value in table.items():
        if not isinstance(value, str):
            raise ValueError(f"{key} of {where} must be text in quotes, got {value!r}")
    look = Seen(**{key: SINGLE_END.sub(" ", text) for key, text in table.items()})
    if look.agrees not in AGREES:
        raise ValueError(f"agrees of {where} must be one of {', '.join(AGREES)}, got {look.agrees!r}")
    return look
