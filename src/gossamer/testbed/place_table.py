"""Numbers between agents: one for all, a matrix [from, to], or a table of places that several agents share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.network import Links


@dataclass(frozen=True, eq=False)
class PlaceTable:
    """A number for each pair of places [from, to]: thousands of agents need no matrix of their own."""

    place_of: npt.NDArray[np.int64]
    table: npt.NDArray[np.float64]

    def at(self, senders: npt.NDArray[np.int64], receivers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the numbers of pairs of agents."""
        found: npt.NDArray[np.float64] = self.table[self.place_of[senders], self.place_of[receivers]]
        return found


Numbers = float | npt.NDArray[np.float64] | PlaceTable


def at_links(numbers: Numbers, links: Links) -> npt.NDArray[np.float64]:
    """Return the number of each link."""
    senders, receivers = links.senders.numpy(), links.receivers.numpy()
    if isinstance(numbers, PlaceTable):
        return numbers.at(senders, receivers)
    if isinstance(numbers, np.ndarray):
        found: npt.NDArray[np.float64] = numbers[senders, receivers]
        return found
    return np.full(len(links), numbers, dtype=np.float64)


@dataclass(frozen=True)
class NumberRule:
    """How a number between agents is read, and in which range it must lie."""

    name: str
    read: Callable[[str, Any], float]
    least: float
    most: float
    example: str
    above: bool = False  # whether the least is excluded

    def check(self, value: float, where: str = "") -> float:
        """Return the number, or raise UserError."""
        if math.isnan(value):
            raise UserError(f"{self.name}{where} is missing; give a number such as {self.example}")
        if not self.least <= value <= self.most or (self.above and value == self.least):
            limits = f"be above {self.least:g}" if self.above else f"lie in [{self.least:g}, {self.most:g}]"
            raise UserError(f"{self.name}{where} must {limits}, got {value:g}; use for example {self.example}")
        return value


def read_numbers(rule: NumberRule, value: Any, agents: int) -> Numbers:
    """Read one number, a number per sender, a matrix [from, to], 'matrix:FILE', or a table of places."""
    if isinstance(value, PlaceTable):
        return value
    if isinstance(value, str) and value.startswith("matrix:"):
        value = _read_matrix(rule.name, value.removeprefix("matrix:"))
    elif isinstance(value, str) or not hasattr(value, "__len__"):
        return rule.check(rule.read(rule.name, value))
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = _with_units(rule, value)
    if found.ndim == 0:
        return rule.check(float(found))
    if found.shape == (agents,):  # of each sender
        found = np.broadcast_to(found[:, None], (agents, agents))
    if found.shape != (agents, agents):
        raise UserError(
            f"{rule.name} has shape {found.shape}; give one number, or a matrix [{agents}, {agents}] of from and to"
        )
    bad = ~((found >= rule.least) & (found <= rule.most))
    bad |= (found == rule.least) & rule.above
    bad &= ~np.eye(agents, dtype=bool)  # no agent sends to itself
    if bad.any():
        sender, receiver = np.argwhere(bad)[0].tolist()
        rule.check(float(found[sender, receiver]), f" from agent {sender} to {receiver}")
    return found


def _with_units(rule: NumberRule, value: Any) -> npt.NDArray[np.float64]:
    """Read nested lists of texts."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return np.asarray(rule.read(rule.name, value))
    rows = [_with_units(rule, part) for part in value]
    if len({row.shape for row in rows}) > 1:
        raise UserError(f"rows of {rule.name} differ in length; give one number for each agent in each row")
    return np.array(rows)


def _read_matrix(name: str, path: str) -> list[list[str]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {name} '{path}' ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{name} '{path}' is not text; give a CSV file with a row for each sender") from None
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
