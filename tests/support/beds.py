"""Random machines, links and networks for runs in seconds, for the engine and for the oracle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gossamer as gm
from event_oracle import Story, event_oracle, nanoseconds
from gossamer.algorithms.rivals.server import ServerBased
from gossamer.network import Delay
from gossamer.testbed import ComputeTime
from gossamer.testbed.compute_time import IterationClock
from worlds import Smooth, World

COMPUTE = [0.5, 0.7, 1.0, 1.4, 2.0]  # seconds, few, so that agents end at the same time
LATENCY = [0.0, 0.3, 1.0, 2.0, 4.7]
BANDWIDTH = [np.inf, 240.0, 48.0, 20.0]  # bytes a second; a message of x alone has 24 bytes
SIZE = 3  # numbers of a model


def gradient_of(smooth: Smooth) -> Callable:
    """The gradient as runs in seconds ask for it: of any agents, each at an iteration of its own."""

    def gradient(x, agents, iterations):
        rows = zip(np.asarray(x), agents, iterations, strict=True)
        return np.array([smooth.one(int(i), row, int(k)) for row, i, k in rows])

    return gradient


def assert_starts_as(paths: Sequence[Any], expected: np.ndarray) -> None:
    """Each agent's path is the beginning of its path [steps + 1, n, d] there."""
    for i, path in enumerate(paths):
        np.testing.assert_allclose(np.asarray(path), expected[: len(path), i], rtol=1e-12, atol=1e-12)


def needs_complete_graph(rule: gm.Algorithm) -> bool:
    return isinstance(rule, ServerBased)


def can_have_momentum(rule: gm.Algorithm) -> bool:
    try:
        rule.check_local(plain=False)
    except gm.UserError:
        return False
    return True


@dataclass(frozen=True)
class InTurn(ComputeTime, IterationClock):
    """Each agent's iterations take the times of its own cycle."""

    cycles: tuple[tuple[float, ...], ...]

    def seconds(self, agent: int, iteration: int) -> float:
        return self.cycles[agent][iteration % len(self.cycles[agent])]

    def end(self, agent: int, iteration: int, begin: int) -> int:
        return begin + nanoseconds(self.seconds(agent, iteration))

    def clock(self, num_agents: int, seed: int, step_seconds: float = 1.0) -> IterationClock:
        return self

    def mean(self, num_agents: int) -> np.ndarray:
        return np.array([np.mean(cycle) for cycle in self.cycles])


@dataclass(frozen=True)
class Bed:
    """Machines and links, and the world of the agents' losses."""

    n: int
    compute: tuple[tuple[float, ...], ...]  # seconds of each agent's iterations, in turn
    latency: tuple[float, ...]  # n x n, from and to
    bandwidth: tuple[float, ...]
    tolerance: int = 0
    max_age: int = 64
    momentum: float = 0.0
    seconds: float = 9.0
    density: float = 1.0
    num_clusters: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def world(self) -> World:
        graph = {"density": self.density, "num_clusters": self.num_clusters}
        return World(n=self.n, d=SIZE, num_steps=1, largest=0, seed=self.seed, settings=self.settings, **graph)

    @property
    def times(self) -> InTurn:
        return InTurn(self.compute)

    def matrix(self, values: tuple[float, ...]) -> np.ndarray:
        return np.array(values).reshape(self.n, self.n)

    @property
    def testbed(self) -> Any:
        return gm.testbed(
            agents=self.n,
            compute=self.times,
            latency=self.matrix(self.latency),
            bandwidth=self.matrix(self.bandwidth),
            tolerance=self.tolerance,
            max_age=self.max_age,
        )

    def suited_to(self, rule: gm.Algorithm) -> "Bed":
        """This bed, or the nearest one that the rule can run on."""
        changes = {"density": 1.0} if needs_complete_graph(rule) else {}
        changes |= {} if can_have_momentum(rule) else {"momentum": 0.0}
        return replace(self, **changes)

    def line(self, rule: gm.Algorithm, **options: Any) -> Any:
        given = {"testbed": self.testbed, "seconds": self.seconds, "momentum": self.momentum, "seed": self.seed}
        smooth = self.world.smooth
        return gm.timeline(
            rule, self.world.network, gradient_of(smooth), smooth.x0, **{"lr": self.world.lr} | given | options
        )

    def synchronous_path(self, rule: gm.Algorithm) -> np.ndarray:
        """The path [steps + 1, n, d] of as many steps as the fastest agent could make."""
        smooth, steps = self.world.smooth, int(self.seconds / min(map(min, self.compute)))
        local = {"lr": self.world.lr, "momentum": self.momentum}
        return gm.trajectory(rule, self.world.network, smooth.gradient, smooth.x0, steps=steps, **local).numpy()

    def truth(self, rule: gm.Algorithm, delay: Delay) -> Story:
        """What the oracle does, if the rule is told of this delay."""
        names = ("seconds", "tolerance", "max_age", "momentum", "seed")
        return event_oracle(
            rule,
            self.world.network.changed(delay=delay),
            gradient_of(self.world.smooth),
            self.world.smooth.x0,
            lr=self.world.lr,
            compute=self.times.seconds,
            latency=self.matrix(self.latency),
            bandwidth=self.matrix(self.bandwidth),
            message_bytes=self.message_bytes(rule),
            **{name: getattr(self, name) for name in names},
        )

    def message_bytes(self, rule: gm.Algorithm) -> np.ndarray:
        """Bytes in float64 from and to: with plain SGD the direction is the gradient, and is sent once."""
        spared, found = self.world.network.spared.numpy().T, np.zeros((self.n, self.n))
        for names, where in ((rule.message, spared), (rule.message_across, ~spared)):
            parts = {"g" if name == "v" and not self.momentum else name for name in names}
            found[where] = sum(8 * (1 if name in rule.numbers else SIZE) for name in parts)
        return found


@st.composite
def beds(draw: st.DrawFn) -> Bed:
    n = draw(st.integers(2, 6))

    def some(values: list[float], count: int) -> tuple[float, ...]:
        return tuple(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))

    # Where machines and links are alike, agents move together; with few speeds now together, now apart.
    speeds = draw(st.sampled_from([COMPUTE, [1.0, 2.0], [1.0]]))
    cycles = [1, 1] if draw(st.booleans()) else [1, 2, 3]
    alike = draw(st.booleans())
    return Bed(
        n=n,
        compute=tuple(some(speeds, draw(st.sampled_from(cycles))) for _ in range(n)),
        latency=some(LATENCY, 1) * n * n if alike else some(LATENCY, n * n),
        bandwidth=some(BANDWIDTH, 1) * n * n if alike else some(BANDWIDTH, n * n),
        tolerance=draw(st.integers(0, 2)),
        max_age=draw(st.sampled_from([2, 4, 64])),
        momentum=draw(st.sampled_from([0.0, 0.9])),
        seconds=draw(st.sampled_from([3.5, 7.0, 12.0])),
        density=draw(st.sampled_from([0.0, 0.5, 1.0])),
        num_clusters=draw(st.none() | st.integers(1, n)),
        settings={
            "clip_weights": draw(st.sampled_from(["rebuilt", "renormalised"])),
            "mixing": draw(st.sampled_from(["metropolis", "uniform"])),
            "lazy": draw(st.booleans()),
        },
        seed=draw(st.integers(0, 999)),
    )
