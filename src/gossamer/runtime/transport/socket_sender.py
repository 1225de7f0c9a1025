"""The sending side of sockets: keeps one request of each peer until there is a message to answer it with.

At most one answer is on its way to a peer. A request names the answers that have arrived, so a slow receiver gets
the next answer only after the last; a stopped one asks for nothing.
"""

import time
from collections import Counter
from dataclasses import dataclass

import zmq

from gossamer.runtime.message import Malformed
from gossamer.runtime.transport.request_format import (
    Answer,
    Ask,
    Echo,
    Order,
    Probe,
    pack_reply,
    unpack_request,
)
from gossamer.runtime.transport.sent_messages import Loan, SentMessages
from gossamer.runtime.transport.zmq_sockets import Sizes, Socket, SocketAgent, rank_of, receive

MOST_AT_ONCE = 64  # requests that are read before everything else has its turn


@dataclass(eq=False)
class _Peer:
    """One peer's connection, and its last request."""

    connection: bytes
    ask: Ask | None = None
    answered: int = 0  # the request that was last answered
    loan: Loan | None = None  # the message that answered it
    since: float = 0.0


class SocketSender:
    """The pending requests of all peers; used by the sockets' thread only."""

    def __init__(self, socket: Socket, me: SocketAgent, counts: Counter[str]) -> None:
        self._socket, self._me, self._counts = socket, me, counts
        self._peers: dict[int, _Peer] = {}

    def receive(self) -> None:
        """Take the requests that have arrived."""
        for _ in range(MOST_AT_ONCE):
            try:
                frames = receive(self._socket, most=2)
            except zmq.Again:
                return
            try:
                self._take(frames, self._me.clock())
            except Malformed:
                self._counts["malformed"] += 1

    def _take(self, frames: list[zmq.Frame] | None, arrived: int) -> None:
        if frames is None or len(frames) != 2:
            raise Malformed("a request of another number of frames")
        between, request = unpack_request(frames[1].bytes)
        rank = between.sender
        if between.run != self._me.run or between.receiver != self._me.rank:
            raise Malformed("a request to another agent")
        if rank >= self._me.num_agents or rank == self._me.rank:
            raise Malformed("a request from an unknown agent")
        if self._me.key is not None and rank_of(frames[1]) != rank:
            raise Malformed("a request in the name of another agent")
        connection = frames[0].bytes
        if isinstance(request, Probe):
            self._echo(connection, request, arrived)
            return
        peer = self._peers.get(rank)
        if peer is None or peer.connection != connection:  # answers over the last connection are lost with it
            peer = self._peers[rank] = _Peer(connection)
        peer.ask = request
        if peer.loan is not None and request.settled >= peer.answered:
            peer.loan.arrived = True

    def _echo(self, connection: bytes, probe: Probe, arrived: int) -> None:
        echo = pack_reply(Echo(probe.sent, arrived, self._me.clock(), self._me.incarnation))
        try:
            self._socket.send_multipart([connection, echo], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._counts["unsent"] += 1  # the peer is gone, or does not read its answers

    def answer(self, sent: SentMessages) -> None:
        """Answer all requests for which there is a message."""
        patience = Sizes(sent.length, self._me.num_agents).patience
        for peer in self._peers.values():
            ask = peer.ask
            if ask is None:
                continue
            under_way = peer.answered > ask.settled and time.monotonic() < peer.since + patience
            loan = None if under_way else sent.lend(ask.newer_than, ask.in_order)
            if loan is not None:
                peer.ask = None
                if self._send(sent, peer.connection, ask.number, loan):
                    peer.answered, peer.loan, peer.since = ask.number, loan, time.monotonic()

    def all_have(self, newest: Order | None) -> bool:
        """Say whether every peer has this message, as its next request says, or is gone."""
        return newest is None or all(self._has(peer, newest) for peer in self._peers.values())

    def _has(self, peer: _Peer, newest: Order) -> bool:
        if peer.ask is not None and peer.ask.newer_than is not None and peer.ask.newer_than >= newest:
            return True
        try:  # an echo to no probe, which a peer that is still there drops
            echo = pack_reply(Echo(0, 0, 0, self._me.incarnation))
            self._socket.send_multipart([peer.connection, echo], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            return True  # there is no such connection any more
        return False

    def _send(self, sent: SentMessages, connection: bytes, number: int, loan: Loan) -> bool:
        try:
            self._socket.send(connection, zmq.SNDMORE | zmq.NOBLOCK)
        except zmq.ZMQError:
            sent.take_back(loan)
            self._counts["unsent"] += 1
            return False
        # Once ZeroMQ has taken the first frame, it takes the others.
        self._socket.send(pack_reply(Answer(number, loan.message.header)), zmq.SNDMORE)
        tracker = self._socket.send(loan.message.payload.numpy().data, copy=False, track=True)
        loan.sent = lambda: tracker.done
        return True
