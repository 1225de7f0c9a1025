"""Agents and links that go down and come back: a list, exponential times."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from gossamer.errors import UserError
from gossamer.network import Links
from gossamer.testbed.block_draws import BlockDraws, exponential
from gossamer.testbed.time_unit import LEAST, check_seconds, to_nanoseconds


@dataclass(frozen=True, order=True)
class Change:
    """An agent, or a link by its place in the pattern, goes down or comes back. All begin up, at time 0."""

    time_ns: int
    what: str  # "agent" or "link"
    number: int
    up: bool


class AbsenceSchedule(ABC):
    """Who is away, and when."""

    @abstractmethod
    def changes(self, num_agents: int, links: Links, seed: int) -> Iterator[Change]:
        """Return the changes in the order of time; lazily, since random ones never end."""

    def check(self, num_agents: int) -> None:  # noqa: B027 - most fit any number of agents
        """Raise UserError if the schedule is not for so many agents."""


@dataclass(frozen=True)
class ListedChange:
    """One line of a list: an agent, or a link from one agent to another, in both directions unless `one_way`."""

    seconds: float
    agents: tuple[int, ...]  # one agent, or sender and receiver
    up: bool
    one_way: bool = False


@dataclass(frozen=True)
class ListedAbsences(AbsenceSchedule):
    """Changes at given times."""

    listed: tuple[ListedChange, ...]

    def __post_init__(self) -> None:
        for each in self.listed:
            check_seconds("a time of the schedule", each.seconds)

    def check(self, num_agents: int) -> None:
        for each in self.listed:
            for agent in each.agents:
                if not 0 <= agent < num_agents:
                    raise UserError(f"schedule names agent {agent}; agents are numbered 0 to {num_agents - 1}")

    def changes(self, num_agents: int, links: Links, seed: int) -> Iterator[Change]:
        self.check(num_agents)
        place_of = {
            pair: k for k, pair in enumerate(zip(links.senders.tolist(), links.receivers.tolist(), strict=True))
        }
        found = []
        for each in self.listed:
            time = to_nanoseconds(each.seconds)
            if len(each.agents) == 1:
                found.append(Change(time, "agent", each.agents[0], each.up))
                continue
            sender, receiver = each.agents
            for pair in [(sender, receiver), *([] if each.one_way else [(receiver, sender)])]:
                if pair not in place_of:
                    raise UserError(f"schedule names link {pair[0]}-{pair[1]}, which the network does not have")
                found.append(Change(time, "link", place_of[pair], each.up))
        return iter(sorted(found))


@dataclass(frozen=True)
class RandomAbsences(AbsenceSchedule):
    """Agents, or links in both directions at once, are up and down in turn for exponential times."""

    mean_up: float
    mean_down: float
    what: str = "agent"

    def __post_init__(self) -> None:
        check_seconds("mean time up", self.mean_up, least=LEAST)
        check_seconds("mean time down", self.mean_down, least=LEAST)

    def changes(self, num_agents: int, links: Links, seed: int) -> Iterator[Change]:
        draws = BlockDraws(seed, f"testbed-churn-{self.what}", lambda drawn: exponential(drawn, 1.0), size=64)
        agents: list[tuple[int, ...]] = [(agent,) for agent in range(num_agents)]
        return self._in_order(draws, agents if self.what == "agent" else _both_directions(links))

    def _in_order(self, draws: BlockDraws, members: list[tuple[int, ...]]) -> Iterator[Change]:
        """Yield the changes of all members; each has one, its next, in the queue."""

        def until(place: int, number: int) -> int:
            mean = self.mean_down if number % 2 else self.mean_up
            return max(1, to_nanoseconds(float(draws.at(place, number)) * mean))

        queue = [(until(place, 0), place, 0) for place in range(len(members))]
        heapq.heapify(queue)
        while queue:
            time, place, number = queue[0]
            for member in members[place]:
                yield Change(time, self.what, member, number % 2 == 1)
            heapq.heapreplace(queue, (time + until(place, number + 1), place, number + 1))


def _both_directions(links: Links) -> list[tuple[int, ...]]:
    """Return the links in pairs of opposite ones."""
    pairs = enumerate(links.reverse.tolist())
    return [(one,) if other < 0 else (one, other) for one, other in pairs if other < 0 or one < other]


@dataclass(frozen=True)
class MergedAbsences(AbsenceSchedule):
    """Several schedules at once. The last change of an agent or link holds."""

    parts: tuple[AbsenceSchedule, ...]

    def check(self, num_agents: int) -> None:
        for part in self.parts:
            part.check(num_agents)

    def changes(self, num_agents: int, links: Links, seed: int) -> Iterator[Change]:
        return heapq.merge(*(part.changes(num_agents, links, seed) for part in self.parts))
