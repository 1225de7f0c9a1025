"""How one thread wakes another that waits for sockets: a pipe, as ZeroMQ's own sockets belong to one thread."""

import contextlib
import os
import threading


class Bell:
    """Rung by any thread; `handle` is readable from then on until the one that waits hushes it."""

    def __init__(self) -> None:
        self.handle, self._end = os.pipe()
        os.set_blocking(self.handle, False)
        os.set_blocking(self._end, False)
        self._lock = threading.Lock()  # a number that was closed may by then belong to another file
        self._closed = False

    def ring(self) -> None:
        """Wake the one that waits; never waits itself."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it has been rung often enough
            if not self._closed:
                os.write(self._end, b"!")

    def hush(self) -> None:
        """Be ready for the next ring."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.handle, 4096)

    def close(self) -> None:
        """Ring no more."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.handle)
                os.close(self._end)
