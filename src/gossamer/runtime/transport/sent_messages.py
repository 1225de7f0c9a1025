"""An agent's last few published messages, in reused buffers.

A buffer is free when its message is no longer among the last KEPT and when all of it was sent. The receiver may say so
before ZeroMQ does. At most as many messages as there are peers are lent to ZeroMQ at a time, so there are never more
than peers + KEPT + 1 buffers, however many receivers are stopped.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gossamer.runtime.message import Stamp, checksum, pack_header
from gossamer.runtime.transport.base import KEPT
from gossamer.runtime.transport.request_format import Order
from gossamer.shapes import Tensor


@dataclass(frozen=True, eq=False)
class Published:
    """A message in its buffer."""

    order: Order
    header: bytes
    payload: Tensor


@dataclass(eq=False)
class Loan:
    """A message that is being sent to a peer."""

    message: Published
    sent: Callable[[], bool] | None = None  # not handed over yet
    arrived: bool = False  # as the receiver reports

    @property
    def over(self) -> bool:
        """Say whether the buffer is no longer needed for this."""
        return self.arrived or (self.sent is not None and self.sent())


class SentMessages:
    """The messages of one agent; `publish` is called by the agent's thread, `lend` by the one that sends."""

    def __init__(self, length: int, num_agents: int) -> None:
        self.length = length
        self._num_agents = num_agents
        self._most_lent = max(1, num_agents - 1)
        self._lock = threading.Lock()
        self._kept: deque[Published] = deque(maxlen=KEPT)
        self._loans: list[Loan] = []
        self.buffers: list[Tensor] = []

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        """Copy the parts into a free buffer, and make that the newest message."""
        total = sum(part.numel() * part.element_size() for part in parts)
        if total != self.length:
            raise ValueError(f"a payload of {total} bytes, but the transport was opened for {self.length}")
        with self._lock:
            buffer = self._free_buffer()
        start = 0
        for part in parts:
            raw = part.detach().reshape(-1).view(torch.uint8)
            buffer[start : start + raw.numel()].copy_(raw)
            start += raw.numel()
        header = pack_header(stamp, self._num_agents, self.length, checksum(buffer))
        with self._lock:
            self._kept.append(Published(stamp.order, header, buffer))

    @property
    def newest(self) -> Order | None:
        """Which message is the newest."""
        with self._lock:
            return self._kept[-1].order if self._kept else None

    def _free_buffer(self) -> Tensor:
        self._loans = [loan for loan in self._loans if not loan.over]
        used = {id(message.payload) for message in (*self._kept, *(loan.message for loan in self._loans))}
        for buffer in self.buffers:
            if id(buffer) not in used:
                return buffer
        self.buffers.append(torch.empty(self.length, dtype=torch.uint8))
        return self.buffers[-1]

    def lend(self, newer_than: Order | None, in_order: bool) -> Loan | None:
        """Return the message to answer with, not to be written over until the loan is over; None if there is none."""
        with self._lock:
            newer = [message for message in self._kept if newer_than is None or message.order > newer_than]
            if not newer:
                return None
            message = newer[0] if in_order else newer[-1]
            self._loans = [loan for loan in self._loans if not loan.over]
            lent = {loan.message for loan in self._loans}
            if message not in lent and len(lent) >= self._most_lent:
                return None  # a connection is stuck; a later message will be served
            loan = Loan(message)
            self._loans.append(loan)
            return loan

    def take_back(self, loan: Loan) -> None:
        """End a loan that was never handed over."""
        with self._lock:
            self._loans = [other for other in self._loans if other is not loan]
