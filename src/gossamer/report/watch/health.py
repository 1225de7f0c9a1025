"""Which agents are in trouble: a loss that is not finite, one that grows, or a model that leaves the others."""

import math
import statistics
from collections import deque
from typing import Any

from gossamer.report.read_runs import Row

LEAP = 10.0  # a loss so many times its best, and above its first, diverges
APART = 100.0  # so does an agent so many times its usual distance from the average model
USUAL = 50  # evaluations whose median distance is the usual one
FEWEST = 3  # … at least, before anything is unusual
NOT_FINITE, DIVERGING = "not finite", "diverging"


class _Agent:
    """One agent's losses and distances, as far as they matter."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = math.inf
        self.last: float | None = None
        self.evaluated = False
        self.distances: deque[float] = deque(maxlen=USUAL)
        self.leaves = False

    def add_loss(self, loss: float | None) -> None:
        self.evaluated, self.last = True, loss
        if loss is not None:
            self.first = loss if self.first is None else self.first
            self.best = min(self.best, loss)

    def add_distance(self, distance: float | None) -> None:
        if distance is not None:
            usual = statistics.median(self.distances) if len(self.distances) >= FEWEST else math.inf
            self.leaves = distance > APART * usual
            self.distances.append(distance)

    def grows(self, newest: float | None) -> bool:
        loss = self.last if newest is None else newest
        return loss is not None and self.first is not None and loss > LEAP * self.best and loss > self.first


class Health:
    """How the agents of a run fare by its rows of metrics, taken one by one."""

    def __init__(self, agents: int) -> None:
        self.agents, self.step = agents, 0
        self._agents = [_Agent() for _ in range(agents)]

    def add(self, row: Row) -> None:
        """Take the next row. Test losses count where there are any, or else those of training."""
        self.step = row["step"]
        losses = _list(row, "loss") or _list(row, "train_loss") or []
        distances = (_list(row, "consensus") or []) if self.step else []  # all begin alike
        for agent, loss in zip(self._agents, losses, strict=False):
            agent.add_loss(loss)
        for agent, distance in zip(self._agents, distances, strict=False):
            agent.add_distance(distance)

    def flags(self, place: int, newest: float | None, *, nonfinite: bool) -> list[str]:
        """Return what is wrong with an agent whose newest training loss is known, or not finite."""
        agent = self._agents[place]
        if nonfinite or (agent.evaluated and agent.last is None and agent.first is not None):
            return [NOT_FINITE]
        return [DIVERGING] if agent.leaves or agent.grows(newest) else []


def _list(row: Row, name: str) -> list[Any] | None:
    value = row.get(name)
    return value if isinstance(value, list) else None
