"""What agents report to the launcher, written into the run's folder: status.json, and samples as metrics.jsonl."""

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.run.metric_rows import mean
from gossamer.run.status import ALIVE, DEAD, DONE, REJOINED, RUNNING, StatusFile
from gossamer.run.strict_json import to_json
from gossamer.runtime.launch.job import LaunchJob, LaunchReport, Watcher
from gossamer.train.processes.merged_rows import age_matrix

SILENCE = 10.0  # seconds without a post after which an agent of another launcher counts as dead
EVENTS = 50  # the newest ones that are kept
FIRST_INTERVAL = 2.0  # seconds between two samples at first
SAMPLES_PER_RUN = 300  # later an interval is the time so far over this, so that a long run has few more samples

Rows = list[dict[str, Any]]
OnStatus = Callable[[Rows, float], None]  # the agents' rows, and the seconds since the start


class StatusRecorder(Watcher):
    """Forwards all events to another watcher, and writes status.json about once a second."""

    def __init__(self, watcher: Watcher, file: StatusFile, also: OnStatus | None = None) -> None:
        """`also` is called whenever the file is written."""
        self._watcher, self._file, self._also = watcher, file, also
        self._begun = time.monotonic()
        self._rows: Rows = []
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._heard: dict[int, tuple[Any, float]] = {}  # by rank: the last post's time, and when it came

    def event(self, text: str) -> None:
        """Keep the event, and forward it."""
        self._events.append({"time": round(time.time(), 3), "text": text})
        self._watcher.event(text)

    def output(self, rank: int, lines: list[str]) -> None:
        """Forward."""
        self._watcher.output(rank, lines)

    def listens_to(self, rank: int) -> bool:
        """Forward."""
        return self._watcher.listens_to(rank)

    def status(self, rows: Rows) -> None:
        """Forward, and write the file if it is due."""
        self._watcher.status(rows)
        self._rows = rows
        if self._file.due():
            self._write(RUNNING)

    def end(self, status: str) -> None:
        """Write how the run ended."""
        self._write(status)

    def _write(self, status: str) -> None:
        rows, seconds = self._rows, time.monotonic() - self._begun
        agents = [self._agent(row) for row in rows]
        running = [agent["step"] for agent in agents if agent["state"] != DEAD] or [a["step"] for a in agents]
        steps = [row["steps"] for row in rows if is_number(row.get("steps"))]  # where a script reports it
        self._file.write(
            min(running, default=0),
            seconds,
            agents,
            status=status,
            ages=age_matrix([row.get("ages") for row in rows]),
            losses=[row.get("loss") if is_number(row.get("loss")) else None for row in rows]
            if any("loss" in row for row in rows)
            else None,
            steps=int(max(steps)) if steps else None,
            events=list(self._events),
        )
        if self._also is not None:
            self._also(rows, seconds)

    def _agent(self, row: dict[str, Any]) -> dict[str, Any]:
        restarts = int(row.get("restarts") or 0)
        step = int(row["step"]) if is_number(row.get("step")) else 0
        agent = {"state": self._state(row, restarts), "step": step, "restarts": restarts}
        loss = row.get("loss")
        return {**agent, "nonfinite": True} if isinstance(loss, float) and not math.isfinite(loss) else agent

    def _state(self, row: dict[str, Any], restarts: int) -> str:
        """Return an agent's state; an agent of another launcher counts as dead when it is silent."""
        alive = REJOINED if restarts else ALIVE
        known = {"running": alive, "waiting": DEAD, "failed": DEAD, "done": DONE}
        if row["state"] in known:
            return known[row["state"]]
        now, posted = time.monotonic(), row.get("seconds")  # different in every post
        if row["rank"] not in self._heard or self._heard[row["rank"]][0] != posted:
            self._heard[row["rank"]] = posted, now
        return alive if now - self._heard[row["rank"]][1] < SILENCE else DEAD


def how_it_ended(report: LaunchReport) -> str:
    """Return the final status of a launch."""
    if report.hopeless:
        return report.hopeless
    if report.interrupted:
        return "interrupted"
    failed = ", ".join(str(outcome.rank) for outcome in report.failed)
    return f"failed agents: {failed}" if failed else "finished"


def is_number(value: Any) -> bool:
    """Say whether this is a finite number: agents may report anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Samples:
    """Adds rows to metrics.jsonl while a launched script runs: loss, accuracy if reported, ages, bytes."""

    def __init__(self, folder: Path) -> None:
        self._path, self._next, self._step = folder / "metrics.jsonl", 0.0, -1

    def take(self, rows: Rows, seconds: float) -> None:
        """Add a row, if it is time and the furthest agent has moved; a restarted agent may be far behind."""
        step = max((int(row["step"]) for row in rows if is_number(row.get("step"))), default=-1)
        if seconds < self._next or step <= self._step:
            return
        self._next, self._step = seconds + max(FIRST_INTERVAL, seconds / SAMPLES_PER_RUN), step
        with self._path.open("a", encoding="utf-8") as file:
            file.write(to_json(_sample(rows, self._step, seconds)) + "\n")


def _sample(rows: Rows, step: int, seconds: float) -> dict[str, Any]:
    ages = age_matrix([row.get("ages") for row in rows])
    return {
        "step": step,
        "accuracy": _of_each(rows, "accuracy"),
        "train_loss": _of_each(rows, "loss"),
        "predict": _of_each(rows, "predict"),
        "message_age": mean(age for of_one in ages or [] for age in of_one),
        "bytes_sent": [int(row["sent"]) if is_number(row.get("sent")) else 0 for row in rows],
        "ages": ages,
        "seconds": round(seconds, 4),
    }


def _of_each(rows: Rows, name: str) -> list[float | None] | None:
    """Return each agent's report of this name; None if no agent reports it."""
    values = [float(row[name]) if is_number(row.get(name)) else None for row in rows]
    return values if any(value is not None for value in values) else None


def with_recorder(job: LaunchJob, watcher: Watcher) -> Watcher:
    """Return a watcher that also writes status.json and metrics.jsonl, in the launcher of agent 0."""
    if 0 not in job.ranks:
        return watcher
    return StatusRecorder(watcher, StatusFile(job.folder, steps=None), also=Samples(job.folder).take)
