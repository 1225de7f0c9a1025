"""status.json: the progress of a run, for `gossamer watch` and other programs, written about once a second."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.run.folder import read_object
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import write_text

STATUS_FILE = "status.json"
EVERY = 1.0  # seconds between two writes; up to ten times as long where writing is slow
SHARE = 1 / 1000  # the largest fraction of the time to spend on writing
RUNNING = "running"

# The state of an agent. "rejoined": it died and was restarted; "done": it finished all steps; "down": on a testbed,
# it computes and hears nothing until its schedule brings it back.
ALIVE, DEAD, REJOINED, DONE, DOWN = "alive", "dead", "rejoined", "done", "down"


class StatusFile:
    """Writes the status of one run. A failed write, such as on a full disk, never stops the run."""

    def __init__(self, folder: Path, *, steps: int | None, steps_per_epoch: int | None = None) -> None:
        """Take the run folder. `steps` is None if unknown, as for a user's own training script."""
        self._path, self._steps, self._steps_per_epoch = folder / STATUS_FILE, steps, steps_per_epoch
        self._process = {"pid": os.getpid(), "host": socket.gethostname()}
        self._next_write = self._checked = 0.0

    def due(self) -> bool:
        """Return whether it is time for the next write."""
        self._checked = time.perf_counter()
        return self._checked >= self._next_write

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
        clock: Mapping[str, float | None] | None = None,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the status now.

        Args:
            ages: `ages[i][j]` is the current age of what agent i holds of agent j; None if nothing.
            clock: on a testbed, `sim_seconds` so far, and `sim_end`, None if the run ends after a number of steps.
        """
        content = {
            "step": step,
            "steps": self._steps if steps is None else steps,
            "epoch": step / self._steps_per_epoch if self._steps_per_epoch else None,
            "seconds": round(seconds, 3),
            **(clock or {}),
            "status": status,
            "time": round(time.time(), 3),
            **self._process,
            "agents": list(agents),
            "ages": ages,
            "losses": losses,
            "events": list(events),  # agents that died or rejoined, each with its time
        }
        with contextlib.suppress(OSError, UserError):
            write_text(self._path, to_json(content) + "\n", lasting=False)
        now = time.perf_counter()
        took = now - self._checked if self._next_write else 0.0
        self._next_write = now + min(max(EVERY, took / SHARE), 10 * EVERY)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return the last status of a run; None if it is missing or unreadable."""
    status = read_object(folder / STATUS_FILE)
    known = isinstance(status.get("status"), str) and isinstance(status.get("time"), float | int)
    return status if known else None
