"""Agents begin together: each waits for its neighbours' first messages, but for nobody who has left."""

import time

import pytest
import torch

import gossamer as gm
from gossamer.runtime.agent import Agent
from gossamer.runtime.book import serve_book
from gossamer.runtime.environment import Run
from gossamer.runtime.node import Node

LONG = 60.0  # seconds that nobody is to wait here


@pytest.fixture
def agents():
    """Makes agents of one run that know each other from a book; all are closed at the end."""
    server, made = serve_book("127.0.0.1", 0, None), []

    def make(rank, **values):
        name = f"meeting-{time.monotonic_ns()}" if not made else made[0].run.run
        run = Run(rank=rank, agents=2, run=name, book=server.endpoint, **{"meet": LONG, **values})
        made.append(Agent(run, gm.network("complete:2")))
        return made[-1]

    yield make
    for agent in made:
        agent.close()
    server.close()


def first_step(agent):
    """Take the first step, and return how many seconds that took."""
    zero = torch.zeros(1, 2, dtype=torch.float64)
    node = Node(agent, gm.algorithm("d-asgd"), zero, segments=(2,), plain=True)
    agent.on_close(node.close)
    begun = time.monotonic()
    node.step(zero, zero, zero, 0.1)
    return time.monotonic() - begun


@pytest.mark.parametrize("transport", ["auto", "sockets"])
def test_nobody_waits_for_a_neighbour_that_has_left(agents, transport):
    """It may have ended before this one had heard of it, if the run is short."""
    other = agents(1, transport=transport)
    other.close()
    assert first_step(agents(0, transport=transport)) < LONG / 2


def test_one_that_is_there_and_silent_is_waited_for(agents):
    agents(1)
    assert first_step(agents(0, meet=1.5)) >= 1.5


def test_one_that_comes_back_is_there_again(agents):
    agents(1).close()
    me = agents(0)
    until = time.monotonic() + LONG / 2
    while not me.has_left(1) and time.monotonic() < until:
        time.sleep(0.01)
    assert me.has_left(1)
    agents(1, restarts=1)
    while me.has_left(1) and time.monotonic() < until:
        time.sleep(0.01)
    assert not me.has_left(1)


def test_without_a_book_nobody_is_known_to_have_left():
    with Agent(Run(agents=2, run=f"meeting-{time.monotonic_ns()}"), gm.network("complete:2")) as agent:
        assert not agent.has_left(1)
