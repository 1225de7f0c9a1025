"""Requests of receivers and replies of senders as bytes: plain numbers with checked lengths.

A receiver asks for a message newer than the one it has, and is answered when there is one. It also probes the
sender's clock. Every request names its run and both agents, so a port that now belongs to another program
causes no confusion.
"""

import hashlib
import struct
from dataclasses import dataclass

from gossamer.runtime.message import Malformed

_VERSION = 1
_ASK, _PROBE, _ANSWER, _ECHO = range(1, 5)
_REQUEST_MAGIC, _REPLY_MAGIC = b"GOSQ", b"GOSR"
_ENVELOPE = struct.Struct("<4sBB8sII")  # magic, version, kind, run, sender, receiver
_ASK_BODY = struct.Struct("<QQ?QQ?")  # number, settled, whether newer than anything, incarnation, sequence, in order
_PROBE_BODY = struct.Struct("<q")
_REPLY = struct.Struct("<4sBB")
_ANSWER_BODY = struct.Struct("<Q")
_ECHO_BODY = struct.Struct("<qqqQ")

Order = tuple[int, int]  # incarnation and sequence, see Stamp.order


@dataclass(frozen=True)
class Envelope:
    """The run and both agents of a request."""

    run: bytes
    sender: int
    receiver: int


@dataclass(frozen=True)
class Ask:
    """Asks for a message newer than this."""

    number: int  # of the request; grows
    settled: int  # the last request whose answer has arrived: a later one may still be on its way
    newer_than: Order | None
    in_order: bool  # the oldest such message that is kept, instead of the newest


@dataclass(frozen=True)
class Probe:
    """Asks for the peer's time."""

    sent: int


@dataclass(frozen=True)
class Answer:
    """A message: its header, with the payload in the next frame."""

    number: int
    header: bytes


@dataclass(frozen=True)
class Echo:
    """The peer's times when the probe arrived and when the echo left."""

    sent: int
    arrived: int
    left: int
    incarnation: int


def run_digest(run: str) -> bytes:
    """Return the digest of a run's name."""
    return hashlib.sha256(run.encode()).digest()[:8]


def pack_request(envelope: Envelope, request: Ask | Probe) -> bytes:
    """Return a request as one frame."""
    kind = _ASK if isinstance(request, Ask) else _PROBE
    start = _ENVELOPE.pack(_REQUEST_MAGIC, _VERSION, kind, envelope.run, envelope.sender, envelope.receiver)
    if isinstance(request, Probe):
        return start + _PROBE_BODY.pack(request.sent)
    incarnation, sequence = request.newer_than or (0, 0)
    has_one = request.newer_than is not None
    return start + _ASK_BODY.pack(request.number, request.settled, has_one, incarnation, sequence, request.in_order)


def unpack_request(frame: bytes) -> tuple[Envelope, Ask | Probe]:
    """Read a request from any sender."""
    if len(frame) < _ENVELOPE.size:
        raise Malformed(f"a request of {len(frame)} bytes")
    magic, version, kind, *between = _ENVELOPE.unpack_from(frame)
    body = frame[_ENVELOPE.size :]
    if magic != _REQUEST_MAGIC or version != _VERSION:
        raise Malformed("a request of something else")
    if kind == _PROBE and len(body) == _PROBE_BODY.size:
        return Envelope(*between), Probe(*_PROBE_BODY.unpack(body))
    if kind == _ASK and len(body) == _ASK_BODY.size:
        number, settled, has_one, incarnation, sequence, in_order = _ASK_BODY.unpack(body)
        newer_than = (incarnation, sequence) if has_one else None
        return Envelope(*between), Ask(number, settled, newer_than, in_order)
    raise Malformed("a request of another form")


def pack_reply(reply: Answer | Echo) -> bytes:
    """Return a reply as one frame."""
    if isinstance(reply, Answer):
        return _REPLY.pack(_REPLY_MAGIC, _VERSION, _ANSWER) + _ANSWER_BODY.pack(reply.number) + reply.header
    body = _ECHO_BODY.pack(reply.sent, reply.arrived, reply.left, reply.incarnation)
    return _REPLY.pack(_REPLY_MAGIC, _VERSION, _ECHO) + body


def unpack_reply(frame: bytes) -> Answer | Echo:
    """Read a reply from any sender; the header inside an answer is still to be read."""
    if len(frame) < _REPLY.size:
        raise Malformed(f"a reply of {len(frame)} bytes")
    magic, version, kind = _REPLY.unpack_from(frame)
    body = frame[_REPLY.size :]
    if magic != _REPLY_MAGIC or version != _VERSION:
        raise Malformed("a reply of something else")
    if kind == _ECHO and len(body) == _ECHO_BODY.size:
        return Echo(*_ECHO_BODY.unpack(body))
    if kind == _ANSWER and len(body) >= _ANSWER_BODY.size:
        (number,) = _ANSWER_BODY.unpack_from(body)
        return Answer(number, body[_ANSWER_BODY.size :])
    raise Malformed("a reply of another form")
