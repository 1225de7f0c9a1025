"""One agent of `gossamer bench runtime`: `python -m gossamer.bench.runtime_worker RANK AGENTS`.

It reads commands as lines of JSON from standard input and answers each with one line on standard output. It times
`Node.step` with a gradient of zeros, or the rule's step alone on an inbox in private memory.
"""

import json
import resource
import select
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gossamer.algorithms import Inbox, Own, Place, algorithm
from gossamer.algorithms.steps import weigh
from gossamer.errors import UserError
from gossamer.network import network as make_network
from gossamer.runtime.agent import Agent
from gossamer.runtime.environment import Run
from gossamer.runtime.node import Node
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor

RULE = "d-asgd"  # its messages contain only the state
STATUS = Path("/proc/self/status")  # the memory of a process on Linux
LEARNING_RATE = 0.01  # times a gradient of zeros


def spec(agents: int) -> str:
    """Return the network: complete."""
    return f"complete:{agents}"


def first_state(rank: int, size: int) -> Float[Tensor, "1 d"]:
    """Return the first state of an agent, different for each."""
    return torch.randn(1, size, generator=generator(0, "bench-runtime", rank))


class Mixing:
    """The rule's step alone: nothing is sent, and the neighbours' states are already here."""

    def __init__(self, rank: int, agents: int, size: int) -> None:
        network = make_network(spec(agents))
        senders = [agent for agent in range(agents) if agent != rank]
        self._x, self._zeros = first_state(rank, size), torch.zeros(1, size)
        self._rows = torch.cat([first_state(sender, size) for sender in senders])
        self._place = Place(network, torch.tensor([rank]), torch.ones(1), torch.tensor(senders))
        current = torch.ones(len(network.pattern), dtype=torch.bool)
        self._weights = weigh(network, current, ~current).to(self._x).of(self._place)
        self._rule = algorithm(RULE)
        self._t = 0
        self.ages: list[int] = []  # of the messages that the last step used
        self.sent = 0  # bytes that the last step sent

    def step(self) -> float:
        """Take a step; return its seconds."""
        x, zeros = self._x, self._zeros
        own = Own(x, zeros, zeros, LEARNING_RATE, self._t, (x.shape[1],), place=self._place)
        inbox = Inbox(self._rows, (), {"x": self._rows}, {"x": x})
        before = time.perf_counter()
        update = self._rule.step(own, inbox, self._weights, None)
        seconds = time.perf_counter() - before
        self._x, self._t = update.x, self._t + 1
        return seconds


class Gossip:
    """A whole step of an agent: publish, receive, mix."""

    def __init__(self, rank: int, agents: int, size: int, settings: dict[str, Any]) -> None:
        self._agent = Agent(Run(rank=rank, agents=agents, network=spec(agents), algorithm=RULE, **settings))
        self._x, self._zeros = first_state(rank, size), torch.zeros(1, size)
        self._node = Node(self._agent, algorithm(RULE), self._x, segments=(size,), plain=True)
        self.ages: list[int] = []
        self.sent = 0

    def step(self) -> float:
        """Take a step; return its seconds."""
        before = time.perf_counter()
        done = self._node.step(self._x, self._zeros, self._zeros, LEARNING_RATE)
        seconds = time.perf_counter() - before
        self._x = done.x
        self.ages, self.sent = [age for age in done.ages.values() if 0 <= age <= self._agent.run.max_age], done.sent
        return seconds


def private_memory() -> int:
    """Return the private memory of this process in bytes, without shared rings."""
    lines = STATUS.read_text(encoding="utf-8", errors="replace").splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])


def measure(one: Mixing | Gossip, steps: int, limit: float, *, memory: bool) -> dict[str, Any]:
    """Take steps until there are enough or the limit in seconds is over; return the times."""
    seconds: list[float] = []
    ages: list[int] = []
    private, sent = [], 0
    until, before = time.monotonic() + limit, _cpu()
    while len(seconds) < steps and (not seconds or time.monotonic() < until):
        seconds.append(one.step())
        ages += one.ages
        sent += one.sent
        if memory:
            private.append(private_memory())
    return {
        "seconds": seconds,
        "cpu": (_cpu() - before) / len(seconds),
        "age": statistics.fmean(ages) if ages else None,
        "sent": sent / len(seconds),
        "memory": private,
    }


def _cpu() -> float:
    """Return the CPU seconds of all threads of this process, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class BenchAgent:
    """Holds the contestants of this process and executes commands."""

    def __init__(self, rank: int, agents: int) -> None:
        self._rank, self._agents = rank, agents
        self._contestants: dict[str, Mixing | Gossip] = {}

    def serve(self) -> None:
        """Execute commands until standard input ends."""
        for line in sys.stdin:
            try:
                getattr(self, "do_" + (command := json.loads(line)).pop("do"))(**command)
            except UserError as error:
                _answer(error=str(error))

    def do_open(self, label: str, size: int, settings: dict[str, Any] | None) -> None:
        """Make a contestant: Gossip with settings, Mixing without."""
        made = (
            Mixing(self._rank, self._agents, size)
            if settings is None
            else Gossip(self._rank, self._agents, size, settings)
        )
        self._contestants[label] = made
        _answer()

    def do_run(self, label: str, warm_up: int, steps: int, limit: float, memory: bool) -> None:
        """Measure a contestant, then keep stepping until the next command: others may still measure."""
        one = self._contestants[label]
        for _ in range(warm_up):
            one.step()
        _answer(**measure(one, steps, limit, memory=memory))
        while not select.select([sys.stdin], [], [], 0)[0]:
            one.step()

    def do_rest(self) -> None:
        """Stop stepping; the answer means that the last step has ended."""
        _answer()


def _answer(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        BenchAgent(int(sys.argv[1]), int(sys.argv[2])).serve()
