"""Agents that talk through shared memory, for the tests of it."""

from contextlib import contextmanager

import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport import shared_memory
from gossamer.runtime.transport.shared_memory import SharedMemory


@contextmanager
def agents_in(folder, monkeypatch):
    """Make agents of a run; they look for new files of their peers at every call."""
    monkeypatch.setattr(shared_memory, "LOOK_AGAIN", 0.0)
    made = []

    def make(rank, incarnation=1, run="run", length=None, num_agents=3):
        made.append(SharedMemory(run, rank, num_agents, incarnation, folder))
        if length is not None:
            made[-1].open(length)
        return made[-1]

    yield make
    for one in made:
        one.close()


def say(writer, sequence, *parts, sender=0, incarnation=1):
    """Publish parts, or else the sequence itself."""
    stamp = Stamp(sender, incarnation, sequence, time=sequence * 10, layout=7, heard=frozenset({1}))
    writer.publish(stamp, parts or [torch.tensor([sequence])])
    return stamp


def heard(letter):
    """Return the whole numbers that a message holds."""
    numbers = letter.payload.clone().view(torch.int64).tolist()
    assert letter.intact()
    return numbers


def die(writer):
    """Take from a writer all that the death of its process takes."""
    writer._ring = None  # with it go the mapping and the lock


def file(folder, rank=0, run="run"):
    return folder / f"gossamer-{run}-{rank}"


def half_said(writer, number):
    """Write half of a message."""
    writer._ring.begin(number, b"nonsense")
    writer._ring.payload(number, 8).fill_(255)
