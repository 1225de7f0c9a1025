"""Two transports that look like one: each link goes its own way."""

import pytest
import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.auto_transport import AutoTransport
from gossamer.runtime.transport.base import Letter, Transport

STAMP = Stamp(0, 1, 2, 3, 4)
PARTS = [torch.tensor([1.0])]


class Spy(Transport):
    """A transport that writes down what it is asked."""

    def __init__(self, name, offset):
        super().__init__()
        self.calls, self.name, self.time = [], name, offset
        self.letters = {}

    def open(self, length):
        self.calls.append(("open", length))

    def publish(self, stamp, parts):
        self.calls.append(("publish", stamp, parts))

    def latest(self, peer):
        return self.letters.setdefault(peer, Letter(STAMP, torch.empty(0, dtype=torch.uint8)))

    def at(self, peer, sequence):
        return self.letters.setdefault((peer, sequence), Letter(STAMP, torch.empty(0, dtype=torch.uint8)))

    def tick(self, step):
        self.calls.append(("tick", step))

    def offset(self, peer):
        return self.time + peer

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def shared():
    return Spy("shared", 100)


@pytest.fixture
def sockets():
    return Spy("sockets", 200)


OPENED = [("open", 4), ("publish", STAMP, PARTS)]


@pytest.mark.parametrize(
    ("hosts", "in_shared", "in_sockets"),
    [
        ({1: True, 2: True}, True, False),
        ({1: False, 2: False}, False, True),
        ({1: True, 2: False}, True, True),
        ({1: True, 2: None}, True, True),
        ({1: False, 2: None}, True, True),
        ({}, False, False),
    ],
)
def test_messages_go_by_every_way_on_which_a_peer_may_listen(shared, sockets, hosts, in_shared, in_sockets):
    links = AutoTransport(list(hosts), shared, sockets, hosts.get)
    links.open(4)
    assert shared.calls == OPENED[:1] * in_shared and sockets.calls == OPENED[:1] * in_sockets
    links.publish(STAMP, PARTS)
    assert shared.calls == OPENED * in_shared and sockets.calls == OPENED * in_sockets


def test_letters_and_clocks_come_from_where_the_peer_is(shared, sockets):
    links = AutoTransport([1, 2, 3], shared, sockets, {1: True, 2: False}.get)
    for peer, way in ((1, shared), (2, sockets)):
        assert links.latest(peer) is way.latest(peer) and links.at(peer, 7) is way.at(peer, 7)
        assert links.offset(peer) == way.offset(peer)
    assert links.latest(3) is None and links.at(3, 7) is None and links.offset(3) is None


def test_a_peer_that_comes_back_on_another_host_is_followed(shared, sockets):
    hosts = {1: False}
    links = AutoTransport([1], shared, sockets, hosts.get)
    links.open(4)
    links.publish(STAMP, PARTS)
    assert links.latest(1) is sockets.latest(1)
    hosts[1] = True
    assert links.latest(1) is shared.latest(1) and links.offset(1) == 101
    links.publish(STAMP, PARTS)
    assert sockets.calls == OPENED and shared.calls == OPENED
    hosts[1] = False
    links.publish(STAMP, PARTS)
    assert sockets.calls == [*OPENED, OPENED[1]] and shared.calls == OPENED


def test_counts_are_those_of_both_and_its_own(shared, sockets):
    links = AutoTransport([1, 2], shared, sockets, {1: True, 2: False}.get)
    assert links.counts == {}
    shared.counts["malformed"] += 2
    sockets.counts["malformed"] += 1
    links.counts["torn"] += 1  # as a receiver does
    assert links.counts == {"malformed": 3, "torn": 1}


def test_both_hear_of_every_step_and_are_closed_even_if_one_fails(shared, sockets, monkeypatch):
    links = AutoTransport([1, 2], shared, sockets, {1: True, 2: False}.get)
    links.tick(5)
    assert shared.calls == sockets.calls == [("tick", 5)]

    def fail():
        raise OSError("no")

    monkeypatch.setattr(shared, "close", fail)
    with pytest.raises(OSError, match="no"):
        links.close()
    assert sockets.calls[-1] == ("close",)
