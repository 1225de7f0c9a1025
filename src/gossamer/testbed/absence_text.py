"""Schedules from text: 'churn:600,60', 'link-churn:600,60', 'pool:FILE', 'spot:p2', 'list:FILE'; or from a list."""

import re
from typing import Any

from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.testbed.absence import AbsenceSchedule, ListedAbsences, ListedChange, MergedAbsences, RandomAbsences
from gossamer.testbed.instance_pool import InstancePool
from gossamer.testbed.measurements import SPOTS, spot_pool
from gossamer.testbed.recorded_times import read_table
from gossamer.testbed.units import read_plain, read_seconds

SCHEDULES = {
    "churn": "agents are up and down for exponential times of these means: churn:600,60",
    "link-churn": "the same for links, both directions at once: link-churn:600,60",
    "list": "a CSV file with time,agent,up; an agent is 3, a link 3-5, one direction of it 3>5: list:FILE",
    "pool": "a CSV file with time,size, the number of agents that are up: pool:FILE",
    "spot": "recorded sizes of a spot pool, p2 or g4dn, as many times as fast as you say: spot:p2*60",
}
_UP = {"1": True, "true": True, "up": True, "0": False, "false": False, "down": False}


def parse_schedule(value: Any) -> AbsenceSchedule | None:
    """Make a schedule from a text as in SCHEDULES, several joined by '+', or rows of time, agent, up."""
    if value is None or isinstance(value, AbsenceSchedule):
        return value
    if not isinstance(value, str):
        return ListedAbsences(tuple(_listed(f"row {number}", row) for number, row in enumerate(_rows(value))))
    parts = tuple(_from_text(part.strip()) for part in value.split("+"))
    return parts[0] if len(parts) == 1 else MergedAbsences(parts)


def _rows(value: Any) -> list[Any]:
    try:
        rows = list(value)
        if all(len(row) == 3 for row in rows):
            return rows
    except TypeError:
        pass
    raise UserError(f"schedule {value!r:.60} is no text and no list of (time, agent, up); write it like churn:600,60")


def _from_text(text: str) -> AbsenceSchedule:
    kind, _, rest = text.partition(":")
    if kind not in SCHEDULES:
        raise unknown_name("schedule", kind, SCHEDULES)
    if not rest:
        raise _garbled(text, kind)
    if kind in ("churn", "link-churn"):
        means = [read_seconds(f"schedule '{text}'", part) for part in rest.split(",")]
        if len(means) != 2:
            raise _garbled(text, kind)
        return RandomAbsences(means[0], means[1], "agent" if kind == "churn" else "link")
    if kind == "spot":
        name, star, speed = rest.partition("*")
        if name not in SPOTS:
            raise unknown_name("spot pool", name, SPOTS)
        return spot_pool(name, read_plain(f"speed of schedule '{text}'", speed) if star else 1.0)
    if kind == "pool":
        _, rows = read_table(rest, "pool sizes", (["time", "size"],))
        times = tuple(read_seconds(f"time in '{rest}'", row[0]) for row in rows)
        return InstancePool(times, tuple(read_whole(f"size in '{rest}'", row[1]) for row in rows))
    _, rows = read_table(rest, "schedule", (["time", "agent", "up"],))
    return ListedAbsences(tuple(_listed(f"line {line} of '{rest}'", row) for line, row in enumerate(rows, 2)))


def _listed(where: str, row: Any) -> ListedChange:
    time, who, up = row
    word = str(up).strip().lower()
    if word not in _UP:
        raise UserError(f"{where} of the schedule says '{up}'; write 1 for up or 0 for down")
    seconds = read_seconds(f"time in {where} of the schedule", time)
    if isinstance(who, list | tuple):
        who = "-".join(map(str, who))
    found = re.fullmatch(r"(-?\d+)(?:\s*([->])\s*(\d+))?", str(who).strip())
    if found is None:
        raise UserError(f"{where} of the schedule names '{who}'; write an agent as 3, a link as 3-5, one direction 3>5")
    first, between, second = found.groups()
    agents = (int(first),) if second is None else (int(first), int(second))
    return ListedChange(seconds, agents, _UP[word], between == ">")


def _garbled(text: str, kind: str) -> UserError:
    return UserError(f"cannot read schedule '{text}'; write it like {SCHEDULES[kind].rpartition(' ')[2]}")
