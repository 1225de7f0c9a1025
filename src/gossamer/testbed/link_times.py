"""How long messages take on links: a link is busy for bytes / bandwidth, the message arrives latency later."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.testbed.time_unit import SECOND


@dataclass(frozen=True, eq=False)
class LinkTimes:
    """The links of one run, in the order of the network's pattern. Everything is a pure function of the seed.

    Attributes:
        base_latency: nanoseconds, of each link.
        bandwidth: bytes a second, of each link; infinity where a message takes no time to send.
        uplink: bytes a second that each agent can send in all, its messages one after the other; None: no such limit.
    """

    base_latency: npt.NDArray[np.int64]
    bandwidth: npt.NDArray[np.float64]
    uplink: npt.NDArray[np.float64] | None = None

    def latency(self, link: int, number: int) -> int:
        """Return the nanoseconds from the end of sending to the arrival, of a link's message of this number."""
        return int(self.base_latency[link])

    def lost(self, link: int, number: int) -> bool:
        """Say whether a link's message of this number is lost on the way."""
        return False

    def busy(self, link: int, sender: int, size: int) -> int:
        """Return the nanoseconds for which a message of so many bytes keeps the link busy."""
        rate = self.bandwidth[link] if self.uplink is None else min(self.bandwidth[link], self.uplink[sender])
        return round(size / float(rate) * SECOND)
