"""Agents for the tests of sockets: in this process, and one in a process of its own that does as it is told.

As a program, it prints its endpoint, then answers each line of JSON on standard input with one on standard output.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import zmq

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.request_format import Ask, Envelope, pack_request, run_digest
from gossamer.runtime.transport.sockets import Sockets

NO_RUN = run_digest("")


def stamp(rank, incarnation, sequence):
    return Stamp(rank, incarnation, sequence, time=7 * sequence, layout=5, heard=frozenset({rank}))


def payload(length, sequence):
    """Bytes that tell the message they belong to, and where in it."""
    return ((torch.arange(length) * 7 + sequence * 13) % 251).to(torch.uint8)


def publish(sockets, rank, incarnation, sequence, length):
    sockets.publish(stamp(rank, incarnation, sequence), [payload(length, sequence)])


def has(sockets, peer, sequence, incarnation=None):
    """Say whether a peer's newest message is this one."""
    letter = sockets.latest(peer)
    if letter is None or letter.stamp.sequence != sequence:
        return False
    return incarnation is None or letter.stamp.incarnation == incarnation


@contextlib.contextmanager
def several(count, length, open_=True, known=True, **settings):
    """Yield so many agents and the table of where they are, which is empty unless they know each other."""
    where: dict[int, str] = {}
    agents = [Sockets(rank, count, 100, where=where.get, **settings) for rank in range(count)]
    try:
        for agent in agents:
            if open_:
                agent.open(length)
        if known:
            where.update({rank: agent.endpoint for rank, agent in enumerate(agents)})
        yield agents, where
    finally:
        for agent in agents:
            agent.close()


@contextlib.contextmanager
def raw(kind, **options):
    """Yield a bare socket of ZeroMQ that waits for at most 20 seconds."""
    with zmq.Context() as context:
        made = context.socket(kind)
        made.linger, made.rcvtimeo, made.sndtimeo = 0, 20_000, 20_000
        for name, value in options.items():
            setattr(made, name, value)
        try:
            yield made
        finally:
            made.close()


def request(what, sender=1, receiver=0, run=NO_RUN):
    return pack_request(Envelope(run, sender, receiver), what)


def ask(number=1, settled=0, newer_than=None, in_order=False):
    return Ask(number, settled, newer_than, in_order)


class Child:
    """Agent 1 of 2 in another process."""

    def __init__(self, **settings):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.endpoint = self.process.stdout.readline().strip()
        assert self.endpoint.startswith("tcp://127.0.0.1:")

    def __call__(self, **command):
        print(json.dumps(command), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def _main(settings):
    threading.Timer(120, os._exit, [1]).start()  # whatever becomes of the test
    length, incarnation = settings["length"], settings["incarnation"]
    key = bytes.fromhex(settings["key"]) if settings.get("key") else None
    busy = []

    def where(peer):
        if busy:
            time.sleep(busy.pop())  # and with it, the thread of the sockets
        return settings["parent"]

    sockets = Sockets(1, 2, incarnation, key=key, where=where)
    sockets.open(length)
    print(sockets.endpoint, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "publish" in command:
            publish(sockets, 1, incarnation, command["publish"], length)
        if "busy" in command:
            busy.append(command["busy"])
        letter = sockets.latest(0)
        told = {"sequence": None}
        if letter is not None:
            sequence = letter.stamp.sequence
            told = {"sequence": sequence, "whole": torch.equal(letter.payload, payload(length, sequence))}
        print(json.dumps({**told, "waiting": bool(busy)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
