import pytest
import torch

from fresh import SEED


def pytest_report_header():
    return f"fresh input: IRBM_TEST_SEED={SEED}"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.line(f"fresh input of this run: IRBM_TEST_SEED={SEED}")


@pytest.fixture(scope="module")
def one_thread():
    """Tiny machines gain nothing from a second thread, and lose much where others run beside; bits stay the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
