"""The testbed that a run has recorded: how long its iterations took, and its messages, each in its order."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import UserError, read_whole
from gossamer.testbed.recorded_latency import RecordedLatencies
from gossamer.testbed.recorded_times import RecordedTimes, read_table
from gossamer.testbed.time_unit import LEAST, check_seconds
from gossamer.testbed.units import read_plain

TIMING_FILE = "timing.csv"  # in the folder of a run
TIMING_HEADER = ["from", "to", "number", "seconds"]  # of an iteration, both are the agent itself
LIMITS_FILE = "timing.json"  # beside it: the run's agents, and when their messages count as current or dropped
LIMITS = ("agents", "tolerance", "max_age", "deadline")


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """What a run has recorded.

    Attributes:
        limits: the settings in LIMITS.
        compute: the seconds of each agent's iterations.
        latency: the seconds of each link's messages.
    """

    limits: dict[str, Any]
    compute: RecordedTimes
    latency: RecordedLatencies


def read_recorded(folder: Path) -> RecordedRun:
    """Read what `--record` has left in the folder of a run."""
    limits = _limits(folder)
    agents, path = limits["agents"], str(folder / TIMING_FILE)
    iterations: list[list[float]] = [[] for _ in range(agents)]
    messages: dict[tuple[int, int], dict[int, float]] = {}
    for line, row in enumerate(read_table(path, "recorded times", (TIMING_HEADER,))[1], 2):
        where = f"line {line} of '{path}'"
        sender, receiver, number = (read_whole(f"a number in {where}", cell) for cell in row[:3])
        seconds = check_seconds(f"seconds in {where}", read_plain(f"seconds in {where}", row[3]))
        if not (0 <= sender < agents and 0 <= receiver < agents):
            raise UserError(f"{where} names agents {sender} and {receiver}; the run has agents 0 to {agents - 1}")
        if sender == receiver:
            iterations[receiver].append(max(seconds, LEAST))
        else:
            messages.setdefault((sender, receiver), {})[number] = seconds
    compute = RecordedTimes(tuple(map(tuple, iterations)), path)
    return RecordedRun(limits, compute, RecordedLatencies.of_rows(agents, messages))


def _limits(folder: Path) -> dict[str, Any]:
    path = folder / LIMITS_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        limits = {name: values[name] for name in LIMITS}
    except FileNotFoundError:
        raise UserError(f"'{folder}' holds no recorded times; give the folder of a run with --record") from None
    except OSError as error:
        raise UserError(f"cannot read '{path}' ({error.strerror}); check the path") from None
    except (ValueError, KeyError, TypeError):
        limits = {}
    if not isinstance(limits.get("agents"), int) or limits["agents"] < 1:
        raise UserError(f"'{path}' is damaged; record the run again")
    return limits
