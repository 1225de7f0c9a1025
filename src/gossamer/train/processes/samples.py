"""The metrics of a script of a user's own: samples of what its agents say of themselves while they run."""

import statistics
from pathlib import Path
from typing import Any

from gossamer.run.folder import to_json
from gossamer.run.status import StatusFile
from gossamer.runtime.launch.job import LaunchJob, Watcher
from gossamer.train.processes.launch_status import Rows, StatusRecorder, is_number
from gossamer.train.processes.merged_rows import age_matrix

OFTEN = 2.0  # seconds between two samples at first
SPREAD = (
    300  # … and later this fraction of the time so far, so that a long run has hardly more samples than a short one
)


class Samples:
    """Adds a row to metrics.jsonl now and then: loss, accuracy where agents report it, ages, bytes."""

    def __init__(self, folder: Path) -> None:
        self._path, self._next, self._step = folder / "metrics.jsonl", 0.0, -1

    def take(self, rows: Rows, seconds: float) -> None:
        """Take a sample, if it is time for one and the furthest agent has moved: one that returns may be far behind."""
        step = max((int(row["step"]) for row in rows if is_number(row.get("step"))), default=-1)
        if seconds < self._next or step <= self._step:
            return
        self._next, self._step = seconds + max(OFTEN, seconds / SPREAD), step
        with self._path.open("a", encoding="utf-8") as file:
            file.write(to_json(_sample(rows, self._step, seconds)) + "\n")


def _sample(rows: Rows, step: int, seconds: float) -> dict[str, Any]:
    ages = age_matrix([row.get("ages") for row in rows])
    heard = [age for of_one in ages or [] for age in of_one if age is not None]
    return {
        "step": step,
        "accuracy": _of_each(rows, "accuracy"),
        "train_loss": _of_each(rows, "loss"),
        "predict": _of_each(rows, "predict"),
        "message_age": statistics.fmean(heard) if heard else None,
        "bytes_sent": [int(row["sent"]) if is_number(row.get("sent")) else 0 for row in rows],
        "ages": ages,
        "seconds": round(seconds, 4),
    }


def _of_each(rows: Rows, name: str) -> list[float | None] | None:
    """Return what each agent says under this name; None where none says anything."""
    values = [float(row[name]) if is_number(row.get(name)) else None for row in rows]
    return values if any(value is not None for value in values) else None


def with_recorder(job: LaunchJob, watcher: Watcher) -> Watcher:
    """Return a watcher that also writes status.json and metrics.jsonl into a launch's folder.

    Of the launchers of one run, the one with agent 0 does.
    """
    if 0 not in job.ranks:
        return watcher
    return StatusRecorder(watcher, StatusFile(job.folder, steps=None), also=Samples(job.folder).take)
