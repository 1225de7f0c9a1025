"""Iteration times drawn anew for every iteration: lognormal, shifted exponential."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.testbed.block_draws import BlockDraws, exponential, lognormal
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from gossamer.testbed.time_unit import LEAST, MOST, SECOND, check_seconds

PURPOSE = "testbed-compute"
MOST_SIGMA = 5.0  # already e^5: one standard deviation is a factor of 148


class DrawnTimes(IterationClock):
    """Each iteration takes a time of its own, drawn by agent and iteration."""

    def __init__(
        self, seed: int, seconds: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]], *, normal: bool
    ):
        """Draw times in seconds from uniform or normal numbers; none is shorter than a nanosecond."""
        self._draws = BlockDraws(seed, PURPOSE, lambda drawn: _whole_nanoseconds(seconds(drawn)), normal=normal)

    def end(self, agent: int, iteration: int, begin: int) -> int:
        return begin + int(self._draws.at(agent, iteration))


def _whole_nanoseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.rint(np.clip(seconds, 1 / SECOND, MOST) * SECOND).astype(np.int64)


@dataclass(frozen=True)
class LognormalTime(ComputeTime):
    """Lognormal times. `sigma` is the standard deviation of the logarithm."""

    average: float
    sigma: float

    def __post_init__(self) -> None:
        check_seconds("mean of compute", self.average, least=LEAST)
        if not 0 <= self.sigma <= MOST_SIGMA:
            raise UserError(f"sigma of lognormal compute must lie in [0, {MOST_SIGMA:g}], got {self.sigma}; try 0.3")

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        average = self.average * step_seconds
        return DrawnTimes(seed, lambda drawn: lognormal(drawn, average, self.sigma), normal=True)

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        return np.full(num_agents, self.average)


@dataclass(frozen=True)
class ShiftedExponential(ComputeTime):
    """At least `shift`, and then an exponential time of mean `tail`."""

    shift: float
    tail: float

    def __post_init__(self) -> None:
        check_seconds("shift of compute", self.shift)
        check_seconds("mean of exponential compute", self.tail, least=LEAST)

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        shift, tail = self.shift * step_seconds, self.tail * step_seconds
        return DrawnTimes(seed, lambda drawn: shift + exponential(drawn, tail), normal=False)

    def mean(self, num_agents: int) -> npt.NDArray[np.float64]:
        return np.full(num_agents, self.shift + self.tail)
