"""Faults and delays on top of a real transport, for tests and experiments; fault_spec.py lists them.

Faults act at the receiver: an agent publishes as usual, and each neighbour drops or delays what arrives. The fate of
a message depends only on the run's seed, its link and its iteration, so runs can be repeated.

A message that may be shown later, or again after newer ones were lost, cannot stay where its sender will write over it:
on links with faults every message is copied once, when it is first seen. A receiver that takes more than KEPT of a
sender's steps for one of its own never sees some. At most MOST_UNDER_WAY copies of a peer's
messages wait to be seen, besides those that can be seen already. Where more are under way the copies are thinned out
evenly and counted as "overflow": dropping the oldest, as a full queue would, could leave none to grow old enough.

In lock step, a delay in iterations of an agent that waits for the message never ends before the deadline: use times.
"""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from gossamer.runtime.message import Stamp, checksum
from gossamer.runtime.transport.base import KEPT, Letter, Transport, Wrapper, always
from gossamer.runtime.transport.fault_spec import Chance, FaultDelay, Faults, Halt, Partition
from gossamer.seeding import generator

MOST_UNDER_WAY = 64  # messages of a peer


@dataclass(frozen=True, eq=False)
class _UnderWay:
    """A message under way, and from when on it can be seen."""

    letter: Letter
    time: int  # nanoseconds on this agent's clock
    step: int  # own iteration

    @property
    def order(self) -> tuple[int, int]:
        return self.letter.stamp.order

    def shown(self, now: int, *, late: bool) -> Letter:
        """Return the letter, with the time at which it arrived: now, where it was kept by more than a time."""
        if late or self.step:
            self.letter.arrived = now
        elif self.letter.arrived is not None:
            self.letter.arrived = max(self.letter.arrived, self.time)
        return self.letter


@dataclass(eq=False)
class _FaultyLink:
    """The messages of one peer, and the clauses for its link, each with its place among all clauses."""

    peer: int
    clauses: list[tuple[int, FaultDelay | Chance]]
    partitions: list[Partition]
    under_way: list[_UnderWay] = field(default_factory=list)
    visible: list[Letter] = field(default_factory=list)  # KEPT at most, the newest last
    judged: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=4 * KEPT))  # orders, not to judge twice


class FaultyTransport(Wrapper):
    """Applies faults to the messages that arrive, and halts the agent on `kill` and `stop`."""

    def __init__(
        self,
        inner: Transport,
        faults: Faults,
        rank: int,
        seed: int,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        restarts: int,
    ) -> None:
        """Wrap a transport. An agent that was restarted is not halted again."""
        super().__init__(inner)
        self._faults, self._rank, self._seed, self._clock = faults, rank, seed, clock
        self._halts = [c for c in faults if isinstance(c, Halt) and c.agent == rank and not restarts]
        self._links: dict[int, _FaultyLink | None] = {}  # None: a link without faults
        self._joined = clock()
        self._step: int | None = None  # before the first tick

    def tick(self, step: int) -> None:
        """Halt if it is time to, and take new messages on all links that are in use."""
        before, self._step = self._step, step
        for halt in self._halts:
            if halt.iteration == step or (before is not None and before < halt.iteration < step):
                _halt(halt.pause)
        self.inner.tick(step)
        for link in self._links.values():
            if link is not None:
                self._look(link)

    def latest(self, peer: int) -> Letter | None:
        """Return the newest message that can be seen."""
        link = self._link(peer)
        if link is None:
            return self.inner.latest(peer)
        self._look(link)
        return link.visible[-1] if link.visible else None

    def at(self, peer: int, sequence: int) -> Letter | None:
        """Return a message if it is one of the last that can be seen."""
        link = self._link(peer)
        if link is None:
            return self.inner.at(peer, sequence)
        self._look(link, sequence)
        wanted = (link.visible[-1].stamp.incarnation, sequence) if link.visible else None
        return next((letter for letter in link.visible if letter.stamp.order == wanted), None)

    def _link(self, peer: int) -> _FaultyLink | None:
        """Return the state of the link from a peer, None where it has no faults."""
        if peer not in self._links:
            clauses: list[tuple[int, FaultDelay | Chance]] = []
            partitions = []
            for place, clause in enumerate(self._faults):
                if isinstance(clause, Halt) or (clause.links and not clause.links.cover(peer, self._rank)):
                    continue
                if isinstance(clause, Partition):
                    partitions.append(clause)
                else:
                    clauses.append((place, clause))
            self._links[peer] = _FaultyLink(peer, clauses, partitions) if clauses or partitions else None
        return self._links[peer]

    def _look(self, link: _FaultyLink, sequence: int | None = None) -> None:
        """Take new messages, or an earlier one, and show those that have waited long enough."""
        now = self._clock()
        if self._is_cut(link, now):
            return
        if sequence is not None:
            self._take(link, self.inner.at(link.peer, sequence), now)
        newest = self.inner.latest(link.peer)
        if newest is not None and newest.stamp.order not in link.judged:
            # Also those before it that a slow receiver has not looked at: they arrive sooner.
            for earlier in range(max(0, newest.stamp.sequence - KEPT + 1), newest.stamp.sequence):
                self._take(link, self.inner.at(link.peer, earlier), now)
        self._take(link, newest, now)
        due = [held for held in link.under_way if held.time <= now and held.step <= (self._step or 0)]
        if due:
            visible = [*link.visible, *(held.shown(now, late=bool(link.partitions)) for held in due)]
            link.visible = sorted(visible, key=lambda letter: letter.stamp.order)[-KEPT:]
            # What newer ones have overtaken is of no use to `latest`; `at` may ask for it while it is one of the last.
            oldest = link.visible[0].stamp.order if len(link.visible) == KEPT else (-1, -1)
            link.under_way = [held for held in link.under_way if held not in due and held.order > oldest]

    def _is_cut(self, link: _FaultyLink, now: int) -> bool:
        """Return whether a partition keeps this peer's messages away."""
        elapsed, step = now - self._joined, self._step or 0
        spans = [partition.span for partition in link.partitions]
        return any(span is None or span.low <= (elapsed if span.timed else step) < span.high for span in spans)

    def _take(self, link: _FaultyLink, letter: Letter | None, now: int) -> None:
        """Decide the fate of a message, once."""
        if letter is None or letter.stamp.order in link.judged:
            return
        if self._happens("loss", link, letter.stamp):
            link.judged.append(letter.stamp.order)
            self.counts["lost"] += 1
            return
        copied = replace(letter, payload=letter.payload.clone(), intact=always)
        if not letter.intact():  # written over meanwhile: there is a newer one to look at
            self.counts["torn"] += 1
            return
        link.judged.append(letter.stamp.order)
        if self._happens("corrupt", link, letter.stamp) and not self._survives(copied):
            self.counts["corrupt"] += 1
            return
        link.under_way.append(self._hold(link, copied, now))
        if len(link.under_way) > MOST_UNDER_WAY:
            self.counts["overflow"] += 1
            del link.under_way[_most_crowded(link.under_way)]

    def _happens(self, name: str, link: _FaultyLink, stamp: Stamp) -> bool:
        """Draw whether a message is lost, or damaged."""
        chances = [(place, c) for place, c in link.clauses if isinstance(c, Chance) and c.name == name]
        return any(self._draw(place, stamp) < chance.probability for place, chance in chances)

    def _survives(self, letter: Letter) -> bool:
        """Flip the bits of one byte; return whether the checksum that every message carries misses it."""
        before = checksum(letter.payload)
        place = int(self._draw(len(self._faults), letter.stamp) * len(letter.payload))
        letter.payload[place : place + 1] ^= 0xFF
        return checksum(letter.payload) == before

    def _hold(self, link: _FaultyLink, letter: Letter, now: int) -> _UnderWay:
        """Return the message with the time and the iteration from which on it can be seen: the last of all delays."""
        seen, step = 0, 0
        offset = self.inner.offset(link.peer)
        taken = now if offset is None else letter.stamp.time + offset
        for place, clause in link.clauses:
            if isinstance(clause, FaultDelay):
                low, high = clause.span.low, clause.span.high
                amount = low + int(self._draw(place, letter.stamp) * (high - low + 1)) if high > low else low
                if clause.span.timed:
                    seen = max(seen, taken + amount)
                else:
                    step = max(step, (self._step or 0) + amount)
        return _UnderWay(letter, seen, step)

    def _draw(self, place: int, stamp: Stamp) -> float:
        """Return a number in [0, 1) for this clause and this message. An incarnation is a time, hence no part of it."""
        source = generator(self._seed, "faults", place, stamp.sender, self._rank, stamp.sequence)
        return float(torch.rand((), generator=source, dtype=torch.float64))


def _most_crowded(under_way: list[_UnderWay]) -> int:
    """Return the index of the message whose neighbours are nearest to each other."""
    sequences = [held.letter.stamp.sequence for held in under_way]
    return min(range(1, len(sequences) - 1), key=lambda place: sequences[place + 1] - sequences[place - 1])


def _halt(pause: int | None) -> None:
    """Kill this process or, with a pause in nanoseconds, stop it for so long."""
    agent = os.getpid()
    if pause is None:
        os.kill(agent, signal.SIGKILL)
        return
    # Another process must wake this one up. It also stops it, so that nothing can come in the wrong order; in a session
    # of its own, since what stops or interrupts the agent's group must not keep it from waking the agent.
    wait = f"kill -STOP {agent}; sleep {pause / 1e9:.9f}; kill -CONT {agent}"
    nowhere = subprocess.DEVNULL
    subprocess.run(
        ["sh", "-c", wait], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, check=False
    )
