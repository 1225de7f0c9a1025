"""The x axes of charts: where an evaluation stands on each of them, and how evaluations of several seeds meet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.errors import UserError, unknown_name
from gossamer.run.metric_rows import LabelledRun, as_list, mean

Row = Mapping[str, Any]
CLOCK = "sim_seconds"  # the time of an evaluation on a testbed


@dataclass(frozen=True)
class Axis:
    """An x axis of the charts: the place of a row of metrics on it, and why a run may lack it."""

    key: str
    title: str
    switch: str  # the word on the switch
    place: Callable[[Row], float | int | None]
    lacking: str = ""


def _megabytes(row: Row) -> float | int | None:
    sent = as_list(row.get("bytes_sent"))
    return sum(sent) / 1e6 if sent and None not in sent else None


AXES = {
    axis.key: axis
    for axis in (
        Axis("iterations", "Iterations", "Iterations", lambda row: row["step"]),
        Axis("epochs", "Epochs", "Epochs", lambda row: row.get("epoch"), lacking="does not count epochs"),
        Axis(
            *(CLOCK, "Simulated seconds", "Simulated s", lambda row: row.get(CLOCK)),
            lacking="was trained without a testbed, so it has no simulated seconds; train it with --testbed",
        ),
        Axis(
            *("seconds", "Seconds of training", "Seconds", lambda row: mean(as_list(row.get("seconds")))),
            lacking="was written by an older version, without seconds; train it again",
        ),
        Axis(
            *("megabytes", "Megabytes sent by all agents", "MB sent", _megabytes),
            lacking="does not say how many bytes were sent",
        ),
    )
}


def is_timed(rows: Sequence[Row]) -> bool:
    """Say whether a run has rows, and all of them simulated seconds."""
    return bool(rows) and all(row.get(CLOCK) is not None for row in rows)


def offered_axes(histories: Iterable[Sequence[Row]]) -> list[Axis]:
    """Return the axes to choose from: without simulated seconds if no run has them."""
    timed = any(is_timed(rows) for rows in histories)
    return [axis for axis in AXES.values() if timed or axis.key != CLOCK]


def usual_axis(histories: Iterable[Sequence[Row]]) -> Axis:
    """Return simulated seconds if all runs have them, otherwise iterations."""
    told = list(histories)
    return AXES[CLOCK if told and all(is_timed(rows) for rows in told) else "iterations"]


def axis_of(runs: Sequence[LabelledRun], key: str | None) -> Axis:
    """Return the axis of this name, which all runs must have; without a name, the usual one."""
    if key is None:
        return usual_axis(run.history for run in runs)
    if key not in AXES:
        raise unknown_name("axis", key, AXES)
    axis = AXES[key]
    for run in runs:
        if any(axis.place(row) is None for row in run.history):
            raise UserError(f"axis '{key}' is not possible: run '{run.label}' {axis.lacking or 'lacks it'}")
    return axis


def shared_clock(histories: Sequence[Sequence[Row]]) -> str:
    """Return the key at whose values seeds are compared: step, or simulated seconds where more evaluations share them.

    Evaluated by time, agents of random speed have done different numbers of steps, and slow agents none since the
    last evaluation. Evaluated by steps, they have needed different times.
    """
    if not all(is_timed(rows) for rows in histories):
        return "step"
    shared = {key: set.intersection(*({row[key] for row in rows} for rows in histories)) for key in (CLOCK, "step")}
    return max(shared, key=lambda key: len(shared[key]))  # of equals, the first


def places_by_mark(histories: Sequence[Sequence[Row]], axes: Sequence[Axis]) -> dict[float, dict[str, float | None]]:
    """Return the place of each mark of the shared clock on the axes: the mean over the seeds that have the mark."""
    rows: dict[float, list[Row]] = {}
    clock = shared_clock(histories)
    for history in histories:
        for row in history:
            rows.setdefault(float(row[clock]), []).append(row)
    return {mark: {axis.key: mean(axis.place(row) for row in same) for axis in axes} for mark, same in rows.items()}
