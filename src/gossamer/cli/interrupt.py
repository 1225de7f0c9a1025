"""Stop a run without losing work: finish the step, save the run, then end the program."""

import math
import signal
import time
import types

from gossamer.errors import UserError

INTERRUPTED = 130  # the exit status that a shell expects after Ctrl+C
TERMINATED = 143  # … and after SIGTERM
STOPPED = ("interrupted", "time limit")  # a run with one of these statuses was saved and can be resumed


class Interrupt:
    """Within the context, the first SIGINT or SIGTERM sets a flag; a second one ends the program at once.

    The time limit counts from the start of the context.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        if time_limit is not None and not time_limit > 0:
            raise UserError(f"time limit must be more than 0 seconds, got {time_limit:g}; use for example 3600")
        self.requested = False
        self.status = INTERRUPTED  # of a program that the first signal ends
        self._seconds = math.inf if time_limit is None else time_limit

    def __call__(self) -> str | None:
        """Return the reason to stop now, or None to go on."""
        if self.requested:
            return "interrupted"
        return "time limit" if time.monotonic() >= self._deadline else None

    def __enter__(self) -> "Interrupt":
        self._deadline = time.monotonic() + self._seconds
        self._before = {number: signal.signal(number, self._catch) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: types.FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.status = TERMINATED if number == signal.SIGTERM else INTERRUPTED
