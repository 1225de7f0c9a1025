"""Shared memory to the peers on this host, and sockets to those on other hosts."""

from collections.abc import Callable, Sequence

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.base import Letter, Transport
from gossamer.shapes import Tensor


class AutoTransport(Transport):
    """Two transports that look like one.

    The host of a peer may be unknown at first, and may change when the peer restarts, so `same_host` is asked at every
    call. A message goes over each transport that a peer may use.
    """

    def __init__(
        self,
        peers: Sequence[int],
        shared: Transport,
        sockets: Transport,
        same_host: Callable[[int], bool | None],
    ) -> None:
        super().__init__()
        self.counts = shared.counts = sockets.counts  # one count for all
        self._peers, self._same_host = tuple(peers), same_host
        self._shared, self._sockets = shared, sockets
        self._length: int | None = None
        self._opened: list[Transport] = []

    def _of(self, peer: int) -> Transport | None:
        """Return the transport of a peer, or None while it is unknown."""
        here = self._same_host(peer)
        return None if here is None else self._shared if here else self._sockets

    def _used(self) -> list[Transport]:
        """Return the transports that some peer may use, each ready to publish."""
        needed = [self._of(peer) for peer in self._peers]
        used = [transport for transport in (self._shared, self._sockets) if transport in needed or None in needed]
        for transport in used:
            if self._length is not None and transport not in self._opened:
                transport.open(self._length)
                self._opened.append(transport)
        return used

    def open(self, length: int) -> None:
        """Open what is needed now; the other transport is opened when a peer needs it."""
        self._length = length
        self._used()

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        for transport in self._used():
            transport.publish(stamp, parts)

    def latest(self, peer: int) -> Letter | None:
        transport = self._of(peer)
        return None if transport is None else transport.latest(peer)

    def at(self, peer: int, sequence: int) -> Letter | None:
        transport = self._of(peer)
        return None if transport is None else transport.at(peer, sequence)

    def tick(self, step: int) -> None:
        self._shared.tick(step)
        self._sockets.tick(step)

    def offset(self, peer: int) -> int | None:
        transport = self._of(peer)
        return None if transport is None else transport.offset(peer)

    def flush(self, seconds: float) -> None:
        for transport in self._opened:
            transport.flush(seconds)

    def close(self) -> None:
        """Close both, the second one even if the first one fails."""
        try:
            self._shared.close()
        finally:
            self._sockets.close()
