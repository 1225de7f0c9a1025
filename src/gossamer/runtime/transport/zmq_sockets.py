"""ZeroMQ's sockets as every link uses them: short queues, connections that heal, and keys.

ZeroMQ's own heartbeats stay off. With them, a client that leaves while its queue is full brings the process down
(libzmq issues 4364 and 4767, `Assertion failed: !_io_error`). TCP notices hosts that have gone; requests, probes and
their deadlines notice the rest.

With the run's key, ZeroMQ admits the CURVE keys of this run's agents and no other (ZAP, RFC 27). It asks before it
reads anything of a client, and tags all that the client sends with its agent: no agent can pass for another.
"""

from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.utils import z85

from gossamer.runtime.book.keys import curve_pair
from gossamer.runtime.message import header_bytes

REQUEST_BYTES = 1024  # requests and CURVE's handshake are far smaller
HANDSHAKE = 10_000  # milliseconds in which a client must have authenticated
UNACKNOWLEDGED = 20_000  # milliseconds after which a host that takes no more bytes is given up
SLOWEST_LINK = 100_000  # bytes a second below which a connection is taken for dead while a message is under way
DOMAIN = b"gossamer"
PATIENCE = 10.0  # seconds, beside those that the message itself takes on the slowest link

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]


@dataclass(frozen=True)
class Sizes:
    """How long the messages of a run are, once that is known."""

    length: int
    num_agents: int

    @property
    def most_bytes(self) -> int:
        """Return the length of the longest frame that a peer may send; CURVE adds a little to each."""
        return max(self.length, header_bytes(self.num_agents)) + REQUEST_BYTES

    @property
    def patience(self) -> float:
        """Return the seconds after which a message that was sent and did not arrive is lost."""
        return PATIENCE + self.length / SLOWEST_LINK


@dataclass(frozen=True)
class SocketAgent:
    """This agent, as both sides of its links know it."""

    rank: int
    num_agents: int
    incarnation: int
    run: bytes  # see run_digest
    key: bytes | None
    in_order: bool
    clock: Callable[[], int]


def _tune(socket: Socket, queue: int) -> None:
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = queue
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 10)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 4)
    socket.setsockopt(zmq.TCP_MAXRT, UNACKNOWLEDGED)


def answering_socket(context: Context, ipv6: bool) -> Socket:
    """Return the socket of a sender, not bound yet.

    It names connections itself (no ROUTER_HANDOVER): a client that chose its own name could take over another's.
    """
    socket = context.socket(zmq.ROUTER)
    _tune(socket, 8)
    socket.ipv6 = ipv6
    socket.router_mandatory = 1  # an answer that cannot be sent is an error here, not a silence there
    socket.maxmsgsize = REQUEST_BYTES
    socket.copy_threshold = 0  # payloads are never copied, so a buffer is lent for however small a message
    return socket


def asking_socket(context: Context, sizes: Sizes, ipv6: bool) -> Socket:
    """Return the socket of a receiver, not connected yet."""
    socket = context.socket(zmq.DEALER)
    _tune(socket, 4)
    socket.ipv6 = ipv6
    socket.immediate = 1  # nothing is queued for a peer that is not there
    socket.maxmsgsize = sizes.most_bytes
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 2_000)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
    return socket


def receive(socket: Socket, most: int) -> list[zmq.Frame] | None:
    """Return one message of at most so many frames, None if it had more; raise zmq.Again if there is none."""
    frames = [socket.recv(zmq.NOBLOCK, copy=False)]
    too_many = False
    while frames[-1].more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        too_many = too_many or len(frames) == most
        frames = [frame] if too_many else [*frames, frame]
    return None if too_many else frames


class Admission:
    """Answers ZeroMQ's questions about clients."""

    def __init__(self, context: Context, key: bytes, rank: int, num_agents: int) -> None:
        others = (peer for peer in range(num_agents) if peer != rank)
        self._ranks = {z85.decode(curve_pair(key, peer)[0]): peer for peer in others}
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")  # must be there before the first client, or none is admitted

    def answer(self) -> bool:
        """Answer one question; return whether the client was admitted."""
        version, number, domain, _address, _identity, mechanism, *credentials = self.socket.recv_multipart()
        rank = self._ranks.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
        known = rank is not None and domain == DOMAIN
        status, text = (b"200", b"OK") if known else (b"400", b"unknown key")
        self.socket.send_multipart([version, number, status, text, str(rank).encode() if known else b"", b""])
        return known


def lock(socket: Socket, key: bytes, rank: int) -> None:
    """Have a server's socket speak with admitted clients only."""
    socket.curve_publickey, socket.curve_secretkey = curve_pair(key, rank)
    socket.curve_server = True
    socket.zap_domain = DOMAIN
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an answer, no client enters


def unlock(socket: Socket, key: bytes, rank: int, peer: int) -> None:
    """Have a client's socket speak with this peer only."""
    socket.curve_publickey, socket.curve_secretkey = curve_pair(key, rank)
    socket.curve_serverkey = curve_pair(key, peer)[0]


def rank_of(frame: zmq.Frame) -> int | None:
    """Return which agent a frame came from, by its key; None where no key was asked for."""
    try:
        return int(frame.get("User-Id"))
    except (zmq.ZMQError, ValueError):
        return None
