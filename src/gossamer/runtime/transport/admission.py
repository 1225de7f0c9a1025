"""Who may connect: the door of ZeroMQ (ZAP, RFC 27), opened to the CURVE keys of this run's agents and to no other.

ZeroMQ asks before anything of a client is read, and hands on which agent a key belongs to with all that this client
sends later, so that no agent can pass for another.
"""

import zmq
from zmq.utils import z85

from gossamer.runtime.directory.keys import curve_pair
from gossamer.runtime.transport.tuning import Context, Socket

DOMAIN = b"gossamer"


class Admission:
    """Answers ZeroMQ's question who a client is."""

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
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # where nobody answers, nobody enters


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
