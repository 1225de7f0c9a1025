"""Ctrl+C that loses nothing: the iteration is finished, the run saved, then the program ends."""

import signal
import types

INTERRUPTED = 130  # the exit status that a shell expects after Ctrl+C


class Interrupt:
    """Within the context, the first SIGINT or SIGTERM sets a flag; a second one ends the program at once."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        """Say whether to stop."""
        return self.requested

    def __enter__(self) -> "Interrupt":
        self._before = {number: signal.signal(number, self._catch) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: types.FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
