"""Schedules of a graph from text: 'one-peer', 'matching', 'regular:4', 'edges:FILE', 'churn:600,60', 'away.csv'."""

from collections.abc import Callable
from typing import Any

from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.network.graph_schedule import GraphSchedule, JoinedSchedules, OnePeer, RandomMatching, RandomRegular
from gossamer.network.listed_graphs import ListedGraphs

GRAPH_SCHEDULES = {
    "one-peer": "the one-peer exponential graph: in round r each agent meets the one at distance 2^(r mod log2 n)",
    "matching": "random pairs of neighbours, drawn anew in each round",
    "regular": "random links in each round, this many for each agent, as in Epidemic Learning: regular:4",
    "edges": "the links of each round from a CSV file with round,from,to, again and again: edges:FILE",
    "churn": "agents are up and down for exponential times of these means, in steps: churn:600,60",
    "link-churn": "the same for links, both directions at once: link-churn:600,60",
    "list": "agents and links go and come, from a CSV file with time,agent,up, in steps: list:FILE or FILE.csv",
}
_ABSENCES = ("churn", "link-churn", "list")


def parse_graph_schedule(value: Any) -> GraphSchedule | None:
    """Make a schedule from a text as in GRAPH_SCHEDULES, several joined by '+'."""
    if value is None or isinstance(value, GraphSchedule):
        return value
    if not isinstance(value, str):
        raise UserError(f"schedule {value!r:.60} is no text; write it like one-peer or regular:4")
    parts = tuple(_from_text(part.strip()) for part in value.split("+"))
    return parts[0] if len(parts) == 1 else JoinedSchedules(parts)


def _from_text(text: str) -> GraphSchedule:
    kind, _, rest = text.partition(":")
    if kind.endswith(".csv"):
        kind, rest = "list", text
    if kind not in GRAPH_SCHEDULES:
        raise unknown_name("schedule", kind, GRAPH_SCHEDULES)
    plain: dict[str, Callable[[], GraphSchedule]] = {"one-peer": OnePeer, "matching": RandomMatching}
    if bool(rest) == (kind in plain):
        example = kind if kind in plain else GRAPH_SCHEDULES[kind].rpartition(" ")[2]
        raise UserError(f"cannot read schedule '{text}'; write it like {example}")
    if kind in plain:
        return plain[kind]()
    if kind == "regular":
        return RandomRegular(read_whole(f"number of links in schedule '{text}'", rest))
    if kind == "edges":
        return ListedGraphs.read(rest)
    from gossamer.testbed.absent_rounds import absent_rounds  # the testbed's absences, one second a step

    return absent_rounds(f"{kind}:{rest}")
