"""What agents did on a testbed, from a run's timeline.csv: when they computed, waited or were down, and messages."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.engine.timed.spells import HEADER, SPELLS_FILE
from gossamer.errors import UserError

KINDS = ("computing", "waiting", "down")
FILLS = {"computing": "#56B4E9", "waiting": "#F2D6A2", "down": "#333333"}  # light, lighter and black without colours
MESSAGES = "#7A1F00"
FIRST_ITERATIONS = 8  # of an agent, on average, that a picture shows at first
MOST_ON_PAGE = 60_000  # spells and messages of all runs on one page
DIGITS = 9  # a message of a millisecond is visible after an hour


@dataclass(frozen=True)
class Spell:
    """What an agent did from one time to another, in simulated seconds."""

    kind: str
    agent: int
    begin: float
    end: float


@dataclass(frozen=True)
class MessageFlight:
    """A message, from its sending to its arrival."""

    sender: int
    receiver: int
    begin: float
    end: float


@dataclass(frozen=True)
class AgentTimeline:
    """The first spells and messages of a run, in order of their beginnings."""

    spells: list[Spell]
    flights: list[MessageFlight]

    @property
    def window(self) -> float:
        """The end of the part that a picture shows at first: a few iterations of each agent."""
        begins = [spell.begin for spell in self.spells if spell.kind == "computing"]
        agents = {spell.agent for spell in self.spells}
        place = FIRST_ITERATIONS * len(agents)
        return begins[place] if place < len(begins) else self.end

    @property
    def end(self) -> float:
        """The last end of a spell."""
        return max((spell.end for spell in self.spells), default=0.0)

    @property
    def flights_until(self) -> float:
        """When the last message that is known was sent."""
        return self.flights[-1].begin if self.flights else math.inf

    def first(self, most: int) -> "AgentTimeline":
        """Return the beginning with at most so many spells and messages together."""
        begins = sorted([spell.begin for spell in self.spells] + [flight.begin for flight in self.flights])
        if len(begins) <= most:
            return self
        last = begins[most]
        return AgentTimeline(
            [spell for spell in self.spells if spell.begin < last],
            [flight for flight in self.flights if flight.begin < last],
        )


def read_timeline(folder: Path, agents: int) -> AgentTimeline | None:
    """Read timeline.csv of a run folder; None if there is none, as without a testbed or before the end."""
    try:
        lines = list(csv.reader((folder / SPELLS_FILE).read_text(encoding="utf-8").splitlines()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{SPELLS_FILE} cannot be read ({error}); delete it to see the run without") from None
    made = AgentTimeline([], [])
    for number, line in enumerate(lines, start=1):
        try:
            if number > 1:
                _add(made, line, agents)
            elif tuple(line) != HEADER:
                raise ValueError
        except ValueError:
            raise UserError(f"{SPELLS_FILE} is damaged in line {number}; delete it to see the run without") from None
    return made


def _add(made: AgentTimeline, line: list[str], agents: int) -> None:
    """Add one line; ValueError if it is none that a run writes."""
    what, agent, to, begin, end = line
    first, span = int(agent), (float(begin), float(end))
    second = int(to) if what == "message" else first
    if not (0 <= first < agents and 0 <= second < agents and 0 <= span[0] <= span[1] < math.inf):
        raise ValueError
    if what == "message":
        made.flights.append(MessageFlight(first, second, *span))
    elif what in KINDS:
        made.spells.append(Spell(what, first, *span))
    else:
        raise ValueError


def as_columns(timeline: AgentTimeline, most: int) -> dict[str, Any]:
    """Return the beginning of a timeline for the page, by columns."""
    shown = timeline.first(most)
    return {
        "spells": {
            kind: {
                "agent": [spell.agent for spell in shown.spells if spell.kind == kind],
                **_spans(spell for spell in shown.spells if spell.kind == kind),
            }
            for kind in KINDS
        },
        "messages": {
            "from": [flight.sender for flight in shown.flights],
            "to": [flight.receiver for flight in shown.flights],
            **_spans(shown.flights),
        },
        "window": _short(shown.window),
        "end": _short(shown.end),
        "messages_until": _short(shown.flights_until) if shown.flights else None,
    }


def _spans(parts: Iterable[Spell | MessageFlight]) -> dict[str, list[float]]:
    spans = [(part.begin, part.end) for part in parts]
    return {"begin": [_short(begin) for begin, _ in spans], "end": [_short(end) for _, end in spans]}


def _short(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")
