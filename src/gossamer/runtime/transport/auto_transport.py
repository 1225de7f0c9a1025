"""The fastest transport for each link: shared memory on one host, sockets between hosts."""

from collections import Counter
from collections.abc import Callable, Sequence

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.base import Letter, Transport
from gossamer.shapes import Tensor


class AutoTransport(Transport):
    """Two transports that look like one.

    Where a peer is may be unknown at first, and may change when it comes back on another host, so `same_host` is asked
    at every call. A message goes over every transport on which a peer may listen.
    """

    def __init__(
        self,
        peers: Sequence[int],
        shared: Transport | None,
        sockets: Transport | None,
        same_host: Callable[[int], bool | None],
    ) -> None:
        if shared is None and sockets is None:
            raise ValueError("links need a transport")
        self._seen: Counter[str] = Counter()
        super().__init__()
        self._peers, self._same_host = tuple(peers), same_host
        self._shared, self._sockets = shared, sockets
        self._length: int | None = None
        self._opened: list[Transport] = []

    @property
    def counts(self) -> Counter[str]:
        """What was counted here and in both transports."""
        seen: Counter[str] = Counter()
        for transport in self._transports():
            seen.update(dict(transport.counts))  # a copy, as a transport's thread may be counting
        self._counts.update(seen - self._seen)
        self._seen = seen
        return self._counts

    @counts.setter
    def counts(self, counts: Counter[str]) -> None:
        self._counts = counts

    def _transports(self) -> list[Transport]:
        return [transport for transport in (self._shared, self._sockets) if transport is not None]

    def _to(self, peer: int) -> Transport | None:
        """Return the way to and from a peer, or None while it is unknown."""
        if self._shared is None or self._sockets is None:
            return self._shared or self._sockets
        here = self._same_host(peer)
        return None if here is None else self._shared if here else self._sockets

    def _used(self) -> list[Transport]:
        """Return the transports on which some peer may listen, each ready to publish."""
        ways = [self._to(peer) for peer in self._peers]
        used = [transport for transport in self._transports() if transport in ways or None in ways]
        for transport in used:
            if self._length is not None and transport not in self._opened:
                transport.open(self._length)
                self._opened.append(transport)
        return used

    def open(self, length: int) -> None:
        """Open what is needed now; the other transport is opened when a peer comes that needs it."""
        self._length = length
        self._used()

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        """Publish by every way that some peer may listen on."""
        for transport in self._used():
            transport.publish(stamp, parts)

    def latest(self, peer: int) -> Letter | None:
        """Return the newest message of a peer, from where the peer is now."""
        transport = self._to(peer)
        return None if transport is None else transport.latest(peer)

    def at(self, peer: int, sequence: int) -> Letter | None:
        """Return one of the last messages of a peer, from where the peer is now."""
        transport = self._to(peer)
        return None if transport is None else transport.at(peer, sequence)

    def tick(self, step: int) -> None:
        """Tell both."""
        for transport in self._transports():
            transport.tick(step)

    def offset(self, peer: int) -> int | None:
        """Return the offset of the peer's clock, from where the peer is now."""
        transport = self._to(peer)
        return None if transport is None else transport.offset(peer)

    def flush(self, seconds: float) -> None:
        """Wait for both."""
        for transport in self._opened:
            transport.flush(seconds)

    def close(self) -> None:
        """Close both, the second one even where the first one fails to."""
        try:
            if self._shared is not None:
                self._shared.close()
        finally:
            if self._sockets is not None:
                self._sockets.close()
