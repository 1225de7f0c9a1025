"""Latencies that a run has recorded, replayed message by message."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gossamer.network import Links
from gossamer.testbed.link_times import LinkTimes
from gossamer.testbed.place_table import PlaceTable
from gossamer.testbed.time_unit import to_nanoseconds


@dataclass(frozen=True)
class LinkRecord:
    """The messages of one link: their numbers, ascending, and the nanoseconds that each was on its way."""

    numbers: Sequence[int]
    nanoseconds: Sequence[int]

    def nearest(self, number: int) -> int:
        """Return the latency of the message with the nearest number; of two, the earlier one."""
        place = bisect_left(self.numbers, number)
        if place == len(self.numbers) or (
            place > 0 and number - self.numbers[place - 1] <= self.numbers[place] - number
        ):
            place -= 1
        return self.nanoseconds[place]


@dataclass(frozen=True, eq=False)
class RecordedLatencies(PlaceTable):
    """The mean latency between agents [from, to] as a table, and each recorded message.

    Links without a recorded message have the mean of all messages.
    """

    of_links: Mapping[tuple[int, int], LinkRecord]

    @classmethod
    def of_rows(cls, agents: int, rows: Mapping[tuple[int, int], Mapping[int, float]]) -> "RecordedLatencies":
        """Make them of each link's (from, to) seconds by message number."""
        every = [seconds for messages in rows.values() for seconds in messages.values()]
        table = np.full((agents, agents), np.mean(every) if every else 0.0)
        of_links = {}
        for link, messages in rows.items():
            numbers = sorted(messages)
            of_links[link] = LinkRecord(numbers, [to_nanoseconds(messages[number]) for number in numbers])
            table[link] = np.mean(list(messages.values()))
        return cls(np.arange(agents), table, of_links)

    def replayed(self, times: LinkTimes, links: Links) -> LinkTimes:
        """Return link times whose latency is the recorded one, and all else as in `times`."""
        pairs = zip(links.senders.tolist(), links.receivers.tolist(), strict=True)
        records = [self.of_links.get(pair) for pair in pairs]
        return ReplayedLatency(times.base_latency, times.bandwidth, times.uplink, others=times, records=records)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReplayedLatency(LinkTimes):
    """Links with the recorded latencies in place of the mean one."""

    others: LinkTimes
    records: Sequence[LinkRecord | None]

    def latency(self, link: int, number: int) -> int:
        with_mean, record = self.others.latency(link, number), self.records[link]
        return with_mean if record is None else with_mean - int(self.base_latency[link]) + record.nearest(number)

    def lost(self, link: int, number: int) -> bool:
        return self.others.lost(link, number)
