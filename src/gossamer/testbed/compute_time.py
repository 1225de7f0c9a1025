"""How long an agent's iterations take."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.testbed.time_unit import LEAST, check_seconds, to_nanoseconds


class IterationClock(ABC):
    """The iterations of one run: a pure function, so that a resumed run needs no state of it."""

    @abstractmethod
    def end(self, agent: int, iteration: int, begin: int) -> int:
        """Return when an iteration that begins at this time ends, in nanoseconds, if nothing interrupts it."""


class ComputeTime(ABC):
    """A model of the time that iterations take, in seconds or in multiples of `step_seconds`."""

    @abstractmethod
    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        """Return the iterations of a run."""

    @abstractmethod
    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        """Return each agent's mean, in multiples of `step_seconds`."""

    def check(self, num_agents: int) -> None:  # noqa: B027 - most models fit any number of agents
        """Raise UserError if the model is not for so many agents."""


@dataclass(frozen=True)
class SameAlways(IterationClock):
    """Iterations of an agent always take the same time."""

    nanoseconds: Sequence[int]

    def end(self, agent: int, iteration: int, begin: int) -> int:
        return begin + self.nanoseconds[agent]


@dataclass(frozen=True)
class Constant(ComputeTime):
    """The same time for every iteration: one number, or one for each agent."""

    seconds: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for value in self.seconds if isinstance(self.seconds, tuple) else (self.seconds,):
            check_seconds("compute", value, least=LEAST)

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        return SameAlways([to_nanoseconds(value * step_seconds) for value in self.mean(num_agents)])

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        return np.broadcast_to(np.asarray(self.seconds, dtype=np.float64), (num_agents,))

    def check(self, num_agents: int) -> None:
        if isinstance(self.seconds, tuple) and len(self.seconds) != num_agents:
            raise UserError(
                f"compute has {len(self.seconds)} numbers for {num_agents} agents; give one number, or one per agent"
            )
