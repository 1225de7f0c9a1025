"""The options of ZeroMQ's sockets, the same for all: queues that hold almost nothing, and connections that heal.

ZeroMQ's own heartbeats stay off. With them, a client that leaves while its queue is full brings the process down
(libzmq issues 4364 and 4767, `Assertion failed: !_io_error`). TCP notices hosts that have gone; requests, probes and
their deadlines notice the rest.
"""

from dataclasses import dataclass

import zmq

from gossamer.runtime.message import header_bytes

REQUEST_BYTES = 1024  # requests and CURVE's handshake are far smaller
HANDSHAKE = 10_000  # milliseconds in which a client must have said who it is
UNACKNOWLEDGED = 20_000  # milliseconds after which a host that takes no more bytes is given up
SLOWEST_LINK = 100_000  # bytes a second below which a connection is taken for dead while a message is under way
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
