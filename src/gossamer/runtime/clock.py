"""How far the clocks of two agents are apart, from probes that carry the four times of NTP."""

from collections import deque

SAMPLES = 16  # enough that one of them met an idle link; few enough that a drift of the clocks is followed


class Offset:
    """The nanoseconds to add to a peer's clock to have this agent's.

    A probe leaves at t0 on this clock, arrives at t1 and is answered at t2 on the peer's, and is back at t3 on this
    one. If both ways took equally long the offset is exact; it is never wrong by more than half the round trip. So
    the probe with the shortest round trip is the one to believe.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)

    def add(self, t0: int, t1: int, t2: int, t3: int) -> None:
        """Take one probe's times; those that no clocks could have shown are ignored."""
        round_trip = (t3 - t0) - (t2 - t1)
        if round_trip >= 0 and t2 >= t1:
            self._samples.append((round_trip, ((t0 - t1) + (t3 - t2)) // 2))

    @property
    def value(self) -> int | None:
        """Return the offset of the shortest round trip among the last probes, None before the first."""
        samples = tuple(self._samples)  # another thread may be adding
        return min(samples)[1] if samples else None
