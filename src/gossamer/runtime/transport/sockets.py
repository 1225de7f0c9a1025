"""Messages over TCP with ZeroMQ: receivers ask, senders answer with the newest message, and no agent waits.

One thread does all work with sockets; the agent's own thread only copies into a buffer and rings a bell. A sender's
memory does not grow with slow, stopped or dead receivers: see sent_messages.py.

With the run's key all traffic is encrypted and both ends prove who they are (CURVE). Without one, sockets listen and
connect on this host alone; there, other users of the host could read, disturb and bring an agent down.
"""

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

import zmq
import zmq.utils.garbage  # before `close` is registered with atexit, which calls the last one first

from gossamer.errors import UserError
from gossamer.runtime.book.addresses import bindable, connectable, join_endpoint
from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.base import Letter, Transport
from gossamer.runtime.transport.request_format import run_digest
from gossamer.runtime.transport.sent_messages import SentMessages
from gossamer.runtime.transport.socket_receiver import SocketReceiver
from gossamer.runtime.transport.socket_sender import SocketSender
from gossamer.runtime.transport.zmq_sockets import Admission, Context, Sizes, SocketAgent, answering_socket, lock
from gossamer.shapes import Tensor

TICK = 0.1  # seconds after which the thread looks at its deadlines, when nothing happens
LOOK_UP = 0.25  # seconds between two looks at where the peers are

_log = logging.getLogger(__name__)


class Bell:
    """Wakes the thread that polls `handle`, a pipe: ZeroMQ's own sockets belong to one thread."""

    def __init__(self) -> None:
        self.handle, self._end = os.pipe()
        os.set_blocking(self.handle, False)
        os.set_blocking(self._end, False)
        self._lock = threading.Lock()  # a number that was closed may by then belong to another file
        self._closed = False

    def ring(self) -> None:
        """Wake the waiting thread, without blocking."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: the thread will wake anyway
            if not self._closed:
                os.write(self._end, b"!")

    def clear(self) -> None:
        """Make ready for the next ring."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.handle, 4096)

    def close(self) -> None:
        """Close the pipe; later rings do nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.handle)
                os.close(self._end)


def _unknown(peer: int) -> str | None:
    return None


class Sockets(Transport):
    """Messages to and from agents on any host. `where` returns a peer's "tcp://host:port", None while it is unknown.

    A peer with an address is asked for messages. With `in_order` no message that its sender still keeps is skipped.
    Counted are requests and answers that were "malformed", messages that were "corrupt", answers that were "stale" (not
    newer, or to nothing that was asked), clients and places that were "refused", answers that were "unsent" because
    the client had gone, and turns of the thread that "failed".
    """

    def __init__(
        self,
        rank: int,
        num_agents: int,
        incarnation: int,
        address: str = "127.0.0.1",
        key: bytes | None = None,
        where: Callable[[int], str | None] = _unknown,
        *,
        run: str = "",
        in_order: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__()
        host = bindable(address, key)
        self._key, self._where, self._num_agents = key, where, num_agents
        self._sent: SentMessages | None = None
        me = SocketAgent(rank, num_agents, incarnation, run_digest(run), key, in_order, clock)
        self._peers = {peer: SocketReceiver(peer, me, self.counts) for peer in range(num_agents) if peer != rank}
        self._context: Context = zmq.Context()
        self._admission = None if key is None else Admission(self._context, key, rank, num_agents)
        self._socket = answering_socket(self._context, ipv6=":" in host)
        if key is not None:
            lock(self._socket, key, rank)
        self.endpoint = self._bind(host)
        self._sender = SocketSender(self._socket, me, self.counts)
        self._look_up_at = 0.0
        self._poller = zmq.Poller()
        self._bell = Bell()
        self._closing, self._served, self._flushing = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=f"gossamer-sockets-{rank}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _bind(self, host: str) -> str:
        try:
            self._socket.bind(f"tcp://{join_endpoint(host, 0)}")
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise UserError(f"cannot listen on '{host}' ({error}); give an IP address of this host") from None
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def open(self, length: int) -> None:
        """Make ready to publish, and start to ask peers for messages of this length."""
        self._sent = SentMessages(length, self._num_agents)
        self._bell.ring()

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        """Copy the message, and answer the peers that wait for it."""
        if self._sent is None:
            raise ValueError("open the transport before the first message")
        self._sent.publish(stamp, parts)
        self._bell.ring()

    def latest(self, peer: int) -> Letter | None:
        """Return the newest message that has arrived."""
        letters = self._peers[peer].letters
        return letters[-1] if letters else None

    def at(self, peer: int, sequence: int) -> Letter | None:
        """Return the message of this iteration, if it is held."""
        return next((letter for letter in self._peers[peer].letters if letter.stamp.sequence == sequence), None)

    def offset(self, peer: int) -> int | None:
        """Return the offset that probes measured."""
        return self._peers[peer].offset.value

    def flush(self, seconds: float) -> None:
        """Wait until every peer that has asked for messages has the newest one, or is gone."""
        if not self._closing.is_set() and self._sent is not None:
            self._served.clear()
            self._flushing = True
            self._bell.ring()
            self._served.wait(seconds)
            self._flushing = False

    def close(self) -> None:
        """Close all sockets; what is still on its way is dropped."""
        atexit.unregister(self.close)
        if not self._closing.is_set():
            self._closing.set()
            self._bell.ring()
            self._thread.join(5)

    # From here on: the thread of the sockets.

    def _run(self) -> None:
        self._poller.register(self._bell.handle, zmq.POLLIN)
        self._poller.register(self._socket, zmq.POLLIN)
        if self._admission is not None:
            self._poller.register(self._admission.socket, zmq.POLLIN)
        try:
            while not self._closing.is_set():
                try:
                    self._turn()
                except Exception:  # a fault here must not silence the agent
                    self.counts["failed"] += 1
                    _log.exception("the sockets' thread goes on after an error")
                    self._closing.wait(TICK)
        finally:
            self._shut()

    def _turn(self) -> None:
        """Wait for an event, and handle it."""
        ready = dict(self._poller.poll(int(1000 * TICK)))
        if self._bell.handle in ready:
            self._bell.clear()
        if self._admission is not None and self._admission.socket in ready and not self._admission.answer():
            self.counts["refused"] += 1
        if self._socket in ready:
            self._sender.receive()
        if self._sent is None:
            return
        self._sender.answer(self._sent)
        if self._flushing and self._sender.all_have(self._sent.newest):
            self._served.set()
        now = time.monotonic()
        if now >= self._look_up_at:
            self._look_up_at = now + LOOK_UP
            self._look_up(Sizes(self._sent.length, self._num_agents))
        for receiver in self._peers.values():
            if receiver.socket is not None:
                if ready.get(receiver.socket, 0) & zmq.POLLIN:
                    receiver.receive()
                unsent = receiver.send_due(time.monotonic())
                self._poller.register(receiver.socket, zmq.POLLIN | zmq.POLLOUT if unsent else zmq.POLLIN)

    def _look_up(self, sizes: Sizes) -> None:
        """Connect to peers with a new address, and again to those that were lost."""
        for peer, receiver in self._peers.items():
            endpoint = self._where(peer)
            if endpoint is not None and not connectable(endpoint, self._key):
                self.counts["refused"] += 1
                endpoint = None
            if endpoint == receiver.endpoint and not receiver.is_lost(time.monotonic()):
                continue
            if receiver.socket is not None:
                self._poller.unregister(receiver.socket)
                receiver.disconnect()
            if endpoint is not None:
                try:
                    receiver.connect(self._context, sizes, endpoint)
                except zmq.ZMQError:  # an invalid address; the other peers go on
                    self.counts["refused"] += 1

    def _shut(self) -> None:
        """Close the server before its admission, so that no client enters in between."""
        for receiver in self._peers.values():
            receiver.disconnect()
        self._socket.close(linger=0)
        if self._admission is not None:
            self._admission.socket.close(linger=0)
        self._context.term()
        self._bell.close()
