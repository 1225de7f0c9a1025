"""A testbed: the machines and links on which a run is simulated, in seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.network import Links
from gossamer.testbed.compute_time import ComputeTime, Constant, IterationClock
from gossamer.testbed.link_times import LinkTimes
from gossamer.testbed.time_unit import SECOND, check_seconds

MAX_AGE = 64  # own iterations, as in the runtime
RETURNING = ("own", "adopt")
Numbers = float | npt.NDArray[np.float64]  # one for all links, or [from, to]


@dataclass(frozen=True, eq=False)
class Testbed:
    """Machines and links, in seconds and bytes.

    Attributes:
        agents: their number.
        compute: the time of an iteration.
        latency: seconds, one number or a matrix [from, to].
        bandwidth: bytes a second, one number or a matrix [from, to]; infinity: sending takes no time.
        uplink: bytes a second that an agent can send in all, one number or one per agent; None: no such limit.
        tolerance: messages of at most this age count as current.
        max_age: older messages are dropped; own iterations.
        deadline: seconds of silence after which a sender's message is dropped; "auto": 20 of its usual intervals.
        returning: whether an agent that returns goes on from its own state or adopts a neighbour's.
        step_seconds: the unit of `compute`.
        spec: the text that it was made from.
    """

    agents: int
    compute: ComputeTime
    latency: Numbers = 0.0
    bandwidth: Numbers = math.inf
    uplink: float | tuple[float, ...] | None = None
    tolerance: int = 0
    max_age: int = MAX_AGE
    deadline: float | str = "auto"
    returning: str = "own"
    step_seconds: float = 1.0
    spec: str = "custom"

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise UserError(f"a testbed needs 1 agent or more, got {self.agents}")
        self.compute.check(self.agents)
        check_seconds("step_seconds", self.step_seconds, least=1e-6)

    def iterations(self, seed: int) -> IterationClock:
        """Return when the iterations of a run end."""
        return self.compute.clock(self.agents, seed, self.step_seconds)

    def links(self, links: Links, seed: int) -> LinkTimes:
        """Return how long messages take on these links in a run."""
        latency = np.asarray(_at_links(self.latency, links), dtype=np.float64)
        uplink = None if self.uplink is None else np.broadcast_to(np.asarray(self.uplink, float), (self.agents,))
        return LinkTimes(np.rint(latency * SECOND).astype(np.int64), _at_links(self.bandwidth, links), uplink)


def _at_links(numbers: Numbers, links: Links) -> npt.NDArray[np.float64]:
    """Return the number of each link; matrices are [from, to]."""
    if isinstance(numbers, np.ndarray):
        found: npt.NDArray[np.float64] = numbers[links.senders.numpy(), links.receivers.numpy()]
        return found
    return np.full(len(links), numbers, dtype=np.float64)


def testbed(
    *,
    agents: int,
    compute: float | Sequence[float] | ComputeTime = 1.0,
    latency: Any = 0.0,
    bandwidth: Any = math.inf,
    uplink: float | Sequence[float] | None = None,
    tolerance: int = 0,
    max_age: int = MAX_AGE,
    deadline: float | str = "auto",
    returning: str = "own",
) -> Testbed:
    """Make a testbed from numbers."""
    if not isinstance(compute, ComputeTime):
        compute = Constant(compute if isinstance(compute, int | float) else tuple(map(float, compute)))
    return Testbed(
        agents,
        compute,
        _numbers("latency", latency, agents, least=0.0),
        _numbers("bandwidth", bandwidth, agents, least=None),
        uplink if uplink is None or isinstance(uplink, int | float) else tuple(map(float, uplink)),
        tolerance,
        max_age,
        deadline,
        returning,
    )


def _numbers(name: str, value: Any, agents: int, *, least: float | None) -> Numbers:
    found = np.asarray(value, dtype=np.float64)
    if found.ndim == 0:
        return float(found)
    if found.shape == (agents,):  # of each sender
        found = np.broadcast_to(found[:, None], (agents, agents))
    if found.shape != (agents, agents):
        raise UserError(
            f"{name} has shape {found.shape}; give one number, or a matrix [{agents}, {agents}] of from and to"
        )
    return found
