"""Trials of training that no setting has, looked at by the validation split alone: a table of what their file says."""

from typing import Any

from irbm.experiments.paper import TITLES
from irbm.experiments.results import judged


def section(found: dict[str, Any]) -> str:
    """A line for each training, its looks in their order."""
    lines = [
        "| data | change | seed | epochs | l | N_h | above M_T | mean ln p(z ≤ M_T given v) | validation "
        "log-likelihood | last bracket | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(run) for run in found["runs"]),
    ]
    return "\n".join([*lines, "", f"*{found['note']}; {found['device']}, commit {found['commit']}.*"])


def _line(run: dict[str, Any]) -> str:
    looks = [look for look in run["looks"] if "validation" in look]
    last = looks[-1]
    judgements = [judged(look["validation"]) for look in looks]
    cells = [
        TITLES[run["dataset"]],
        run["change"],
        f"{run['seed']}",
        ", ".join(f"{look['epoch']}" for look in looks),
        f"{last['n_components']}",
        f"{last['effective_size']:.0f}",
        ", ".join(f"{look['share_above_regrouped']:.1%}" for look in looks),
        ", ".join(f"{look['mean_log_p_z_up_to_m']:.1f}" for look in looks),
        ", ".join(value for value, *_ in judgements),
        *judgements[-1][1:],
    ]
    return f"| {' | '.join(cells)} |"
