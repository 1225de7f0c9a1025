"""Messages under way: what an agent published, and the channels that carry it."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.sender_steps import Published, estimate_sender_steps
from gossamer.testbed import LinkTimes

MOST_LOGGED = 5000  # messages, and spells of agents, that a picture of the run can show
START = Published(-1, 0)  # of a run: iteration 0 begins


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What an agent published at the end of an iteration.

    Attributes:
        iteration: the sender's iteration.
        stamp: the time at which it ended, in nanoseconds.
        content: the parts of the message; the timetable does not look into it.
    """

    iteration: int
    stamp: int
    content: Any

    @property
    def published(self) -> Published:
        """The iteration and the stamp."""
        return Published(self.iteration, self.stamp)


@dataclass(slots=True, eq=False)
class Flight:
    """A message that has been sent: it is lost if its sender stops before `sent`, and arrives at `arrival`."""

    sent: int
    arrival: int
    message: Message


class Channel:
    """A link, or the uplink that all links of a sender share. It carries one message at a time.

    While it is busy, the newest message of each link waits, in the order in which links came, and replaces the one that
    waits already. With `queues` nothing is replaced: rules that wait for every message need them all. A channel is free
    at the end of sending: a message that waits begins then, before one that is published at that time.
    """

    __slots__ = ("busy_until", "waiting")

    def __init__(self) -> None:
        self.busy_until = 0
        self.waiting: list[tuple[int, Message]] = []  # (link, message)


class Deliveries:
    """The channels of a run, the messages in flight, and what each receiver holds."""

    def __init__(
        self, times: LinkTimes, receivers: list[int], senders: list[int], sizes: list[int], *, queues: bool
    ) -> None:
        """`sizes` are the bytes of a message on each link."""
        self.times, self.receivers, self.senders = times, receivers, senders
        self._queues = queues
        count = len(senders)
        shared = times.uplink is not None
        made = [Channel() for _ in range(1 + max(senders, default=0) if shared else count)]
        self.channels = made
        self.channel_of = [made[senders[link] if shared else link] for link in range(count)]
        self.flights: list[deque[Flight]] = [deque() for _ in range(count)]
        self.held: list[Message | None] = [None] * count
        self.before: list[Message | None] = [None] * count  # the message that was held before: tells a sender's speed
        self.heard_at = [0] * count  # when the newest message arrived
        self.interval = [0.0] * count  # between two arrivals, a running mean; 0: unknown
        self.up = [True] * count
        self.sent = [0] * (1 + max([*receivers, *senders], default=0))  # bytes of each agent
        self.log: list[tuple[int, int, int, int]] = []  # (sender, receiver, begin, arrival) of the first messages
        self._sizes = sizes
        self._busy = [times.busy(link, senders[link], sizes[link]) for link in range(count)]

    def publish(self, link: int, message: Message, now: int) -> None:
        """Send a message, or let it wait until the channel is free."""
        channel = self.channel_of[link]
        self._progress(channel, now)
        if channel.busy_until <= now and not channel.waiting:
            self._send(channel, link, message, now)
            return
        if not self._queues:
            for place, (other, _) in enumerate(channel.waiting):
                if other == link:
                    channel.waiting[place] = (link, message)
                    return
        channel.waiting.append((link, message))

    def _progress(self, channel: Channel, now: int) -> None:
        """Send what waits and could begin by now."""
        while channel.waiting and channel.busy_until <= now:
            link, message = channel.waiting.pop(0)
            self._send(channel, link, message, channel.busy_until)

    def _send(self, channel: Channel, link: int, message: Message, begin: int) -> None:
        channel.busy_until = sent = begin + self._busy[link]
        self.sent[self.senders[link]] += self._sizes[link]
        if self.times.lost(link, message.iteration):
            return
        arrival = sent + self.times.latency(link, message.iteration)
        self.flights[link].append(Flight(sent, arrival, message))
        if len(self.log) < MOST_LOGGED:
            self.log.append((self.senders[link], self.receivers[link], message.stamp, arrival))

    def arrival(self, link: int, iteration: int) -> int | None:
        """Return when a message arrives that has been published; None if it was lost. For channels that queue."""
        channel = self.channel_of[link]
        if channel.waiting:  # nothing is replaced, so all times are known
            self._progress(channel, 2**62)
        return next((flight.arrival for flight in self.flights[link] if flight.message.iteration == iteration), None)

    def take(self, link: int, now: int) -> bool:
        """Let the receiver hold the newest message that has arrived; say whether it is another one."""
        channel, flights = self.channel_of[link], self.flights[link]
        if channel.waiting:
            self._progress(channel, now)
        new = False
        if not flights or (len(flights) == 1 and flights[0].arrival > now):
            return False
        for flight in [flight for flight in flights if flight.arrival <= now]:
            flights.remove(flight)
            held = self.held[link]
            if held is None or flight.message.iteration > held.iteration:
                self._hold(link, flight)
                new = True
        return new

    def _hold(self, link: int, flight: Flight) -> None:
        if self.held[link] is not None:
            gap = flight.arrival - self.heard_at[link]
            self.interval[link] += (gap - self.interval[link]) * (0.1 if self.interval[link] else 1.0)
        self.before[link], self.held[link] = self.held[link], flight.message
        self.heard_at[link] = flight.arrival

    def take_numbered(self, link: int, iteration: int, now: int) -> bool:
        """Let the receiver hold the message of one iteration, if it has arrived; say whether it has."""
        self._progress(self.channel_of[link], now)
        found = [flight for flight in self.flights[link] if flight.message.iteration == iteration]
        self.flights[link] = deque(flight for flight in self.flights[link] if flight.message.iteration > iteration)
        if not found or found[0].arrival > now:
            return False
        self._hold(link, found[0])
        return True

    def cut(self, link: int, now: int) -> None:
        """Lose what is being sent or waits: the sender stops."""
        channel = self.channel_of[link]
        self._progress(channel, now)
        channel.waiting = [(other, message) for other, message in channel.waiting if other != link]
        if any(flight.sent > now for flight in self.flights[link]):
            channel.busy_until = now
        self.flights[link] = deque(flight for flight in self.flights[link] if flight.sent <= now)

    def stop(self, link: int, now: int) -> None:
        """Lose what has not arrived by now: the link goes down."""
        self.cut(link, now)
        self.flights[link] = deque(flight for flight in self.flights[link] if flight.arrival <= now)
        self.up[link] = False

    def next_chance(self, link: int) -> int | None:
        """Return when to look again for a message that nobody holds yet; None if nothing is under way."""
        flights, channel = self.flights[link], self.channel_of[link]
        times = [flight.arrival for flight in flights] + ([channel.busy_until] if channel.waiting else [])
        return min(times, default=None)

    def lose_arrived(self, link: int, now: int) -> None:
        """Lose what has arrived by now, and what was held: the receiver was away, and begins anew."""
        self._progress(self.channel_of[link], now)
        self.flights[link] = deque(flight for flight in self.flights[link] if flight.arrival > now)
        self.held[link] = self.before[link] = None
        self.interval[link] = 0.0

    def oldest_stamp(self, link: int) -> int | None:
        """Return the stamp of the oldest message that the receiver holds or may still get; None without any."""
        held, flights, waiting = self.held[link], self.flights[link], self.channel_of[link].waiting
        stamps = [held.stamp] if held is not None else [flight.message.stamp for flight in flights]
        if held is None and waiting:
            stamps += [message.stamp for other, message in waiting if other == link]
        return min(stamps, default=None)

    def sender_steps(self, link: int, now: int, age: int) -> int:
        """Estimate how many iterations the sender has ended since the message that is held, whose age is given.

        From the last two messages; from the only one, and the start of the run.
        """
        held, before = self.held[link], self.before[link]
        assert held is not None
        return estimate_sender_steps(now, held.published, START if before is None else before.published, age)
