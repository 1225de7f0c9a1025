"""One agent of the event oracle: what it has said and heard, and the inbox that a rule gets."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Own, Past, Place
from gossamer.network import LinkMatrix


@dataclass(frozen=True, eq=False)
class Said:
    """A message: what its sender published at the end of an iteration. No two are equal."""

    iteration: int
    stamp: int  # nanoseconds
    parts: dict[str, torch.Tensor]


@dataclass
class EventAgent:
    """One agent; `heard` has its neighbours in the order of its inbox."""

    algorithm: Algorithm
    place: Place
    x: torch.Tensor  # [1, d]
    state: dict[str, torch.Tensor]
    heard: dict[int, dict[int, Said]]  # sender -> iteration -> what has arrived
    tolerance: int
    max_age: int
    memory: torch.Tensor | None = None  # of the momentum
    own: Own | None = None  # of the iteration that has ended, until its update
    taking: bool = False
    said: list[Said] = field(default_factory=list)  # by iteration
    held: dict[int, Said] = field(default_factory=dict)  # as taken at the newest update
    age: dict[int, int] = field(default_factory=dict)  # of those that are not dropped
    new: set[int] = field(default_factory=set)  # the senders whose message came since the update before

    def can_take(self) -> bool:
        """Whether the iteration has ended and, for a rule that waits, the messages of the same one are there."""
        if self.own is None or self.taking:
            return False
        k = self.own.t
        return not self.algorithm.waits or all(k in messages for messages in self.heard.values())

    def take(self) -> None:
        """Hold the newest message of each neighbour, and find the ages."""
        before, waits = self.held, self.algorithm.waits
        self.held, self.age, self.new = {}, {}, set()
        for j, messages in self.heard.items():
            if not messages:
                continue
            said = self.held[j] = messages[self.said[-1].iteration if waits else max(messages)]
            age = 0 if waits else sum(own.stamp >= said.stamp for own in self.said) - 1
            if age > self.max_age and not self.algorithm.totals:
                continue
            self.age[j] = min(age, self.max_age)  # totals are never forgotten
            if before.get(j) is not said:
                self.new.add(j)

    def is_current(self, j: int) -> bool:
        return j in self.age and self.age[j] <= self.tolerance

    def is_late(self, j: int) -> bool:
        return j in self.age and self.age[j] > self.tolerance and self.algorithm.hears_late

    def inbox(self) -> Inbox:
        fresh = {j for j in self.age if self.is_current(j)}
        groups = sorted({age for j, age in self.age.items() if self.is_late(j)})
        message = self._rows(fresh, self.algorithm.message)
        return Inbox(
            message["x"] if "x" in message else self._rows((), ["x"])["x"],
            tuple(self._late(age) for age in groups),
            message,
            {name: self.said[-1].parts[name] for name in self.algorithm.message},
            self._flags(fresh & self.new),
        )

    def _late(self, age: int) -> Late:
        i, k, past = int(self.place.agents), self.said[-1].iteration, self.algorithm.past
        senders, then = {j for j in self.age if self.age[j] == age}, self.said[k - age].parts
        W = self.place.network.W
        w = torch.tensor([float(W[i, j]) if j in senders else 0.0 for j in self.heard], dtype=torch.float64)
        own = {} if past is Past.NONE else {name: then[name] for name in (*self.algorithm.message, "x")}
        drift = None
        if past is Past.WINDOW:
            drift = torch.zeros_like(self.x)
            for r in range(age):
                drift = drift + self.said[k - age + r].parts["x"] - then["x"]
        weights, message = LinkMatrix(self.place.links, w), self._rows(senders, self.algorithm.message)
        steps = None
        if self.algorithm.uses_sender_steps:
            of_each = [float(self._sender_steps(j)) if j in senders else 0.0 for j in self.heard]
            steps = LinkMatrix(self.place.links, torch.tensor(of_each, dtype=torch.float64))
        return Late(age, weights, message, own, drift, self._flags(senders & self.new), steps)

    def _sender_steps(self, j: int) -> int:
        """How many iterations j has ended since its message, at its pace between the last two messages that arrived.

        With one message alone, at its pace since the start, at which iteration -1 would have ended.
        """
        k, stamp, now = self.held[j].iteration, self.held[j].stamp, self.said[-1].stamp
        earlier = max((other for other in self.heard[j] if other < k), default=-1)
        pace = Fraction(k - earlier, stamp - (self.heard[j][earlier].stamp if earlier >= 0 else 0))
        return math.floor((now - stamp) * pace)

    def _rows(self, senders: Collection[int], names: Collection[str]) -> dict[str, torch.Tensor]:
        """The messages of these senders, in a row for each neighbour, which is zero for the others."""
        rows = {}
        for name in names:
            nothing = torch.zeros_like(self.said[-1].parts[name])
            rows[name] = torch.cat([self.held[j].parts[name] if j in senders else nothing for j in self.heard])
        return rows

    def _flags(self, senders: Collection[int]) -> LinkMatrix:
        return LinkMatrix(self.place.links, torch.tensor([j in senders for j in self.heard]))
