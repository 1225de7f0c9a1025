"""A message as bytes: a header of plain numbers with a checked length, then the parts.

Nothing here is ever unpickled. A wrong header, or a payload of another length, is `Malformed`: the receiver drops and
counts it, and never fails.
"""

import functools
import struct
from typing import NamedTuple

import torch

from gossamer.shapes import Tensor

MAGIC = b"GOSM"
VERSION = 1
# magic, version, sender, incarnation, sequence, time, layout, agents heard (bits behind the header), length, checksum
_HEADER = struct.Struct("<4sHIQQqIIQQ")
HEADER_BYTES = _HEADER.size
MOST_AGENTS = 65_536


class Malformed(ValueError):
    """Bytes that are not a message of this run."""


class Stamp(NamedTuple):
    """Sender and time of a snapshot."""

    sender: int
    incarnation: int  # grows with each restart of the agent
    sequence: int  # the sender's iteration
    time: int  # nanoseconds on the sender's clock
    layout: int  # number of the payload's layout, see payload.py; the same for all agents
    heard: frozenset[int] = frozenset()  # senders that were current for this one, a step ago

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: newer messages of a sender are larger."""
        return self.incarnation, self.sequence


def checksum(payload: Tensor) -> int:
    """Return a sum over the bytes' 64-bit words: quick, and enough to notice a faulty link."""
    words = payload.numel() // 8
    total = int(payload[: 8 * words].view(torch.int64).sum()) if words else 0
    tail = int.from_bytes(bytes(payload[8 * words :].tolist()), "little")
    return (total + tail * 0x9E3779B97F4A7C15) % 2**64


def pack_header(stamp: Stamp, num_agents: int, length: int, total: int = 0) -> bytes:
    """Return the header, with one bit per agent for `heard`."""
    *numbers, heard = stamp
    return _HEADER.pack(MAGIC, VERSION, *numbers, num_agents, length, total) + _bitmap_of(heard, num_agents)


def header_bytes(num_agents: int) -> int:
    """Return the length of a header in a run of so many agents."""
    return HEADER_BYTES + _bitmap_bytes(num_agents)


def _bitmap_bytes(num_agents: int) -> int:
    return (num_agents + 7) // 8


def unpack_header(header: bytes | memoryview, num_agents: int) -> tuple[Stamp, int, int]:
    """Return a header's stamp, and the payload's length and checksum that it promises."""
    if len(header) != header_bytes(num_agents):
        raise Malformed(f"a header of {len(header)} bytes")
    magic, version, sender, incarnation, sequence, time, layout, agents, length, total = _HEADER.unpack_from(header)
    if magic != MAGIC or version != VERSION or agents != num_agents or sender >= num_agents:
        raise Malformed("a header of something else")
    heard = _agents_of(bytes(header[HEADER_BYTES:]), num_agents)
    return Stamp(sender, incarnation, sequence, time, layout, heard), length, total


@functools.lru_cache(maxsize=1024)
def _agents_of(bitmap: bytes, num_agents: int) -> frozenset[int]:
    bits = int.from_bytes(bitmap, "little")
    if bits >> num_agents:
        raise Malformed("a header that names agents outside of the run")
    return frozenset(agent for agent in range(num_agents) if bits >> agent & 1)


@functools.lru_cache(maxsize=1024)
def _bitmap_of(agents: frozenset[int], num_agents: int) -> bytes:
    return sum(1 << agent for agent in agents).to_bytes(_bitmap_bytes(num_agents), "little")
