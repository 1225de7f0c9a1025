"""The columns of the table of runs that only some runs have: simulated seconds, and what a target took."""

from collections.abc import Mapping
from typing import Any

from gossamer.report.axes import CLOCK, is_timed
from gossamer.report.read_runs import RunRecord
from gossamer.report.runs import tidy
from gossamer.run.metric_rows import as_list, mean
from gossamer.run.target import to_target

NOT_REACHED = "not reached"

# As the other columns: key, heading, digits after the point, meaning. A column that no run has is left out.
TIME_COLUMNS: tuple[tuple[str, str, int | None, str], ...] = (
    (CLOCK, "Simulated s", 1, "simulated seconds at the last evaluation"),
    ("goodput", "Goodput %", 1, "time computing / time, mean over agents"),
    ("seconds_to_target", "Seconds to target", 1, "simulated seconds; of processes, real ones"),
    ("steps_to_target", "Steps to target", 0, "mean over agents"),
    ("megabytes_to_target", "MB to target", 1, "sum over the agents"),
)


def time_cells(run: RunRecord) -> dict[str, Any]:
    """Return the cells of a run in these columns; without a summary they come from its rows."""
    timed = is_timed(run.rows)
    return {
        CLOCK: tidy(run.rows[-1][CLOCK]) if timed else None,
        "goodput": tidy(_goodput(run)) if timed else None,
        **_to_target(run),
    }


def _goodput(run: RunRecord) -> float | None:
    """Return the share of computing in percent."""
    if "goodput" in run.summary:
        return 100.0 * float(run.summary["goodput"])
    computing, seconds = mean(as_list(run.rows[-1].get("computing"))), run.rows[-1][CLOCK]
    return 100.0 * computing / seconds if computing is not None and seconds else None


def _to_target(run: RunRecord) -> dict[str, Any]:
    target = run.values.get("target")
    if target is None:
        return dict.fromkeys(("seconds_to_target", "steps_to_target", "megabytes_to_target"))
    told: Mapping[str, Any] = run.summary
    if "steps_to_target" not in told:
        clock = CLOCK if run.processes is None else "seconds"
        rows = [{**row, "seconds": mean(as_list(row.get("seconds")))} for row in run.rows]
        told = to_target(str(target), rows, clock)
    sent = told["bytes_to_target"]
    if sent is None:
        return dict.fromkeys(("seconds_to_target", "steps_to_target", "megabytes_to_target"), NOT_REACHED)
    return {
        "seconds_to_target": tidy(told["seconds_to_target"]),
        "steps_to_target": tidy(told["steps_to_target"]),
        "megabytes_to_target": tidy(sent / 1e6),
    }
