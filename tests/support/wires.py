"""A transport in the hands of a test, and an agent behind faults with a clock that the test turns."""

from collections.abc import Sequence

import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.base import KEPT, Letter, Transport
from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.runtime.transport.faults import FaultyTransport

MS = 1_000_000  # nanoseconds
AGENTS = 4


class Wire(Transport):
    """A transport in the hands of a test: what `send` puts there is what has arrived."""

    def __init__(self, offset: int | None = 0):
        super().__init__()
        self.letters: dict[int, list[Letter]] = {}  # all that ever arrived, the newest last
        self.published, self.ticks, self.shift = [], [], offset
        self.opened = self.closed = None

    def send(self, sender: int, sequence: int, now: int = 0, *, incarnation: int = 1, torn: bool = False) -> None:
        stamp = Stamp(sender, incarnation, sequence, now, layout=7, heard=frozenset({2}))
        payload = torch.full((21,), sequence % 251, dtype=torch.uint8)
        self.letters.setdefault(sender, []).append(Letter(stamp, payload, intact=lambda: not torn))

    def latest(self, peer: int) -> Letter | None:
        return self.letters[peer][-1] if peer in self.letters else None

    def at(self, peer: int, sequence: int) -> Letter | None:
        newest = self.letters.get(peer, [])[-KEPT:]
        return next((letter for letter in newest if letter.stamp.sequence == sequence), None)

    def open(self, length: int) -> None:
        self.opened = length

    def publish(self, stamp: Stamp, parts: Sequence[torch.Tensor]) -> None:
        self.published.append((stamp, parts))

    def tick(self, step: int) -> None:
        self.ticks.append(step)

    def offset(self, peer: int) -> int | None:
        return self.shift

    def close(self) -> None:
        self.closed = True


class Agent:
    """Agent 1 behind faults, with a clock that a test turns."""

    def __init__(self, text: str, *, rank: int = 1, seed: int = 0, offset: int | None = 0, start: int = 10**12):
        self.wire, self.now, self.start = Wire(offset), start, start
        faults = parse_faults(text, AGENTS)
        self.faulty = FaultyTransport(self.wire, faults, rank, seed, clock=lambda: self.now, restarts=0)

    def shows(self, peer: int = 0) -> int | None:
        letter = self.faulty.latest(peer)
        return None if letter is None else letter.stamp.sequence

    def shown_at(self, time: int, peer: int = 0) -> int | None:
        """What is seen so many nanoseconds after the agent has joined."""
        self.now = self.start + time
        return self.shows(peer)

    def send(self, sequence: int, peer: int = 0, **other: int) -> None:
        self.wire.send(peer, sequence, self.now, **other)

    def run(self, messages: int, peer: int = 0) -> list[int | None]:
        """What is seen after each of so many messages, one an iteration."""
        seen = []
        for step in range(messages):
            self.send(step, peer)
            self.faulty.tick(step)
            seen.append(self.shows(peer))
        return seen
