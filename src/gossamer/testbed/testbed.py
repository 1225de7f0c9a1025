"""A testbed: the machines and links on which a run is simulated, in seconds."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer.errors import UserError, unknown_name
from gossamer.network import Links
from gossamer.testbed.absence import AbsenceSchedule
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from gossamer.testbed.link_times import Jitter, LinkTimes, RandomLinkTimes
from gossamer.testbed.place_table import Numbers, at_links
from gossamer.testbed.recorded_latency import RecordedLatencies
from gossamer.testbed.time_unit import LEAST, SECOND, check_seconds

MAX_AGE = 64  # own iterations, as in the runtime
# A sender is gone after so many of its usual intervals without news, and so many seconds; in the runtime too.
SILENT_INTERVALS, LEAST_DEADLINE = 20, 2.0
RETURNING = ("own", "adopt")
CUSTOM = "custom"  # the text of a testbed that no text or file repeats
MOST_BYTES = 1e15


@dataclass(frozen=True, eq=False)
class Testbed:
    """Machines and links, in seconds and bytes.

    Attributes:
        agents: their number.
        compute: the time of an iteration.
        latency: seconds, one number, a matrix [from, to] or a table of places.
        bandwidth: bytes a second, one number, a matrix or a table; infinity: sending takes no time.
        uplink: bytes a second that an agent can send in all, one number or one per agent; None: no such limit.
        tolerance: messages of at most this age count as current.
        max_age: older messages are dropped; own iterations.
        deadline: seconds of silence after which a sender counts as gone; "auto": 20 usual intervals, at least 2 s.
        returning: whether an agent that returns goes on from its "own" state or "adopt"s a neighbour's.
        step_seconds: the unit of `compute`.
        spec: the text that it was made from.
        jitter: extra latency of each message; None: no such.
        loss: the probability that a message is lost, one number, a matrix or a table.
        schedule: agents and links that go down and come back; None: nobody does.
        places: where each agent is; None: each by itself.
        model_bytes: messages count as if the model had so many bytes; None: as they are.
    """

    __test__: ClassVar[bool] = False  # no test, in spite of its name

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
    spec: str = CUSTOM
    jitter: Jitter | None = None
    loss: Numbers = 0.0
    schedule: AbsenceSchedule | None = None
    places: tuple[str, ...] | None = None
    model_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise UserError(f"a testbed needs 1 agent or more, got {self.agents}")
        self.compute.check(self.agents)
        check_seconds("step_seconds", self.step_seconds, least=LEAST)
        if self.schedule is not None:
            self.schedule.check(self.agents)
        for name, value, least in (("tolerance", self.tolerance, 0), ("max_age", self.max_age, 1)):
            if value < least:
                raise UserError(f"{name} must be {least} or more own iterations, got {value}")
        if isinstance(self.deadline, str) and self.deadline != "auto":
            raise UserError(f"deadline must be auto or a number of seconds, got '{self.deadline}'; write it like 30")
        if not isinstance(self.deadline, str):
            check_seconds("deadline", self.deadline, least=LEAST)
        if self.model_bytes is not None and not 1 <= self.model_bytes <= MOST_BYTES:
            raise UserError(f"model must lie in [1, {MOST_BYTES:.0e}] bytes, got {self.model_bytes:g}; try 13.6MB")
        if self.returning not in RETURNING:
            raise unknown_name("returning", self.returning, RETURNING)

    def scaled(self, sizes: list[int], model_bytes: int) -> list[int]:
        """Return the bytes that messages count as, of a model that has in truth `model_bytes`."""
        return sizes if self.model_bytes is None else [round(size * self.model_bytes / model_bytes) for size in sizes]

    def iterations(self, seed: int) -> IterationClock:
        """Return when the iterations of a run end."""
        return self.compute.clock(self.agents, seed, self.step_seconds)

    def links(self, links: Links, seed: int) -> LinkTimes:
        """Return how long messages take on these links in a run."""
        self.check_network(links.shape[0])
        latency = np.rint(at_links(self.latency, links) * SECOND).astype(np.int64)
        uplink = None if self.uplink is None else np.broadcast_to(np.asarray(self.uplink, float), (self.agents,))
        times = LinkTimes(latency, at_links(self.bandwidth, links), uplink)
        times = RandomLinkTimes.of_run(times, seed, self.jitter, at_links(self.loss, links))
        return self.latency.replayed(times, links) if isinstance(self.latency, RecordedLatencies) else times

    def check_network(self, num_agents: int) -> None:
        """Raise UserError if a network has another number of agents."""
        if num_agents != self.agents:
            raise UserError(
                f"testbed {self.spec} has {self.agents} agents, the network {num_agents}; use one number for both"
            )
