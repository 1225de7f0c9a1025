"""Agents that are slow at times: two speeds, with exponential sojourn times."""

import bisect
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from gossamer.errors import UserError
from gossamer.seeding import generator
from gossamer.testbed.block_draws import BlockDraws, exponential
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from gossamer.testbed.time_unit import LEAST, SECOND, check_seconds

PURPOSE = "testbed-markov"
MOST_FACTOR = 1e6


@dataclass(frozen=True)
class MarkovSlowdown(ComputeTime):
    """An iteration is 1 unit of work. A slow agent takes `factor` times as long. Sojourn times are in seconds."""

    factor: float
    mean_slow: float
    mean_fast: float

    def __post_init__(self) -> None:
        if not 1 <= self.factor <= MOST_FACTOR:
            raise UserError(f"factor of markov compute must lie in [1, {MOST_FACTOR:g}], got {self.factor}; try 4")
        check_seconds("mean time slow", self.mean_slow, least=LEAST)
        check_seconds("mean time fast", self.mean_fast, least=LEAST)

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        return SlowAndFast(self, seed, step_seconds * SECOND)

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        share_slow = self.mean_slow / (self.mean_slow + self.mean_fast)
        return np.full(num_agents, 1 / (share_slow / self.factor + 1 - share_slow))


class SlowAndFast(IterationClock):
    """Integrates the work of an iteration exactly over the slow and fast stretches of its agent."""

    def __init__(self, model: MarkovSlowdown, seed: int, work: float) -> None:
        """Give an iteration so many nanoseconds of work at full speed."""
        self._model, self._seed, self._work = model, seed, work
        self._draws = BlockDraws(seed, PURPOSE, lambda uniform: exponential(uniform, float(SECOND)))
        self._stretches: dict[int, tuple[bool, list[int]]] = {}  # whether it begins slow, and the ends of stretches

    def end(self, agent: int, iteration: int, begin: int) -> int:
        slow, ends = self._until(agent, begin)
        place = bisect.bisect_right(ends, begin)
        now, work = float(begin), self._work
        while True:
            if place == len(ends):
                self._extend(agent)
            cost = self._model.factor if slow ^ (place % 2 == 1) else 1.0
            if work * cost <= ends[place] - now:
                return max(begin + 1, round(now + work * cost))
            work -= (ends[place] - now) / cost
            now = float(ends[place])
            place += 1

    def _until(self, agent: int, time: int) -> tuple[bool, list[int]]:
        """Return an agent's stretches, of which the last ends after this time."""
        if agent not in self._stretches:
            chance = float(torch.rand((), generator=generator(self._seed, f"{PURPOSE}-begin", agent)))
            share_slow = self._model.mean_slow / (self._model.mean_slow + self._model.mean_fast)
            self._stretches[agent] = (chance < share_slow, [])
        found = self._stretches[agent]
        while not found[1] or found[1][-1] <= time:
            self._extend(agent)
        return found

    def _extend(self, agent: int) -> None:
        """Add a block of stretches; a block has an even number of them, so each begins at the same speed."""
        slow, ends = self._stretches[agent]
        lengths = self._draws.block(agent, len(ends) // self._draws.size).astype(np.float64)
        means = (self._model.mean_slow, self._model.mean_fast)
        lengths[0::2] *= means[0] if slow else means[1]
        lengths[1::2] *= means[1] if slow else means[0]
        last = ends[-1] if ends else 0
        whole = np.maximum(np.rint(lengths), 1).astype(np.int64)
        ends.extend((last + np.cumsum(whole)).tolist())
