"""What the paper claims of its results, and what a person saw in ours that figures do not tell: results/seen.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

AGREES = ("yes", "mostly", "partly", "no")
SINGLE_END = re.compile(r"(?<!\n)\n(?!\n|- ) *")  # of a line in the middle of a paragraph or of a list's item


class Seen(NamedTuple):
    """Of one result, by its date: another result needs another look."""

    claim: str  # the paper's
    date: str
    agrees: str  # ours with it, one of AGREES
    verdict: str  # the same in a few words
    words: str


def looks(folder: Path) -> dict[str, Seen]:
    """By the name of the experiment; nothing where nobody has looked."""
    file = folder / "seen.toml"
    found = tomllib.loads(file.read_text()) if file.is_file() else {}
    return {name: _look(name, **table) for name, table in found.items()}


def _look(name: str, **table: Any) -> Seen:
    look = Seen(**{key: SINGLE_END.sub(" ", text) for key, text in table.items()})
    if look.agrees not in AGREES:
        raise ValueError(f"agrees of {name} in seen.toml must be one of {', '.join(AGREES)}, got {look.agrees!r}")
    return look
