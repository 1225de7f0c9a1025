"""When a run saves a checkpoint: after every so many epochs, or as often as its time allows."""

import contextlib
import time
from collections.abc import Iterator

INTERVAL = 10.0  # seconds from one save to the next, at least
SHARE = 0.05  # the largest fraction of the time to spend on saving


class SaveSchedule:
    """Says after which epochs to save. `every` counts epochs; 0 means by the clock."""

    def __init__(self, every: int, steps_per_epoch: int) -> None:
        self._every, self._steps_per_epoch = every, steps_per_epoch
        self._next = time.monotonic() + INTERVAL

    def due(self, step: int) -> bool:
        """Return whether to save after this step."""
        if self._every:
            return step % (self._every * self._steps_per_epoch) == 0
        return step % self._steps_per_epoch == 0 and time.monotonic() >= self._next

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Measure a save, which sets the time of the next one."""
        begun = time.monotonic()
        yield
        now = time.monotonic()
        self._next = now + max(INTERVAL, (now - begun) / SHARE)
