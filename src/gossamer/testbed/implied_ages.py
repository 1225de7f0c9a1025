"""The age in own steps that messages of a size have on each link, once a run is steady.

A sender ends an iteration every p, its receiver every r. A message keeps the link busy for b and arrives L later; c is
the time until the sender can send on the link again: b, or with a shared uplink the sum of b over its links.

A message of stamp S is used from its arrival until the next one arrives. If the link keeps up (c <= p), that is from S
+ b + L to S + p + c + L. Otherwise the link always sends. Its message has waited for w <= p (what waits goes before
what is published at that moment), and is used from S + w + b + L to S + w + c + b + L. The receiver ends iterations at
multiples of r, so the age at T is the whole part of (T - S) / r; the largest is the last one before the next message
arrives. It is exact for constant times where the link keeps up, and for equal speeds; else, and for a shared uplink, it
is an upper bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from gossamer.network import Links
from gossamer.testbed.link_times import Jitter
from gossamer.testbed.testbed import Testbed
from gossamer.testbed.time_unit import MOST, SECOND, to_seconds

Whole = npt.NDArray[np.int64]  # of each link

ROUNDS = 840  # a multiple of 1 to 8, over which the pace of synchronous rounds repeats


@dataclass(frozen=True, eq=False)
class SteadyLinks:
    """The links of a testbed at mean times, in nanoseconds, for messages of one size.

    Attributes:
        links: the links.
        iteration: how long an iteration of each agent takes.
        busy: how long a message keeps its link busy.
        cycle: the time until the sender can send on this link again.
        latency: from the end of sending to the arrival, with the mean jitter.
    """

    links: Links
    iteration: Whole
    busy: Whole
    cycle: Whole
    latency: Whole

    @classmethod
    def of(cls, bed: Testbed, links: Links, message_bytes: float | int | npt.ArrayLike) -> "SteadyLinks":
        """Take the mean times of a testbed; messages have one size, or one for each link."""
        times = bed.links(links, seed=0)
        rate, cycle = times.bandwidth, None
        senders = links.senders.numpy()
        if times.uplink is not None:
            rate = np.minimum(rate, times.uplink[senders])
        busy = _nanoseconds(np.asarray(message_bytes, dtype=np.float64) / rate)
        if times.uplink is not None:
            cycle = np.minimum(np.bincount(senders, busy, bed.agents)[senders], MOST * SECOND).astype(np.int64)
        extra = round(bed.jitter.average * SECOND) if isinstance(bed.jitter, Jitter) else 0
        mean = _nanoseconds(np.asarray(bed.compute.mean(bed.agents), dtype=np.float64) * bed.step_seconds)
        return cls(links, mean, busy, busy if cycle is None else cycle, times.base_latency + extra)

    @property
    def transfer(self) -> Whole:
        """The time from the beginning of sending to the arrival."""
        return self.busy + self.latency

    def ages(self) -> tuple[Whole, Whole]:
        """Return the least and the largest age on each link."""
        period = self.iteration[self.links.senders.numpy()]
        own = self.iteration[self.links.receivers.numpy()]
        crowded = self.cycle > period
        waited = np.where(crowded, period, 0)  # at most: what waits goes before what is published at that moment
        last = np.where(crowded, waited + self.cycle + self.busy, period + self.cycle) + self.latency
        between = np.gcd(period, own)  # all begin together, so T - S is a multiple of this
        least = _up(self.transfer, between) * between // own
        largest = _up(last, own) - 1
        return np.minimum(least, largest), largest

    def round_seconds(self) -> float:
        """Return the mean seconds of a synchronous round: an agent begins one when all messages of the last are there.

        The rounds are played from a common start; their pace is taken from the second half.
        """
        links = self.links
        senders, filled = links.senders.numpy(), np.flatnonzero(np.diff(links.starts.numpy()))
        first = links.starts.numpy()[filled]
        ends = self.iteration.astype(np.float64)
        sent = np.zeros(len(links))  # when each link is free again
        middle = ends
        for number in range(2 * ROUNDS):
            if number == ROUNDS:
                middle = ends
            sent = np.maximum(ends[senders], sent) + self.cycle
            begins = ends.copy()
            if len(filled):
                begins[filled] = np.maximum(ends[filled], np.maximum.reduceat(sent + self.latency, first))
            ends = begins + self.iteration
        return to_seconds(round(float((ends - middle).max()) / ROUNDS))


def implied_ages(bed: Testbed, links: Links, message_bytes: float | int | npt.ArrayLike) -> Whole:
    """Return the largest age in own steps of messages on each link, at the mean times of the testbed.

    Messages have one size, or one for each link.
    """
    return SteadyLinks.of(bed, links, message_bytes).ages()[1]


def clusters_of(links: Links, ages: Whole, tolerance: int) -> list[list[int]]:
    """Return the groups of agents whose links in both directions have at most this age, in order; also single ones."""
    current = torch.from_numpy(ages <= tolerance)
    both = current & (links.reverse >= 0) & current[links.reverse]
    members: dict[int, list[int]] = {}
    for agent, number in enumerate(links.part(both).components().tolist()):
        members.setdefault(number, []).append(agent)
    return sorted(members.values())


def first_clusters(links: Links, ages: Whole, tolerance: int) -> tuple[int, list[list[int]]]:
    """Return the least tolerance, from this one on, at which agents form groups, and the groups."""
    opposite = ages[links.reverse.numpy()]
    both = np.where(links.reverse.numpy() >= 0, np.maximum(ages, opposite), ages.max(initial=0) + 1)
    needed = max(tolerance, int(both.min(initial=np.iinfo(np.int64).max))) if len(both) else tolerance
    return needed, clusters_of(links, ages, needed)


def _up(numerator: Whole, denominator: Whole) -> Whole:
    return -(-numerator // denominator)


def _nanoseconds(seconds: npt.NDArray[np.float64] | Sequence[float]) -> Whole:
    found: Whole = np.rint(np.minimum(np.asarray(seconds, dtype=np.float64), MOST) * SECOND).astype(np.int64)
    return found
