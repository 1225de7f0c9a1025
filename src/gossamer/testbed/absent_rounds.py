"""Agents and links that go down and come back, in steps: a testbed's absences with one step for a second."""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import torch

from gossamer.errors import UserError
from gossamer.network.graph_schedule import GraphOfRound, GraphSchedule, RoundGraph
from gossamer.network.links import Links
from gossamer.shapes import Bool, Tensor
from gossamer.testbed.absence import AbsenceSchedule, ListedAbsences, ListedChange, RandomAbsences
from gossamer.testbed.absence_text import parse_schedule
from gossamer.testbed.time_unit import SECOND

MOST_STATES = 1024
COPY = "absences.csv"
RARE = 7  # means: an exponential time is longer with probability 0.001


@dataclass(frozen=True)
class AbsentRounds(GraphSchedule):
    """The absences of a schedule in seconds, of which a step has one.

    What happens at time r counts from step r on. The links of an agent that is away are not in use, what it held and
    what arrives at it is lost.
    """

    absences: AbsenceSchedule
    text: str = "list"

    def check(self, links: Links) -> None:
        self.absences.check(links.shape[0])
        if isinstance(self.absences, ListedAbsences):
            self.absences.changes(links.shape[0], links, 0)  # names the links that are missing

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        return _Walk(self.absences, links, seed)

    def longest_gap(self, links: Links) -> int:
        if isinstance(self.absences, RandomAbsences):
            return 1 + int(RARE * self.absences.mean_down)
        return 1 + int(max((each.seconds for each in _listed(self.absences)), default=0.0))

    def spec(self) -> str:
        return self.text

    def copied_to(self, folder: Path) -> str:
        listed = _listed(self.absences)
        if not listed:
            return self.text
        lines = [f"{each.seconds!r},{_who(each)},{int(each.up)}\n" for each in listed]
        (folder / COPY).write_text("time,agent,up\n" + "".join(lines), encoding="utf-8")
        return f"list:{COPY}"

    @property
    def has_absences(self) -> bool:
        return True


def absent_rounds(text: str) -> AbsentRounds:
    """Make the schedule from a text of `absence_text`."""
    absences = parse_schedule(text)
    if absences is None:
        raise UserError("the schedule is empty; write it like churn:600,60")
    return AbsentRounds(absences, text)


def _listed(absences: AbsenceSchedule) -> tuple[ListedChange, ...]:
    return absences.listed if isinstance(absences, ListedAbsences) else ()


def _who(each: ListedChange) -> str:
    return (">" if each.one_way else "-").join(map(str, each.agents))


class _Walk:
    """Goes through the changes in the order of time and keeps the newest states: rounds come nearly in order."""

    def __init__(self, absences: AbsenceSchedule, links: Links, seed: int) -> None:
        self._absences, self._links, self._seed = absences, links, seed
        self._begin()

    def _begin(self) -> None:
        links = self._links
        self._changes = self._absences.changes(links.shape[0], links, self._seed)
        self._next = next(self._changes, None)
        self._agents = torch.ones(links.shape[0], dtype=torch.bool)
        self._up = torch.ones(len(links), dtype=torch.bool)
        self._since: deque[int] = deque([-1], MOST_STATES)  # the rounds from which the states hold
        self._states: deque[RoundGraph] = deque([self._state()], MOST_STATES)

    def _state(self) -> RoundGraph:
        links, agents = self._links, self._agents.clone()
        up = self._up & self._up[links.reverse]  # weights are those of links that go both ways
        return RoundGraph(up & _both(agents, links), agents, ~(up & agents[links.receivers]))

    def __call__(self, round_number: int) -> RoundGraph:
        if round_number < self._since[0]:
            self._begin()
        while self._next is not None and self._next.time_ns <= round_number * SECOND:
            since = -(-self._next.time_ns // SECOND)
            while self._next is not None and self._next.time_ns <= since * SECOND:
                (self._agents if self._next.what == "agent" else self._up)[self._next.number] = self._next.up
                self._next = next(self._changes, None)
            self._since.append(since)
            self._states.append(self._state())
        return self._states[bisect_right(self._since, round_number) - 1]


def _both(agents: Bool[Tensor, " n"], links: Links) -> Bool[Tensor, " e"]:
    return agents[links.receivers] & agents[links.senders]
