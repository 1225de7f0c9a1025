"""The slow truth of a run in seconds: every agent, link and message by itself, in a heap of events.

Nothing is shared with the engine under test, and nothing is stacked: each agent calls the rule alone, with a = 1.
Times are whole nanoseconds, so that equal times are equal. At the same nanosecond, in this order:

    FREE    a link has sent its message, and begins with the one that waits
    END     iterations end, and all of them publish
    ARRIVE  messages arrive
    TAKE    the agents whose iteration has ended take what has arrived
    STEP    the rule makes their next states, and their next iterations begin
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from event_agent import EventAgent, Said
from gossamer.algorithms import Algorithm, Noise, Own, Past, Place
from gossamer.algorithms.steps import weigh
from gossamer.network import Network
from worlds import noise_of

FREE, END, ARRIVE, TAKE, STEP = range(5)

Gradient = Callable[[Any, Sequence[int], Sequence[int]], Any]  # of x [a, d], the agents and their iterations
Ends = tuple[int, int]  # of a link: from, to


def nanoseconds(seconds: float) -> int:
    return round(float(seconds) * 10**9)


@dataclass
class Wire:
    """A directed link."""

    busy_for: int
    latency: int
    keeps_all: bool  # for rules that wait: what finds the link busy queues up, and replaces nothing
    busy: bool = False
    waiting: list[Said] = field(default_factory=list)


@dataclass(frozen=True)
class Story:
    """What happened. For each agent: the seconds of its updates, its states [updates + 1, d], and the ages it used."""

    times: list[np.ndarray]
    paths: list[np.ndarray]
    ages: list[list[dict[int, int]]]  # per update: sender -> age, without those of whom nothing is held


@dataclass(frozen=True)
class Elsewhere:
    """Gradients of one agent's iteration at other points."""

    gradient: Callable[[torch.Tensor], torch.Tensor]

    def fresh_gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self.gradient(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Events:
    """A run."""

    def __init__(self, algorithm: Algorithm, network: Network, gradient: Gradient, x0: Any, **given: Any) -> None:
        self.algorithm, self.gradient, self.given = algorithm, gradient, given
        self.network = network.without_delay() if algorithm.waits else network
        self.links, self.n = self.network.pattern, network.num_agents
        self.current = torch.zeros(len(self.links), dtype=torch.bool)  # each agent's links as at its newest update
        self.heap: list[tuple[int, int, int, Any]] = []
        self.number = itertools.count()
        self.agents = [self._agent(i, x0[i]) for i in range(self.n)]
        self.wires = self._wires()
        self.times: list[list[int]] = [[] for _ in self.agents]
        self.paths = [[agent.x[0]] for agent in self.agents]
        self.ages: list[list[dict[int, int]]] = [[] for _ in self.agents]

    def _agent(self, i: int, x0: np.ndarray) -> EventAgent:
        senders, x = self.links.senders_of(i), torch.tensor(np.array(x0)[None], dtype=torch.float64)
        place = Place(self.network, torch.tensor([i]), torch.ones(1, dtype=torch.float64), torch.tensor(senders))
        heard: dict[int, dict[int, Said]] = {k: {} for k in senders}
        state = dict(self.algorithm.start(x, place))
        return EventAgent(self.algorithm, place, x, state, heard, self.given["tolerance"], self.given["max_age"])

    def _wires(self) -> dict[Ends, Wire]:
        names = ("latency", "bandwidth", "message_bytes")
        latency, rate, size = (np.broadcast_to(np.asarray(self.given[name], float), (self.n, self.n)) for name in names)
        ends = [(k, i) for i, agent in enumerate(self.agents) for k in agent.heard]
        return {
            end: Wire(nanoseconds(size[end] / rate[end]), nanoseconds(latency[end]), self.algorithm.waits)
            for end in ends
        }

    def at(self, time: int, kind: int, what: Any) -> None:
        heapq.heappush(self.heap, (time, kind, next(self.number), what))

    def run(self) -> Story:
        for i in range(self.n):
            self.begin(i, 0)
        last = nanoseconds(self.given["seconds"])
        do = {FREE: self.free, END: self.end, ARRIVE: self.arrive, TAKE: self.take, STEP: self.step}
        while self.heap and self.heap[0][0] <= last:
            now, kind, _, what = heapq.heappop(self.heap)
            do[kind](what, now)
        times = [np.array(of_agent, dtype=np.float64) / 1e9 for of_agent in self.times]
        return Story(times, [torch.stack(path).numpy() for path in self.paths], self.ages)

    # ---- iterations

    def begin(self, i: int, now: int) -> None:
        compute, k = self.given["compute"], len(self.agents[i].said)
        seconds = compute(i, k) if callable(compute) else np.broadcast_to(compute, self.n)[i]
        self.at(now + nanoseconds(seconds), END, i)

    def end(self, i: int, now: int) -> None:
        """Take the gradient where the iteration began, and publish."""
        agent, momentum = self.agents[i], self.given["momentum"]
        k = len(agent.said)

        def gradient(x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.gradient(x, [i], [k])).to(torch.float64).clone()

        g = gradient(agent.x)
        agent.memory = g if agent.memory is None else momentum * agent.memory + g
        v = agent.memory if momentum else g
        more = {"evaluate": Elsewhere(gradient), "place": agent.place, "state": agent.state, "momentum": momentum}
        own = Own(agent.x, g, v, self.given["lr"], k, (agent.x.shape[1],), **more)
        sent = self.algorithm.send(own)
        said = Said(k, now, {"x": agent.x, "g": g, "v": v, **sent})
        agent.said.append(said)
        previous = None if self.algorithm.past is Past.NONE else agent.said[max(k - 1, 0)].parts["x"]
        agent.own = replace(own, sent=sent, previous=previous)
        for j in agent.heard:
            if k % self.period(i, j) == 0:
                self.publish((i, j), said, now)
        self.look(i, now)

    def period(self, sender: int, receiver: int) -> int:
        """Agents send at multiples of it, in iterations of their own."""
        inside = bool(self.network.spared[receiver, sender])
        return self.algorithm.period_inside if inside else self.algorithm.period

    # ---- links

    def publish(self, ends: Ends, said: Said, now: int) -> None:
        wire = self.wires[ends]
        if not wire.busy:
            self.transmit(ends, said, now)
        elif wire.keeps_all:
            wire.waiting.append(said)
        else:
            wire.waiting = [said]

    def transmit(self, ends: Ends, said: Said, now: int) -> None:
        wire = self.wires[ends]
        wire.busy = wire.busy_for > 0
        if wire.busy:
            self.at(now + wire.busy_for, FREE, ends)
        self.at(now + wire.busy_for + wire.latency, ARRIVE, (ends, said))

    def free(self, ends: Ends, now: int) -> None:
        wire = self.wires[ends]
        wire.busy = False
        if wire.waiting:
            self.transmit(ends, wire.waiting.pop(0), now)

    def arrive(self, what: tuple[Ends, Said], now: int) -> None:
        (sender, receiver), said = what
        self.agents[receiver].heard[sender][said.iteration] = said
        if self.algorithm.waits:
            self.look(receiver, now)

    # ---- updates

    def look(self, i: int, now: int) -> None:
        if self.agents[i].can_take():
            self.agents[i].taking = True
            self.at(now, TAKE, i)

    def take(self, i: int, now: int) -> None:
        agent, first = self.agents[i], int(self.links.starts[i])
        agent.take()
        for number, j in enumerate(agent.heard, first):
            self.current[number] = agent.is_current(j)
        self.at(now, STEP, i)

    def step(self, i: int, now: int) -> None:
        agent, first = self.agents[i], int(self.links.starts[i])
        late = torch.zeros(len(self.links), dtype=torch.bool)
        for number, j in enumerate(agent.heard, first):
            late[number] = agent.is_late(j)
        weights = weigh(self.network, self.current, late).of(agent.place)
        assert agent.own is not None
        update = self.algorithm.step(agent.own, agent.inbox(), weights, self.noise(i, agent.own.t))
        agent.x, agent.state, agent.own, agent.taking = update.x, dict(update.state), None, False
        self.times[i].append(now)
        self.paths[i].append(agent.x[0])
        self.ages[i].append(dict(agent.age))
        self.begin(i, now)

    def noise(self, i: int, k: int) -> Noise | None:
        if not self.algorithm.draws:
            return None
        of_agents, shared = noise_of(self.given["seed"], k, self.n)
        return Noise(torch.from_numpy(of_agents[i : i + 1].copy()), shared)


def event_oracle(
    algorithm: Algorithm,
    network: Network,
    gradient: Gradient,
    x0: Any,
    *,
    lr: float,
    compute: float | Sequence[float] | Callable[[int, int], float],
    latency: Any = 0.0,
    bandwidth: Any = np.inf,
    message_bytes: Any = 0,
    seconds: float,
    tolerance: int = 0,
    max_age: int = 64,
    momentum: float = 0.0,
    seed: int = 0,
) -> Story:
    """Run a rule in seconds.

    compute: seconds of an iteration, of all agents, of each, or a function of the agent and the iteration.
    latency [from, to] in seconds, bandwidth [from, to] in bytes a second, message_bytes [from, to]; or one number.
    The network's own delay is what the rule is told of, as PC-ASGD's theta uses it; the messages do not follow it.
    """
    times = {"compute": compute, "latency": latency, "bandwidth": bandwidth, "message_bytes": message_bytes}
    limits = {"seconds": seconds, "tolerance": tolerance, "max_age": max_age}
    return Events(algorithm, network, gradient, x0, lr=lr, momentum=momentum, seed=seed, **times, **limits).run()
