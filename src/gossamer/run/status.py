"""How far a run is, in a small file for those who look on: status.json, written about once a second."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.run.folder import to_json
from gossamer.state.checkpoint import write_text

STATUS_FILE = "status.json"
EVERY = 1.0  # seconds between two; where writing one takes long, up to ten times as many
SHARE = 1 / 1000  # of the time that writing may take
RUNNING = "running"

# How an agent fares: "rejoined" lives again after it had died, "done" has come to its end.
ALIVE, DEAD, REJOINED, DONE = "alive", "dead", "rejoined", "done"


class StatusFile:
    """The status of one run. Writing it never disturbs the run, not even where the disk is full."""

    def __init__(self, folder: Path, *, steps: int | None, steps_per_epoch: int | None = None) -> None:
        """Take the folder; how many steps a script of a user's own takes is not known."""
        self._path, self._steps, self._steps_per_epoch = folder / STATUS_FILE, steps, steps_per_epoch
        self._who = {"pid": os.getpid(), "host": socket.gethostname()}
        self._next = self._asked = 0.0

    def due(self) -> bool:
        """Say whether the last one is old enough."""
        self._asked = time.perf_counter()
        return self._asked >= self._next

    def write(
        self,
        step: int,
        seconds: float,
        agents: Sequence[Mapping[str, Any]],
        *,
        status: str = RUNNING,
        ages: list[list[Any]] | None = None,
        losses: list[Any] | None = None,
        steps: int | None = None,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write it now. `ages` are the newest ones, of what agent i holds of j; None where it holds nothing."""
        content = {
            "step": step,
            "steps": self._steps if steps is None else steps,
            "epoch": step / self._steps_per_epoch if self._steps_per_epoch else None,
            "seconds": round(seconds, 3),
            "status": status,
            "time": round(time.time(), 3),
            **self._who,
            "agents": list(agents),
            "ages": ages,
            "losses": losses,
            "events": list(events),  # lines about agents that died or came back, each with its time
        }
        with contextlib.suppress(OSError, UserError):
            write_text(self._path, to_json(content) + "\n", lasting=False)
        now = time.perf_counter()
        took = now - self._asked if self._next else 0.0
        self._next = now + min(max(EVERY, took / SHARE), 10 * EVERY)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return what a run last said of itself; None where it never did, or where that cannot be read."""
    try:
        status = json.loads((folder / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(status, dict) and isinstance(status.get("status"), str)
    return status if known and isinstance(status.get("time"), float | int) else None
