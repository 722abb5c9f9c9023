"""How fast the library is: the real training step beside its floor and its peers, timed in the same run."""

from irbm.bench.cases import run
from irbm.bench.page import tables, write_page

__all__ = ["run", "tables", "write_page"]
