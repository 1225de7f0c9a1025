"""One agent of `gossamer bench runtime`: `python -m gossamer.bench.runtime_worker RANK AGENTS`.

It does as it is told, a line of JSON on standard input each time, and answers each with one on standard output. What
is timed is `Node.step` with a gradient of zeros, or the rule's step alone on an inbox that lies in private memory.
"""

import json
import resource
import select
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from gossamer.algorithms import Inbox, Own, Place, Weights, algorithm
from gossamer.algorithms.steps import weigh
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.network import network as make_network
from gossamer.runtime.agent import Agent
from gossamer.runtime.environment import Run
from gossamer.runtime.node import Node
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor

RULE = "d-asgd"  # its messages are the state alone
STATUS = Path("/proc/self/status")  # where Linux says how much memory a process has
LEARNING_RATE = 0.01  # times a gradient of zeros


def spec(agents: int) -> str:
    """Return who is linked with whom: everybody with everybody."""
    return f"complete:{agents}"


def first_state(rank: int, size: int) -> Float[Tensor, "1 d"]:
    """Return where an agent begins: each elsewhere, so that mixing has something to do."""
    return torch.randn(1, size, generator=generator(0, "bench-runtime", rank))


@runtime_checkable
class Stepper(Protocol):
    """A way to take a step."""

    ages: list[int]  # of the messages that the last step used
    sent: int  # bytes that it sent

    def step(self) -> float:
        """Take a step; return its seconds."""

    def close(self) -> None:
        """Give up what others see of it."""


class Mixing:
    """The rule's step alone: nothing is published, and the neighbours' states have been received before."""

    def __init__(self, rank: int, agents: int, size: int) -> None:
        network = make_network(spec(agents))
        senders = [agent for agent in range(agents) if agent != rank]
        self._x, self._zeros = first_state(rank, size), torch.zeros(1, size)
        self._rows = torch.cat([first_state(sender, size) for sender in senders])
        self._place = Place(network, torch.tensor([rank]), torch.ones(1), torch.tensor(senders))
        self._weights = _row_of_weights(network, rank, senders).to(self._x)
        self._rule = algorithm(RULE)
        self._t = 0
        self.ages: list[int] = []
        self.sent = 0

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

    def close(self) -> None:
        """There is nothing to give up."""


def _row_of_weights(network: Network, rank: int, senders: list[int]) -> Weights:
    """Return one agent's weights when all its neighbours are current."""
    whole, row = weigh(network, network.links, torch.zeros_like(network.links)), slice(rank, rank + 1)
    return Weights(
        own=whole.own[row],
        fresh=whole.fresh[row, senders],
        mass=whole.mass[row],
        clip_own=whole.clip_own[row],
        clip_fresh=whole.clip_fresh[row, senders],
    )


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

    def close(self) -> None:
        """Leave the run."""
        self._agent.close()


def private_memory() -> int:
    """Return the bytes of memory that are this process's alone: a ring that is shared is none of them."""
    lines = STATUS.read_text(encoding="utf-8", errors="replace").splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])


def measure(one: Stepper, steps: int, limit: float, *, memory: bool) -> dict[str, Any]:
    """Take steps until there were enough, or the seconds are over; return what each of them took."""
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
    """Return the seconds of CPU that all threads of this process have used, in the system's name too."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class BenchAgent:
    """Holds the contestants of this process, and does what each line says."""

    def __init__(self, rank: int, agents: int) -> None:
        self._rank, self._agents = rank, agents
        self._contestants: dict[str, Stepper] = {}

    def serve(self) -> None:
        """Do what is told until standard input ends."""
        for line in sys.stdin:
            try:
                getattr(self, "do_" + (command := json.loads(line)).pop("do"))(**command)
            except UserError as error:
                _answer(error=str(error))

    def do_open(self, label: str, size: int, settings: dict[str, Any] | None) -> None:
        """Make a contestant; without settings it is the one that only mixes."""
        made = (
            Mixing(self._rank, self._agents, size)
            if settings is None
            else Gossip(self._rank, self._agents, size, settings)
        )
        self._contestants[label] = made
        _answer()

    def do_run(self, label: str, warm_up: int, steps: int, limit: float, memory: bool) -> None:
        """Measure a contestant, and go on after that until the next line: others may not be through yet."""
        one = self._contestants[label]
        for _ in range(warm_up):
            one.step()
        _answer(**measure(one, steps, limit, memory=memory))
        while not select.select([sys.stdin], [], [], 0)[0]:
            one.step()

    def do_rest(self) -> None:
        """Take no steps: by the time this is read, the last one has ended."""
        _answer()

    def do_close(self, label: str) -> None:
        """Drop a contestant."""
        self._contestants.pop(label).close()
        _answer()


def _answer(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        BenchAgent(int(sys.argv[1]), int(sys.argv[2])).serve()
