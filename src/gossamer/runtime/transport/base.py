"""The interface of transports: publish the newest message, read the newest of each peer.

The newest message wins. A sender never waits for a receiver and keeps nothing for it: one that is slow, stopped or
dead costs no memory and no time. A receiver never waits for a sender: it looks at what is there.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.runtime.message import Stamp
from gossamer.shapes import Tensor

KEPT = 3  # the newest messages of a peer that `at` can still find


def always() -> bool:
    """Return True: a payload in own memory stays intact."""
    return True


@dataclass(slots=True, eq=False)
class Letter:
    """A message as it arrived.

    The payload may lie in memory that its sender will write over: copy it, then ask whether it was still `intact`.
    """

    stamp: Stamp
    payload: Tensor  # uint8, one dimension, contiguous
    age: int | None = None  # in iterations of the receiver; None: to be computed from the sender's clock
    arrived: int | None = None  # when it could be read first, in nanoseconds of this agent's clock; None: unknown
    intact: Callable[[], bool] = always


class Transport(ABC):
    """Messages of one agent to and from its peers. All methods return at once; none raises because of a peer."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # dropped messages by reason: "malformed", "corrupt", "torn", …

    @abstractmethod
    def open(self, length: int) -> None:
        """Make ready to publish payloads of so many bytes; called once, before the first one."""

    @abstractmethod
    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        """Make this the newest message: its payload is the bytes of these contiguous CPU tensors, one after another.

        They are copied before the call returns, so the caller may change them afterwards.
        """

    @abstractmethod
    def latest(self, peer: int) -> Letter | None:
        """Return the newest whole message of a peer, the same one again if there is no newer, or None."""

    @abstractmethod
    def at(self, peer: int, sequence: int) -> Letter | None:
        """Return the message of this iteration of the peer's present incarnation, if it is among the last KEPT."""

    def tick(self, step: int) -> None:  # noqa: B027 - most transports know nothing of iterations
        """Learn that the agent has published its iteration `step` and will now look at its peers' messages."""

    def offset(self, peer: int) -> int | None:
        """Return the nanoseconds to add to a peer's clock to have this agent's; None while that is unknown."""
        return 0

    def flush(self, seconds: float) -> None:  # noqa: B027 - what is written to memory stays there
        """Wait at most this long until all listeners have the newest message or have left."""

    @abstractmethod
    def close(self) -> None:
        """Leave: stop threads, close sockets, remove what would be left behind."""


class Wrapper(Transport):
    """A transport on top of another one: forwards everything; subclasses change what they must."""

    def __init__(self, inner: Transport) -> None:
        super().__init__()
        self.inner = inner
        self.counts = inner.counts

    def open(self, length: int) -> None:
        self.inner.open(length)

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        self.inner.publish(stamp, parts)

    def tick(self, step: int) -> None:
        self.inner.tick(step)

    def latest(self, peer: int) -> Letter | None:
        return self.inner.latest(peer)

    def at(self, peer: int, sequence: int) -> Letter | None:
        return self.inner.at(peer, sequence)

    def offset(self, peer: int) -> int | None:
        return self.inner.offset(peer)

    def flush(self, seconds: float) -> None:
        self.inner.flush(seconds)

    def close(self) -> None:
        self.inner.close()
