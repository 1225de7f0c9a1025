"""Agents that run side by side in one test: threads with a transport of their own each."""

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

import gossamer as gm
from gossamer.runtime.agent import Agent
from gossamer.runtime.environment import Run
from gossamer.runtime.transport.shared_memory import remove_leftovers

_numbers = itertools.count()


def fresh_run_id() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


def in_threads(network: gm.Network, work: Callable[[Agent], Any], book: str | None = None, **run: Any) -> list[Any]:
    """Let every agent of a network do its work, and return what each came back with."""
    name, count = fresh_run_id(), network.num_agents
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            with Agent(Run(rank=rank, agents=count, run=name, book=book, **run), network) as agent:
                results[rank] = work(agent)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert not any(thread.is_alive() for thread in threads) or errors, "agents hang"
        if errors:
            raise errors[0]
    finally:
        remove_leftovers(name)
    return results


def path_of(
    agent: Agent,
    algorithm: gm.Algorithm,
    x0: torch.Tensor,
    gradient: Callable,
    loss: Callable,
    lr: float,
    steps: int,
    **local: Any,
) -> torch.Tensor:
    """The states of one agent, which takes its steps through the optimiser: [steps + 1, d]."""
    x = torch.nn.Parameter(x0.clone())
    optimizer = gm.optim.Decentralized([x], lr=lr, algorithm=algorithm, agent=agent, **local)
    path = [x.detach().cpu().clone()]
    for t in range(steps):

        def closure(t: int = t) -> torch.Tensor:
            here = x.detach().cpu().numpy()
            x.grad = torch.as_tensor(gradient(here, t)).to(x)
            return torch.as_tensor(loss(here, t))

        optimizer.step(closure, fresh=closure)
        path.append(x.detach().cpu().clone())
    return torch.stack(path)
