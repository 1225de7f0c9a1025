"""Iteration times from a file, replayed in a loop."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError, read_whole
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from gossamer.testbed.time_unit import LEAST, check_seconds, to_nanoseconds
from gossamer.testbed.units import read_seconds

HEADERS = (["agent", "seconds"], ["agent", "iteration", "seconds"])


@dataclass(frozen=True)
class ReplayedTimes(IterationClock):
    """The recorded times of each agent, from the first again after the last."""

    nanoseconds: list[list[int]]

    def end(self, agent: int, iteration: int, begin: int) -> int:
        times = self.nanoseconds[agent]
        return begin + times[iteration % len(times)]


@dataclass(frozen=True)
class RecordedTimes(ComputeTime):
    """The times of each agent's iterations."""

    seconds: tuple[tuple[float, ...], ...]
    source: str = "trace"

    def __post_init__(self) -> None:
        for agent, times in enumerate(self.seconds):
            if not times:
                raise UserError(f"'{self.source}' has no times of agent {agent}; give each agent one row or more")
            for value in times:
                check_seconds(f"a time of agent {agent} in '{self.source}'", value, least=LEAST)

    @classmethod
    def read(cls, path: str) -> "RecordedTimes":
        """Read a CSV file of agent,seconds or agent,iteration,seconds."""
        header, rows = read_table(path, "times", HEADERS)
        times: dict[int, list[tuple[int, float]]] = {}
        for line, row in enumerate(rows, 2):
            agent = read_whole(f"agent in line {line} of '{path}'", row[0])
            if agent < 0:
                raise UserError(f"line {line} of '{path}' names agent {agent}; agents are numbered from 0")
            place = read_whole(f"iteration in line {line} of '{path}'", row[1]) if len(header) == 3 else line
            times.setdefault(agent, []).append((place, read_seconds(f"seconds in line {line} of '{path}'", row[-1])))
        if not times:
            raise UserError(f"'{path}' has no times; give each agent one row or more")
        if max(times) >= 10 * len(times) + 10:
            raise UserError(f"'{path}' names agent {max(times)}, of {len(times)} agents; number agents from 0")
        of_agents = (sorted(times.get(agent, [])) for agent in range(max(times) + 1))
        return cls(tuple(tuple(seconds for _, seconds in pairs) for pairs in of_agents), path)

    def check(self, num_agents: int) -> None:
        if len(self.seconds) != num_agents:
            raise UserError(
                f"'{self.source}' has times of {len(self.seconds)} agents for {num_agents}; give times of each agent"
            )

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        return ReplayedTimes([[to_nanoseconds(value * step_seconds) for value in times] for times in self.seconds])

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        return np.array([np.mean(times) for times in self.seconds])


def read_table(path: str, what: str, headers: tuple[list[str], ...]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file; the header must be one of these."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {what} '{path}' ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{what} '{path}' is not text; give a CSV file") from None
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    if not rows or rows[0] not in headers:
        wanted = " or ".join(",".join(header) for header in headers)
        raise UserError(f"'{path}' is no table of {what}; its first line must be {wanted}")
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise UserError(f"'{path}': line {line} has {len(row)} of {len(rows[0])} values")
    return rows[0], rows[1:]
