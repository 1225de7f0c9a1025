"""Faults and delays from text: 'delay:10ms..80ms; loss:0.1@0>1; kill:2@100'.

Clauses stand between semicolons. Those about messages:

    delay:50ms             a message can be seen 50 ms after it was taken; also 0.2s
    delay:10ms..80ms       a random time between these, drawn for each message
    delay:20               in iterations of the receiver since it could have been seen first; also 5..60
    loss:0.1               a message is lost with this probability
    corrupt:0.01           a message arrives with flipped bits, with this probability

Each of them may end in the links that it is for: `@0>1` from agent 0 to agent 1, `@0-1` both ways, `@0,1/2,3` between
groups, both ways. Where several delays are for one link, a message waits until all of them have passed. Those about
agents:

    partition:0,1/2,3@5s..8s   agents of different groups hear nothing of each other from second 5 to second 8 after
                               they joined; `@100..200` in iterations; without it, for ever; agents in no group hear all
    kill:2@100                 agent 2 kills itself when it reaches iteration 100
    stop:1@100,5s              agent 1 stops when it reaches iteration 100 and goes on 5 s later
"""

import re
from dataclasses import dataclass

from gossamer.errors import UserError, read_number, unknown_name

FAULTS = {
    "delay": "messages are seen later: delay:10ms..80ms",
    "loss": "messages are lost with this probability: loss:0.1",
    "corrupt": "messages are damaged with this probability: corrupt:0.01",
    "partition": "groups that do not hear each other for a while: partition:0,1/2,3@5s..8s",
    "kill": "an agent dies at this iteration: kill:2@100",
    "stop": "an agent stands still from this iteration on, for a time: stop:1@100,5s",
}
_AMOUNT = re.compile(r"([0-9]{1,9})(\.[0-9]{1,9})?(ms|s)?")
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000}


@dataclass(frozen=True)
class Span:
    """From `low` to `high`, in nanoseconds or in iterations."""

    low: int
    high: int
    timed: bool  # nanoseconds


@dataclass(frozen=True)
class FaultyLinks:
    """Links between agents of different groups; `one_way` only from the first group to the second."""

    groups: tuple[frozenset[int], ...]
    one_way: bool = False

    def cover(self, sender: int, receiver: int) -> bool:
        """Say whether messages from this sender to this receiver take one of these links."""
        if self.one_way:
            return sender in self.groups[0] and receiver in self.groups[1]
        sides = [[place for place, group in enumerate(self.groups) if agent in group] for agent in (sender, receiver)]
        return all(sides) and sides[0] != sides[1]


@dataclass(frozen=True)
class FaultDelay:
    """Messages are seen later."""

    span: Span
    links: FaultyLinks | None  # None: all


@dataclass(frozen=True)
class Chance:
    """Messages are lost (`name` "loss") or damaged ("corrupt") with a probability."""

    name: str
    probability: float
    links: FaultyLinks | None


@dataclass(frozen=True)
class Partition:
    """Groups do not hear each other while it lasts."""

    links: FaultyLinks
    span: Span | None  # None: for ever


@dataclass(frozen=True)
class Halt:
    """An agent dies at an iteration or, with a `pause` in nanoseconds, stops for that long."""

    agent: int
    iteration: int
    pause: int | None


Clause = FaultDelay | Chance | Partition | Halt
Faults = tuple[Clause, ...]


def parse_faults(text: str, num_agents: int) -> Faults:
    """Read clauses as in the module's docstring, for a run of so many agents."""
    clauses = ("".join(clause.split()) for clause in text.split(";"))
    return tuple(_clause(clause, num_agents) for clause in clauses if clause)


def _clause(clause: str, num_agents: int) -> Clause:
    name, _, rest = clause.partition(":")
    what, at, where = rest.partition("@")
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    if not what or (at and not where):
        raise _garbled(clause)
    if name == "delay":
        return FaultDelay(_span(clause, what), _links(clause, where, num_agents) if at else None)
    if name in ("loss", "corrupt"):
        return Chance(name, _probability(clause, what), _links(clause, where, num_agents) if at else None)
    if name == "partition":
        return _partition(clause, what, where, num_agents)
    iteration, comma, pause = where.partition(",")
    if bool(comma) != (name == "stop"):
        raise _garbled(clause)
    return Halt(
        _agent(clause, what, num_agents), _iteration(clause, iteration), _pause(clause, pause) if comma else None
    )


def _partition(clause: str, groups: str, while_it_lasts: str, num_agents: int) -> Partition:
    if ">" in groups or "-" in groups:
        raise _garbled(clause)
    links = _links(clause, groups, num_agents)
    if not while_it_lasts:
        return Partition(links, None)
    span = _span(clause, while_it_lasts)
    if span.low == span.high:
        raise UserError(f"fault '{clause}' ends when it begins; write it like {_example('partition')}")
    return Partition(links, span)


def _links(clause: str, text: str, num_agents: int) -> FaultyLinks:
    separator = next((mark for mark in ">-" if mark in text), "/")
    parts = text.split(separator)
    groups = tuple(frozenset(_agent(clause, agent, num_agents) for agent in part.split(",")) for part in parts)
    if len(groups) < 2 or (separator != "/" and len(groups) > 2):
        raise UserError(f"'{text}' in fault '{clause}' names no links; write them like 0>1, 0-1 or 0,1/2,3")
    if len(frozenset().union(*groups)) < sum(len(group) for group in groups):
        raise UserError(f"'{text}' in fault '{clause}' has an agent on both sides; name each agent once")
    return FaultyLinks(groups, one_way=separator == ">")


def _agent(clause: str, text: str, num_agents: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise _garbled(clause)
    if int(text) >= num_agents:
        raise UserError(f"fault '{clause}' names agent {text}, but the run has {num_agents}; use 0 to {num_agents - 1}")
    return int(text)


def _probability(clause: str, text: str) -> float:
    probability = read_number(f"the probability in fault '{clause}'", text)
    if not 0 <= probability <= 1:
        raise UserError(f"the probability in fault '{clause}' must be between 0 and 1, got {text}; try 0.1")
    return probability


def _span(clause: str, text: str) -> Span:
    low, dots, high = text.partition("..")
    start, timed = _amount(clause, low)
    end, end_timed = _amount(clause, high) if dots else (start, timed)
    if timed != end_timed:
        raise UserError(f"fault '{clause}' mixes a time and iterations; write both ends like 10ms..80ms or like 5..60")
    if end < start:
        raise UserError(f"fault '{clause}' goes from {low} to {high}, which is less; write {high}..{low}")
    return Span(start, end, timed)


def _iteration(clause: str, text: str) -> int:
    amount, timed = _amount(clause, text)
    if timed:
        raise UserError(f"fault '{clause}' must name an iteration, got {text}; write it without a unit, like 100")
    return amount


def _pause(clause: str, text: str) -> int:
    amount, timed = _amount(clause, text)
    if not timed or not amount:
        raise UserError(f"the pause in fault '{clause}' must be a time above 0, got {text}; write it like 5s or 300ms")
    return amount


def _amount(clause: str, text: str) -> tuple[int, bool]:
    """Return nanoseconds and True, or iterations and False."""
    match = _AMOUNT.fullmatch(text)
    if match is None or (match[2] and not match[3]):
        raise _garbled(clause)
    if not match[3]:
        return int(match[1]), False
    return round(float(match[1] + (match[2] or "")) * _NANOSECONDS[match[3]]), True


def _example(name: str) -> str:
    return FAULTS[name].rpartition(" ")[2]


def _garbled(clause: str) -> UserError:
    return UserError(f"cannot read fault '{clause}'; write it like {_example(clause.partition(':')[0])}")
