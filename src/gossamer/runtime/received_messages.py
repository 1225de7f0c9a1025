"""The newest message of each neighbour, decoded, and its age."""

import bisect
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from gossamer.algorithms.sender_steps import Published, estimate_sender_steps
from gossamer.network import NOTHING
from gossamer.runtime.message import Malformed
from gossamer.runtime.payload import PayloadLayout, PayloadReader
from gossamer.runtime.transport.base import Letter, Transport
from gossamer.shapes import Float, Tensor
from gossamer.testbed.testbed import LEAST_DEADLINE, SILENT_INTERVALS

TRIES = 3  # at a message that its sender writes over while it is read


class StepClock:
    """The times of this agent's last snapshots, to tell a neighbour's age in own iterations."""

    def __init__(self, depth: int) -> None:
        self._depth = depth  # iterations that are kept elsewhere; one more time shows which messages are older
        self._steps: deque[tuple[int, int]] = deque(maxlen=depth + 1)  # (time, iteration), rising

    def clear(self) -> None:
        """Forget all."""
        self._steps.clear()

    def add(self, step: int, time: int) -> None:
        """Note that the snapshot of an iteration was taken at this time."""
        self._steps.append((time, step))

    @property
    def newest(self) -> int | None:
        """When the newest snapshot was taken; None without any."""
        return self._steps[-1][0] if self._steps else None

    def age(self, time: int) -> int | None:
        """Return the iterations completed since a time; None beyond the past that is kept.

        A snapshot of a neighbour that was taken since our last but one own is current, age 0: its time lies in the
        iteration that this agent has just finished. For an agent that has only begun, nothing is older than its start.
        """
        if not self._steps:
            return 0
        newest = self._steps[-1][1]
        if len(self._steps) > 1 and self._steps[-2][0] < time:  # the usual case, without the search
            return 0
        place = bisect.bisect_left(self._steps, (time, -1))
        age = 0 if place == len(self._steps) else newest - self._steps[place][1]
        return age if age < self._depth else None


@dataclass
class _Neighbour:
    """One neighbour as this agent knows it."""

    reader: PayloadReader
    rows: Mapping[str, Float[Tensor, " _"]]
    order: tuple[int, int] = (-1, -1)  # of the message in the rows; lower than any other before the first one
    shown: bool = False  # whether the transport has it now
    taken: int = 0  # when it was taken, on the sender's clock
    sequence: int = -1
    before: Published | None = None  # the message before, of the same incarnation
    latency: int | None = None  # nanoseconds from the sender's stamp to the arrival; None: unknown
    age: int | None = None  # as the transport reports
    heard: frozenset[int] | None = None  # senders that the neighbour reports as current
    news: float = field(default_factory=time.monotonic)  # when the last message came
    interval: float = 0.0  # between two messages, a running mean in seconds


@dataclass(frozen=True)
class HeldAges:
    """The age of each neighbour's message, NOTHING where there is none, and whether it is new.

    `sender_steps` are those of each neighbour since its message; the ages, unless the rule uses them.
    """

    ages: list[int]
    new: list[bool]
    sender_steps: list[int]


class ReceivedMessages:
    """The rows of an inbox, one a neighbour, filled as messages arrive."""

    def __init__(
        self,
        peers: Sequence[int],
        layout: PayloadLayout,
        like: Float[Tensor, "1 d"],
        *,
        deadline: float | str,
        oldest: int | None = None,
        counts_sender_steps: bool = False,
    ) -> None:
        """Make room for messages of agents `like` this one.

        `oldest`: the largest age reported, for rules whose messages are never forgotten.
        `counts_sender_steps`: estimate how many steps the neighbours have taken since their messages.
        """
        self.deadline, self._oldest, self._counts_sender_steps = deadline, oldest, counts_sender_steps
        self._layout = layout
        # On a GPU, messages are decoded into pinned memory first, from where the copy runs beside other work.
        self.messages: dict[str, Float[Tensor, "n _"]] = {
            part.name: torch.zeros(len(peers), part.size, dtype=part.dtype, device=like.device) for part in layout.parts
        }
        self._landing = (
            {name: torch.zeros_like(rows, device="cpu").pin_memory() for name, rows in self.messages.items()}
            if like.is_cuda
            else self.messages
        )
        self._peers = {
            peer: _Neighbour(PayloadReader(layout), {name: rows[place] for name, rows in self._landing.items()})
            for place, peer in enumerate(peers)
        }

    def assume(self, x: Float[Tensor, "1 d"]) -> None:
        """Assume that neighbours with partial messages start from this agent's state."""
        for known in self._peers.values():
            known.reader.assume(x[0].cpu(), known.rows)

    def receive(self, transport: Transport, clock: StepClock) -> HeldAges:
        """Take every neighbour's newest message; return the ages."""
        ages: list[int] = []
        new, steps = [], [] if self._counts_sender_steps else ages
        for place, (peer, known) in enumerate(self._peers.items()):
            fresh = self._look(transport, peer, known)
            if fresh and self._landing is not self.messages:
                for name, rows in self.messages.items():
                    rows[place].copy_(self._landing[name][place], non_blocking=True)
            age = self._age(transport, peer, known, clock)
            ages.append(age)
            new.append(fresh and age != NOTHING)
            if self._counts_sender_steps:
                steps.append(self._sender_steps(transport.offset(peer), known, clock.newest, age))
        return HeldAges(ages, new, steps)

    def _look(self, transport: Transport, peer: int, known: _Neighbour) -> bool:
        """Take the newest message, unless it is held already or malformed; say whether the rows have changed."""
        held, layout = known.order, self._layout
        for _ in range(TRIES):
            letter = transport.latest(peer)
            known.shown = letter is not None
            if letter is None:
                break
            known.age, stamp = letter.age, letter.stamp
            if stamp.order == known.order:
                break
            if stamp.layout != layout.number or letter.payload.numel() != layout.length:
                transport.counts["malformed"] += 1
                break
            if self._read(transport, known, letter):
                self._note(known, letter, transport.offset(peer))
                break
        return known.order != held

    def _read(self, transport: Transport, known: _Neighbour, letter: Letter) -> bool:
        """Decode a message into its rows; say whether it was whole."""
        payload = letter.payload
        if known.reader.builds_on_rows:
            payload = payload.clone()
            if not letter.intact():
                transport.counts["torn"] += 1
                return False
        try:
            known.reader.read(payload, known.rows)
        except Malformed:
            transport.counts["malformed"] += 1
            return False
        if known.reader.builds_on_rows or letter.intact():
            return True
        transport.counts["torn"] += 1
        known.order = (-1, -1)  # the rows are mixed: nothing is held until a message was read whole
        return False

    def _note(self, known: _Neighbour, letter: Letter, offset: int | None) -> None:
        now, stamp = time.monotonic(), letter.stamp
        if known.order != (-1, -1):
            share = 0.1
            known.interval += share * (now - known.news - known.interval) if known.interval else now - known.news
        again = known.order[0] == stamp.incarnation  # else its iterations may have begun anew
        known.before = Published(known.sequence, known.taken) if again else None
        known.order, known.sequence, known.heard, known.news = stamp.order, stamp.sequence, stamp.heard, now
        known.taken = stamp.time
        # The offset of two clocks is off by half a round trip at most, which may make a quick message seem sooner.
        known.latency = None
        if offset is not None and letter.arrived is not None:
            known.latency = max(0, letter.arrived - stamp.time - offset)

    def _age(self, transport: Transport, peer: int, known: _Neighbour, clock: StepClock) -> int:
        """Return the age in own iterations; a neighbour without news for its deadline counts as dead."""
        if not known.shown or known.order == (-1, -1) or not known.reader.complete:
            return NOTHING
        if known.age is not None:
            return known.age
        offset = transport.offset(peer)
        age = None if offset is None else clock.age(known.taken + offset)
        if self._oldest is not None and offset is not None:
            return self._oldest if age is None else min(age, self._oldest)
        silent = time.monotonic() - known.news > self.deadline_of(peer)
        return NOTHING if age is None or silent else age

    def _sender_steps(self, offset: int | None, known: _Neighbour, now: int | None, age: int) -> int:
        """Return the neighbour's steps since its message: with delays in steps, and while unknown, the age."""
        if age == NOTHING or known.age is not None or offset is None or now is None:
            return age
        return estimate_sender_steps(now - offset, Published(known.sequence, known.taken), known.before, age)

    def deadline_of(self, peer: int) -> float:
        """Return the seconds of silence after which a neighbour counts as dead: as given, or by its usual interval."""
        if isinstance(self.deadline, float):
            return self.deadline
        return max(LEAST_DEADLINE, SILENT_INTERVALS * self._peers[peer].interval)

    def arrivals(self, held: HeldAges) -> dict[int, tuple[int, int]]:
        """Return the iteration and the nanoseconds on the way of each new message, by sender, where both are known."""
        new = itertools.compress(self._peers.items(), held.new)
        return {peer: (known.sequence, known.latency) for peer, known in new if known.latency is not None}

    def heard_by(self, peer: int) -> frozenset[int] | None:
        """Return the senders that a neighbour reports as current; None before its first message."""
        return self._peers[peer].heard

    def sequence_of(self, peer: int) -> int:
        """Return the iteration of the message that is held."""
        return self._peers[peer].sequence
