"""When an agent that died is started again: after pauses that double, and not without end."""

import time
from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds
STEADY = 60.0  # an agent that lived so long was well: its next pause is the first one again


class Restarts:
    """The restarts of one agent. Counts over the whole run; only the pauses become short again."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.used = 0
        self._most, self._clock = most, clock
        self._pause = FIRST_PAUSE
        self._since = clock()

    def started(self) -> None:
        """Note that the agent begins to live now."""
        self._since = self._clock()

    @property
    def lived(self) -> float:
        """Seconds since the agent was started last."""
        return self._clock() - self._since

    def ended(self) -> float | None:
        """Note that the agent died; return the seconds to wait before it is started again, or None for never."""
        if self.used >= self._most:
            return None
        self.used += 1
        if self.lived >= STEADY:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause
