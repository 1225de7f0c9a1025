"""How long messages take on links: a link is busy for bytes / bandwidth, the message arrives latency later."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError, unknown_name
from gossamer.testbed.block_draws import BlockDraws, exponential, lognormal
from gossamer.testbed.time_unit import SECOND, check_seconds
from gossamer.testbed.units import read_plain, read_seconds

LINK_BLOCK = 64  # messages; a network has more links than agents
MOST_SIGMA = 5.0


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


@dataclass(frozen=True)
class Jitter:
    """Extra latency of each message, on average `average` seconds: exponential, or lognormal with this sigma."""

    average: float
    sigma: float | None = None

    def __post_init__(self) -> None:
        check_seconds("jitter", self.average)
        if self.sigma is not None and not 0 <= self.sigma <= MOST_SIGMA:
            raise UserError(f"sigma of jitter must lie in [0, {MOST_SIGMA:g}], got {self.sigma}; try 0.5")

    def draws(self, seed: int) -> BlockDraws:
        """Return the extra nanoseconds of messages, by link and number."""
        mean, sigma = self.average * SECOND, self.sigma
        if sigma is None:
            return BlockDraws(seed, "testbed-jitter", lambda drawn: exponential(drawn, mean), size=LINK_BLOCK)
        return BlockDraws(
            seed, "testbed-jitter", lambda drawn: lognormal(drawn, mean, sigma), normal=True, size=LINK_BLOCK
        )


@dataclass(frozen=True, eq=False)
class RandomLinkTimes(LinkTimes):
    """Links with jitter, or that lose messages."""

    jitter: BlockDraws | None = None
    loss: npt.NDArray[np.float64] | None = None
    chances: BlockDraws | None = None

    @classmethod
    def of_run(cls, times: LinkTimes, seed: int, jitter: Jitter | None, loss: npt.NDArray[np.float64]) -> LinkTimes:
        """Add the draws of a run; links without any stay as they are."""
        lossy = bool((loss > 0).any())
        if jitter is None and not lossy:
            return times
        return cls(
            times.base_latency,
            times.bandwidth,
            times.uplink,
            None if jitter is None else jitter.draws(seed),
            loss if lossy else None,
            BlockDraws(seed, "testbed-loss", lambda drawn: drawn, size=LINK_BLOCK) if lossy else None,
        )

    def latency(self, link: int, number: int) -> int:
        extra = 0 if self.jitter is None else round(self.jitter.at(link, number))
        return int(self.base_latency[link]) + extra

    def lost(self, link: int, number: int) -> bool:
        if self.loss is None or self.chances is None:
            return False
        return bool(self.chances.at(link, number) < self.loss[link])


def parse_jitter(value: Any) -> Jitter | None:
    """Read '5ms' or 'exponential:5ms' (the mean of an exponential), or 'lognormal:5ms,0.5'."""
    if value is None or isinstance(value, Jitter):
        return value
    kind, colon, rest = value.strip().partition(":") if isinstance(value, str) else ("", "", "")
    if not colon:
        return _unless_zero(Jitter(read_seconds("jitter", value)))
    parts = rest.split(",")
    if kind not in ("exponential", "lognormal"):
        raise unknown_name("jitter", kind, ("exponential", "lognormal"))
    if len(parts) != (2 if kind == "lognormal" else 1):
        raise UserError(f"cannot read jitter '{value}'; write it like exponential:5ms or lognormal:5ms,0.5")
    sigma = read_plain("sigma of jitter", parts[1]) if kind == "lognormal" else None
    return _unless_zero(Jitter(read_seconds("jitter", parts[0]), sigma))


def _unless_zero(jitter: Jitter) -> Jitter | None:
    return jitter if jitter.average > 0 else None
