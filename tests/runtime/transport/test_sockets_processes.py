"""Sockets between processes that are stopped, killed and started again."""

import os
import signal
import socket
import statistics
import struct
import time
from pathlib import Path

import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.base import KEPT
from gossamer.runtime.transport.request_format import Probe
from gossamer.runtime.transport.sockets import Sockets
from peers import Child, has, payload, publish, request
from waiting import until

LENGTH = 4_000


def resident():
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_messages_between_two_processes():
    length = 1_000_003
    parent = Sockets(0, 2, 100, where=lambda peer: child.endpoint)
    with Child(parent=parent.endpoint, length=length, incarnation=7) as child:
        try:
            parent.open(length)
            for sequence in (1, 2, 5):
                publish(parent, 0, 100, sequence, length)
                assert child(publish=sequence)
                until(lambda: has(parent, 1, sequence))  # noqa: B023
                assert torch.equal(parent.latest(1).payload, payload(length, sequence))
                until(lambda: child()["sequence"] == sequence)  # noqa: B023
                assert child()["whole"]
        finally:
            parent.close()


def test_a_stopped_receiver_costs_its_sender_neither_memory_nor_time():
    length, count = 1 << 20, 500
    parts = [torch.arange(length // 8)]
    parent = Sockets(0, 2, 100)
    with Child(parent=parent.endpoint, length=length, incarnation=7) as child:
        try:
            parent.open(length)
            publish(parent, 0, 100, 0, length)
            until(lambda: child()["sequence"] == 0)
            os.kill(child.process.pid, signal.SIGSTOP)
            before, seconds, begun = resident(), [], time.monotonic()
            for sequence in range(1, count):
                start = time.monotonic()
                parent.publish(Stamp(0, 100, sequence, 0, 5), parts)
                seconds.append(time.monotonic() - start)
                time.sleep(max(0.0, begun + 2 * sequence / count - time.monotonic()))
            grown = resident() - before
            most_buffers = 1 + KEPT + 1
            assert len(parent._sent.buffers) <= most_buffers
            assert grown < (most_buffers + 4) * length  # one more is in the system's hands, and Python needs a little
            # The machine may stand still now and then; a sender that waits does so again and again.
            assert statistics.median(seconds) < 0.01 and sorted(seconds)[-10] < 0.5
            publish(parent, 0, 100, count, length)
            os.kill(child.process.pid, signal.SIGCONT)
            until(lambda: child()["sequence"] == count)
            assert child()["whole"]
        finally:
            os.kill(child.process.pid, signal.SIGCONT)
            parent.close()


def test_a_sender_that_is_killed_and_started_again_elsewhere_is_heard_again():
    where = {}
    parent = Sockets(0, 2, 100, where=where.get)
    parent.open(LENGTH)
    try:
        for incarnation, sequence in ((7, 40), (8, 2)):
            with Child(parent=parent.endpoint, length=LENGTH, incarnation=incarnation) as child:
                where[1] = child.endpoint
                child(publish=sequence)
                until(lambda: has(parent, 1, sequence, incarnation))  # noqa: B023
        assert parent.at(1, 40) is None
    finally:
        parent.close()


def zmtp(endpoint):
    """Return a connection on which ZeroMQ's protocol has been agreed upon by hand, to end it as no client would."""
    host, port = endpoint.removeprefix("tcp://").split(":")
    client = socket.create_connection((host, int(port)), timeout=8)
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    client.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    client.sendall(bytes([4, len(ready)]) + ready)
    heard = b""
    while b"READY" not in heard:
        heard += client.recv(4096)
    return client


def test_a_client_that_leaves_while_its_queue_is_full_brings_nobody_down():
    """As it would with the heartbeats of libzmq 4.3.5, see tuning.py."""
    parent = Sockets(0, 2, 100, where=lambda peer: child.endpoint)
    with Child(parent=parent.endpoint, length=LENGTH, incarnation=7) as child:
        try:
            parent.open(LENGTH)
            with zmtp(child.endpoint) as client:
                child(busy=4)
                until(lambda: not child()["waiting"])
                probe = request(Probe(1), sender=0, receiver=1)
                client.sendall((bytes([0, len(probe)]) + probe) * 100)
                time.sleep(0.5)  # they have arrived, and the child's thread reads none of them
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            child(publish=3)
            until(lambda: has(parent, 1, 3))
            assert child.process.poll() is None
        finally:
            parent.close()
