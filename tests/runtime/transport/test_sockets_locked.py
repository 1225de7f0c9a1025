"""With the run's key: who has it takes part, whoever has not learns nothing and changes nothing."""

import contextlib
import socket
import threading
import time

import pytest
import zmq

from gossamer.runtime.book.keys import curve_pair
from gossamer.runtime.transport.request_format import unpack_reply
from gossamer.runtime.transport.sockets import Sockets
from peers import ask, has, payload, publish, raw, request, several
from waiting import until

LENGTH = 4_000
KEY = bytes(range(32))


def unlocked(client, key, rank, server_key=KEY, server=0):
    """Give a bare client an agent's key."""
    client.curve_publickey, client.curve_secretkey = curve_pair(key, rank)
    client.curve_serverkey = curve_pair(server_key, server)[0]


@pytest.mark.parametrize("who", ["no key", "another run", "no agent of the run", "oneself"])
def test_a_client_without_the_right_key_reads_nothing_while_others_do(who):
    with several(2, LENGTH, key=KEY) as (agents, _), raw(zmq.DEALER, rcvtimeo=0) as client:
        rank = {"no agent of the run": 2, "oneself": 0}.get(who, 1)
        if who != "no key":
            unlocked(client, bytes(32) if who == "another run" else KEY, rank)
        client.connect(agents[0].endpoint)
        for sequence in range(30):
            with contextlib.suppress(zmq.Again):  # once its few requests are queued
                client.send(request(ask(sequence + 1), sender=1), zmq.NOBLOCK)
            publish(agents[0], 0, 100, sequence, LENGTH)
            until(lambda: has(agents[1], 0, sequence))  # noqa: B023
            with pytest.raises(zmq.Again):
                client.recv()
            time.sleep(0.01)
        if who != "no key":
            until(lambda: agents[0].counts["refused"])
            del agents[0].counts["refused"]
        assert not agents[0].counts  # nothing of it was even looked at


def test_a_client_with_a_key_acts_only_as_the_agent_whose_key_it_is():
    agent = Sockets(0, 3, 100, key=KEY)
    try:
        agent.open(LENGTH)
        publish(agent, 0, 100, 1, LENGTH)
        with raw(zmq.DEALER) as client:
            unlocked(client, KEY, 2)
            client.connect(agent.endpoint)
            client.send(request(ask(1), sender=1))
            client.send(request(ask(2), sender=2))
            assert unpack_reply(client.recv_multipart()[0]).number == 2
            assert agent.counts == {"malformed": 1}
    finally:
        agent.close()


@pytest.mark.parametrize("who", ["no key", "another run", "another agent"])
def test_a_server_without_the_right_key_is_told_nothing_and_injects_nothing(who):
    with raw(zmq.ROUTER, rcvtimeo=1_500) as server:
        if who != "no key":
            server.curve_publickey, server.curve_secretkey = curve_pair(
                *((bytes(32), 0) if who == "another run" else (KEY, 2))
            )
            server.curve_server = True
        port = server.bind_to_random_port("tcp://127.0.0.1")
        where = {0: f"tcp://127.0.0.1:{port}"}
        rightful, agent = Sockets(0, 3, 100, key=KEY), Sockets(1, 3, 100, key=KEY, where=where.get)
        try:
            for sockets in (rightful, agent):
                sockets.open(LENGTH)
            publish(rightful, 0, 100, 1, LENGTH)
            with pytest.raises(zmq.Again):
                server.recv()
            assert agent.latest(0) is None
            where[0] = rightful.endpoint
            until(lambda: has(agent, 0, 1))
        finally:
            rightful.close()
            agent.close()


def test_a_place_that_is_none_keeps_nobody_from_the_other_peers():
    where = {0: "tcp://-:5"}
    sender, receiver = Sockets(1, 3, 100, key=KEY), Sockets(2, 3, 100, key=KEY, where=where.get)
    try:
        for agent in (sender, receiver):
            agent.open(LENGTH)
        publish(sender, 1, 100, 3, LENGTH)
        where[1] = sender.endpoint
        until(lambda: has(receiver, 1, 3))
        assert receiver.counts["refused"] and receiver.counts["failed"] == 0
    finally:
        sender.close()
        receiver.close()


class Relay:
    """Hands bytes on between one client and a server, and keeps a copy of those that the server says."""

    def __init__(self, endpoint):
        host, port = endpoint.removeprefix("tcp://").split(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = bytearray()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        client = self._listener.accept()[0]
        server = socket.create_connection(self._server)
        threading.Thread(target=self._pass, args=(client, server, bytearray()), daemon=True).start()
        self._pass(server, client, self.seen)

    def _pass(self, source, target, copy):
        with source, target, contextlib.suppress(OSError):
            while data := source.recv(65_536):
                copy += data
                target.sendall(data)

    def close(self):
        self._listener.close()


@pytest.mark.parametrize("key", [None, KEY])
def test_with_a_key_nobody_on_the_way_can_read(key):
    where = {}
    sender, receiver = Sockets(0, 2, 100, key=key), Sockets(1, 2, 100, key=key, where=where.get)
    relay = Relay(sender.endpoint)
    try:
        for sockets in (sender, receiver):
            sockets.open(LENGTH)
        publish(sender, 0, 100, 3, LENGTH)
        where[0] = relay.endpoint
        until(lambda: has(receiver, 0, 3))
        assert len(relay.seen) > LENGTH
        assert (bytes(payload(LENGTH, 3)[:64].tolist()) in relay.seen) == (key is None)
    finally:
        sender.close()
        receiver.close()
        relay.close()
