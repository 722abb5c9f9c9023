"""What commands say, and the status they end with."""

from rich.console import Console

console = Console()

UNRELIABLE = 3
INTERRUPTED = 130


def say(text: str) -> None:
    """A line as it is: no wrapping, no markup, so that paths can be copied."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
