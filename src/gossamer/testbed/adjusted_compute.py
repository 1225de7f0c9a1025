"""A compute model with slower agents, or with a time for the update itself."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from gossamer.testbed.time_unit import check_seconds, to_nanoseconds

MOST_TIMES = 1e6


@dataclass(frozen=True)
class AdjustedCompute(ComputeTime):
    """The work of some agents' iterations is so many times as much; after the gradient comes the update.

    Attributes:
        base: the model.
        factors: of each agent; None: all alike.
        update: the time of the update itself, in the unit of the model.
    """

    base: ComputeTime
    factors: tuple[float, ...] | None = None
    update: float = 0.0

    def __post_init__(self) -> None:
        check_seconds("update", self.update)
        for factor in self.factors or ():
            if not 1 / MOST_TIMES <= factor <= MOST_TIMES:
                raise UserError(f"factor of an agent's time must lie in [1e-06, 1e+06], got {factor}; try 4")

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        factors = self.factors or (1.0,) * num_agents
        clocks = {each: self.base.clock(num_agents, seed, step_seconds * each) for each in set(factors)}
        return AdjustedClock([clocks[each] for each in factors], to_nanoseconds(self.update * step_seconds))

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        factors = np.array(self.factors or 1.0, dtype=np.float64)
        return np.asarray(self.base.mean(num_agents) * factors + self.update)

    def check(self, num_agents: int) -> None:
        self.base.check(num_agents)
        if self.factors is not None and len(self.factors) != num_agents:
            raise UserError(f"slow has {len(self.factors)} numbers for {num_agents} agents; give one per agent")


@dataclass(frozen=True)
class AdjustedClock(IterationClock):
    """Asks the clock of each agent, and adds the update."""

    of_agents: list[IterationClock]
    update: int

    def end(self, agent: int, iteration: int, begin: int) -> int:
        return self.of_agents[agent].end(agent, iteration, begin) + self.update
