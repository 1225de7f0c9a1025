"""The receiving side of one link over sockets: asks a peer for newer messages, and holds the last ones."""

import time
from collections import Counter, deque

import torch
import zmq

from gossamer.runtime.message import Malformed, checksum, unpack_header
from gossamer.runtime.transport.base import KEPT, Letter
from gossamer.runtime.transport.request_format import Answer, Ask, Echo, Envelope, Probe, pack_request, unpack_reply
from gossamer.runtime.transport.zmq_sockets import Context, Sizes, Socket, SocketAgent, asking_socket, receive, unlock

ASK_AGAIN = 2.0  # seconds after which a request may have been lost with its connection
UNCONNECTED = 5.0  # seconds after which to connect anew: ZeroMQ gives up on a server that answered wrongly
AFTER_MALFORMED = 0.2  # seconds until the next request to a peer that answered wrongly
FIRST_PROBES, OFTEN, SELDOM = 8, 0.5, 5.0  # so many probes at first, seconds between them, and later
SMALL = 1 << 16  # bytes up to which a payload is copied out of ZeroMQ's buffers, which hold other messages too
SAMPLES = 16  # probes: enough to meet an idle link, few enough to follow clock drift


class ClockOffset:
    """The nanoseconds to add to a peer's clock to get this agent's, from probes with NTP's four times.

    A probe leaves at t0 on this clock, arrives at t1 and is answered at t2 on the peer's, and is back at t3 on this
    one. If both ways took equally long the offset is exact; it is never wrong by more than half the round trip. So
    the probe with the shortest round trip is the one to believe.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)

    def add(self, t0: int, t1: int, t2: int, t3: int) -> None:
        """Add one probe's times; impossible ones are ignored."""
        round_trip = (t3 - t0) - (t2 - t1)
        if round_trip >= 0 and t2 >= t1:
            self._samples.append((round_trip, ((t0 - t1) + (t3 - t2)) // 2))

    @property
    def value(self) -> int | None:
        """Return the offset of the shortest round trip among the last probes, None before the first."""
        samples = tuple(self._samples)  # another thread may be adding
        return min(samples)[1] if samples else None


class SocketReceiver:
    """The link to one peer; only `letters` and `offset` may be read outside the sockets' thread."""

    def __init__(self, peer: int, me: SocketAgent, counts: Counter[str]) -> None:
        self.letters: tuple[Letter, ...] = ()  # replaced as a whole, so that other threads can read it
        self.offset = ClockOffset()
        self.endpoint: str | None = None
        self._last_endpoint: str | None = None
        self.socket: Socket | None = None
        self._peer, self._me, self._counts = peer, me, counts
        self._envelope = Envelope(me.run, me.rank, peer)
        self._sizes = Sizes(0, me.num_agents)
        self._number = self._settled = 0
        self._ask_at = self._probe_at = 0.0
        self._heard = 0.0  # when the peer last answered, or was connected
        self._unsent_since: float | None = None
        self._probe: Probe | None = None
        self._probes = 0
        self._incarnation = 0  # of whose clock the offset is

    def connect(self, context: Context, sizes: Sizes, endpoint: str) -> None:
        """Ask the peer at this endpoint from now on."""
        self.disconnect()
        if endpoint != self._last_endpoint:
            self._forget_clock()
        socket = asking_socket(context, sizes, ipv6="[" in endpoint)
        try:
            if self._me.key is not None:
                unlock(socket, self._me.key, self._me.rank, self._peer)
            socket.connect(endpoint)
        except zmq.ZMQError:
            socket.close()
            raise
        self.socket, self.endpoint, self._last_endpoint, self._sizes = socket, endpoint, endpoint, sizes
        self._settled = self._number  # nothing that was asked over another connection will be answered over this one
        self._ask_at = self._probe_at = 0.0
        self._heard, self._unsent_since = time.monotonic(), None

    def disconnect(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.endpoint = None

    def is_lost(self, now: float) -> bool:
        """Say whether the connection is dead and must be replaced."""
        if self.socket is None:
            return False
        unconnected = self._unsent_since is not None and now - self._unsent_since > UNCONNECTED
        return unconnected or now - self._heard > self._sizes.patience

    def _forget_clock(self) -> None:
        self.offset, self._probe, self._probes = ClockOffset(), None, 0

    def send_due(self, now: float) -> bool:
        """Send what is due; return whether that failed because the peer is not connected."""
        if self.socket is None:
            return False
        try:
            if now >= self._ask_at:
                newest = self.letters[-1].stamp.order if self.letters else None
                self._send(self.socket, Ask(self._number + 1, self._settled, newest, self._me.in_order))
                self._number += 1
                self._ask_at = now + ASK_AGAIN
            if now >= self._probe_at:
                probe = Probe(self._me.clock())
                self._send(self.socket, probe)
                self._probe, self._probes = probe, self._probes + 1
                self._probe_at = now + SELDOM  # should it be lost
        except zmq.Again:
            self._unsent_since = self._unsent_since or now
            return True
        self._unsent_since = None
        return False

    def _send(self, socket: Socket, request: Ask | Probe) -> None:
        socket.send(pack_request(self._envelope, request), zmq.NOBLOCK)

    def receive(self) -> None:
        """Take one reply, if there is one; drop and count a reply that answers no request."""
        if self.socket is None:
            return
        try:
            frames = receive(self.socket, most=2)
        except zmq.Again:
            return
        arrived, self._heard = self._me.clock(), time.monotonic()
        try:
            if frames is None:
                raise Malformed("too many frames")
            reply = unpack_reply(frames[0].bytes)
            if isinstance(reply, Echo):
                self._take_echo(reply, frames, arrived)
            elif len(frames) == 2:
                self._take_answer(reply, frames[1], arrived)
            else:
                raise Malformed("an answer without a payload")
        except Malformed:
            # It may have been the answer: unless it counts as one, the sender waits for it to arrive.
            self._drop("malformed", self._number)

    def _drop(self, why: str, number: int) -> None:
        self._counts[why] += 1
        self._settled = max(self._settled, number)
        self._ask_at = time.monotonic() + AFTER_MALFORMED

    def _take_echo(self, echo: Echo, frames: list[zmq.Frame], arrived: int) -> None:
        if len(frames) != 1:
            raise Malformed("an echo with a payload")
        if self._probe is None or echo.sent != self._probe.sent:
            self._counts["stale"] += 1
            return
        if echo.incarnation != self._incarnation:  # another process, perhaps on another host: another clock
            self._forget_clock()
            self._incarnation = echo.incarnation
        self._probe = None
        self._probe_at = time.monotonic() + (OFTEN if self._probes < FIRST_PROBES else SELDOM)
        self.offset.add(echo.sent, echo.arrived, echo.left, arrived)

    def _take_answer(self, answer: Answer, frame: zmq.Frame, arrived: int) -> None:
        """Keep a message, if it is whole and newer than the last one."""
        if not self._settled < answer.number <= self._number:
            self._counts["stale"] += 1  # it answers no request of this connection, or one that is settled
            return
        stamp, length, total = unpack_header(answer.header, self._me.num_agents)
        raw = frame.buffer
        if stamp.sender != self._peer or length != self._sizes.length or len(raw) != length:
            raise Malformed("a message of another agent, or of another length")
        small = bytearray(raw) if length <= SMALL else raw
        payload = torch.frombuffer(small, dtype=torch.uint8) if length else torch.empty(0, dtype=torch.uint8)
        if checksum(payload) != total:
            self._drop("corrupt", answer.number)
        elif self.letters and stamp.order <= self.letters[-1].stamp.order:
            self._drop("stale", answer.number)
        else:
            self._settled, self._ask_at = answer.number, 0.0
            self._hold(Letter(stamp, payload, arrived=arrived))

    def _hold(self, letter: Letter) -> None:
        newest = self.letters[-1].stamp.incarnation if self.letters else None
        before = self.letters if newest == letter.stamp.incarnation else ()
        self.letters = (*before, letter)[-KEPT:]
