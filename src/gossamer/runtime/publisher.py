"""Publishes an agent's messages: encoded and stamped; from a GPU asynchronously, through pinned memory."""

import math
import queue
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.payload import PayloadLayout, PayloadWriter
from gossamer.runtime.transport.base import Transport
from gossamer.shapes import Float, Tensor

Vectors = Mapping[str, Float[Tensor, "1 _"]]


class Publisher:
    """Publishes an agent's messages."""

    def __init__(
        self, transport: Transport, layout: PayloadLayout, rank: int, incarnation: int, *, waits: bool
    ) -> None:
        """Open the transport. `waits`: publish every message before returning, however long a GPU takes."""
        self._transport, self._layout, self._rank, self._incarnation = transport, layout, rank, incarnation
        self._writer = PayloadWriter(layout)
        self._waits = waits
        self._gpu: _FromGpu | None = None
        transport.open(layout.length)

    def publish(self, step: int, time: int, vectors: Vectors, heard: frozenset[int]) -> int:
        """Make this the newest message; return its bytes, 0 when it was held back.

        A message that is not finite, in any part, is held back: an agent that has diverged looks dead to its
        neighbours, and harms none of them.
        """
        sums = [vectors[part.name].sum() for part in self._layout.parts]
        total = sums[0] if len(sums) == 1 else sum(one.double() for one in sums)  # one synchronisation with a GPU
        if not math.isfinite(total):
            self._transport.counts["not finite"] += 1
            return 0
        stamp = Stamp(self._rank, self._incarnation, step, time, self._layout.number, heard)
        if not vectors["x"].is_cuda:
            self._send(stamp, vectors)
            return self._layout.length
        if self._gpu is None:
            self._gpu = _FromGpu(self._send, {part.name: vectors[part.name] for part in self._layout.parts})
        return self._layout.length if self._gpu.take(stamp, vectors, wait=self._waits) else 0

    def _send(self, stamp: Stamp, vectors: Vectors) -> None:
        self._transport.publish(stamp, self._writer.write(vectors))

    def close(self) -> None:
        """Stop the thread, if there is one."""
        if self._gpu is not None:
            self._gpu.close()


@dataclass
class _PinnedMessage:
    """Pinned memory for one message, and when it was filled."""

    vectors: dict[str, Tensor]
    filled: torch.cuda.Event


class _FromGpu:
    """Copies from a GPU on a stream of its own into two places in turn; a thread waits for the copy and sends it."""

    PLACES = 2

    def __init__(self, send: Callable[[Stamp, Vectors], None], like: Vectors) -> None:
        self._send = send
        self._stream = torch.cuda.Stream(device=next(iter(like.values())).device)
        self._free: queue.Queue[_PinnedMessage] = queue.Queue()
        for _ in range(self.PLACES):
            pinned = {name: torch.empty_like(vector, device="cpu").pin_memory() for name, vector in like.items()}
            self._free.put(_PinnedMessage(pinned, torch.cuda.Event()))
        self._filled: queue.Queue[tuple[Stamp, _PinnedMessage] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="gossamer-outbox", daemon=True)
        self._thread.start()

    def take(self, stamp: Stamp, vectors: Vectors, *, wait: bool) -> bool:
        """Begin to copy a message; with both places in use, skip it or wait."""
        try:
            place = self._free.get(block=wait)
        except queue.Empty:
            return False
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for name, pinned in place.vectors.items():
                pinned.copy_(vectors[name], non_blocking=True)
                vectors[name].record_stream(self._stream)
            place.filled.record(self._stream)
        torch.cuda.current_stream().wait_event(place.filled)  # or the next step would overwrite it
        self._filled.put((stamp, place))
        if wait:
            self._filled.join()
        return True

    def _run(self) -> None:
        while (item := self._filled.get()) is not None:
            stamp, place = item
            try:
                place.filled.synchronize()
                self._send(stamp, place.vectors)
            except Exception as error:  # a message that cannot be sent is lost; the next may not be
                warnings.warn(f"a message was not sent: {error}", RuntimeWarning, stacklevel=1)
            finally:
                self._free.put(place)
                self._filled.task_done()

    def close(self) -> None:
        """Stop the thread after the pending messages."""
        self._filled.put(None)
        self._thread.join(timeout=5)
