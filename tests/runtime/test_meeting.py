"""Agents begin together: each waits for its neighbours' first messages, but for nobody who has left."""

import socket
import threading
import time

import pytest
import torch

import gossamer as gm
from fleet import in_threads
from gossamer.runtime.agent import Agent
from gossamer.runtime.book.address_book import serve_book
from gossamer.runtime.environment import Run
from gossamer.runtime.node import Node

LONG = 15.0  # seconds that nobody is to wait here


@pytest.fixture
def agents():
    """Makes agents of one run that know each other from a book; all are closed at the end."""
    name, server, made = f"meeting-{time.monotonic_ns()}", serve_book("127.0.0.1", 0, None), []

    def make(rank, **values):
        values = {"meet": LONG, "book": server.endpoint, **values}
        made.append(Agent(Run(rank=rank, agents=2, run=name, **values), gm.network("complete:2")))
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


@pytest.mark.parametrize("faults", ["delay:9", "partition:0/1"])
def test_a_fault_that_hides_messages_does_not_hide_who_is_there(faults):
    both = threading.Barrier(2)  # neither leaves before the other has begun

    def work(agent):
        seconds = first_step(agent)
        both.wait(2 * LONG)
        return seconds

    assert max(in_threads(gm.network("complete:2"), work, meet=LONG, faults=faults)) < LONG / 2


def comes_true(said):
    """Say whether something is so in the end."""
    until = time.monotonic() + LONG
    while not said() and time.monotonic() < until:
        time.sleep(0.01)
    return said()


@pytest.mark.parametrize("transport", ["auto", "sockets"])
def test_nobody_waits_for_a_neighbour_that_has_left(agents, transport):
    """It may have ended before this one had heard of it, if the run is short."""
    me, other = agents(0, transport=transport), agents(1, transport=transport)
    other.close()
    assert first_step(me) < LONG / 2


def test_one_that_is_there_and_silent_is_waited_for(agents):
    me, _ = agents(0, meet=1.5), agents(1)
    assert first_step(me) >= 1.5


def test_what_an_earlier_run_of_the_same_name_has_left_in_the_book_is_old(agents):
    agents(1).close()
    assert first_step(agents(0, meet=1.5)) >= 1.5


def test_one_that_fails_has_not_left_as_it_may_be_started_again(agents):
    me = agents(0, meet=1.5)
    with pytest.raises(ZeroDivisionError), agents(1):
        1 / 0
    assert first_step(me) >= 1.5


def test_one_that_comes_back_is_there_again(agents):
    me = agents(0)
    agents(1).close()
    assert comes_true(lambda: me.has_left(1))
    agents(1, restarts=1)
    assert comes_true(lambda: not me.has_left(1))


def test_who_serves_the_book_stays_until_the_others_have_read_that_it_leaves(agents):
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    server = agents(0, book=endpoint, serves_book=True)
    me = agents(1, book=endpoint)
    assert comes_true(lambda: me._connection.book.connected)
    server.close()
    assert me.has_left(0)


def test_without_a_book_nobody_is_known_to_have_left():
    with Agent(Run(agents=2, run=f"meeting-{time.monotonic_ns()}"), gm.network("complete:2")) as agent:
        assert not agent.has_left(1)
