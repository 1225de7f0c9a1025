"""A ring of messages in a file that processes map: one writes, the others read in place.

The file is a header and a few slots. A slot holds one message, the time at which it was written, and two counters:
`begin` is written before the bytes of the message change, `end` after they have, and then the header's `head` names it
as the newest. A reader that finds both counters to be the message's number, before its copy and after it, has copied
that message whole. There is no lock and no wait, and a writer that dies half-way leaves a slot whose counters differ,
which readers pass over.

This relies on counters being moved as one aligned word, and on stores becoming visible in the order in which they were
made, as they do on x86 (total store order). On a processor that orders less, a torn message could in theory be taken
for a whole one.

The writer keeps its file locked for as long as it lives. The lock tells a file whose writer is dead, which its next
incarnation takes over in place, from one whose writer still runs, which no other process may write.
"""

import fcntl
import mmap
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from gossamer.runtime.message import Malformed, header_bytes
from gossamer.runtime.transport.base import KEPT
from gossamer.shapes import Tensor

SLOTS = KEPT + 1  # the last KEPT stay whole while the next one is written

_MAGIC = int.from_bytes(b"gossring", "little")
_VERSION = 2
# The words of a file's header, in order.
_NAMES = ("magic", "version", "agents", "slots", "length", "pid", "incarnation", "head")
_WORD = {name: index for index, name in enumerate(_NAMES)}
_HEAD = _WORD["head"]
_LINE = 64  # bytes to which slots and payloads are aligned
_FILE_HEADER = 8 * len(_NAMES)
_COUNTERS = 24  # bytes of begin, end and the time, in front of a slot's message


def _aligned(size: int) -> int:
    return -(-size // _LINE) * _LINE


@dataclass(frozen=True)
class RingShape:
    """Where things lie in a file for so many agents and payloads of so many bytes."""

    num_agents: int
    length: int

    @cached_property
    def header(self) -> int:
        """The bytes of a message's header."""
        return header_bytes(self.num_agents)

    @cached_property
    def payload(self) -> int:
        """Where the payload begins in a slot."""
        return _aligned(_COUNTERS + self.header)

    @cached_property
    def slot(self) -> int:
        """The bytes of a slot."""
        return self.payload + _aligned(self.length)

    @cached_property
    def file(self) -> int:
        """The bytes of the file."""
        return _aligned(_FILE_HEADER) + SLOTS * self.slot


class MessageRing:
    """A mapped file.

    The mapping is never closed by hand. It goes with the last tensor that looks into it, and since it keeps the file
    open, so does the writer's lock.
    """

    def __init__(self, descriptor: int, shape: RingShape, write: bool) -> None:
        self.shape = shape
        self._map = mmap.mmap(descriptor, shape.file, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
        self._words = memoryview(self._map).cast("Q")
        with warnings.catch_warnings():  # torch has no tensors that are only read, and warns of this one
            warnings.simplefilter("ignore")
            self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        status = os.fstat(descriptor)
        self.identity = status.st_dev, status.st_ino
        # Where slots begin, and views of their payloads: made once, since every message needs them.
        starts = [_aligned(_FILE_HEADER) + slot * shape.slot for slot in range(SLOTS)]
        self._counters = [start // 8 for start in starts]  # as words
        self._headers = [start + _COUNTERS for start in starts]
        self._payloads = [self._bytes[start + shape.payload :][: shape.length] for start in starts]
        self._numbers: dict[torch.dtype, list[Tensor]] = {}  # the same views, of another type

    def __getitem__(self, name: str) -> int:
        """Return a word of the file's header."""
        return self._words[_WORD[name]]

    def __setitem__(self, name: str, value: int) -> None:
        self._words[_WORD[name]] = value

    @property
    def head(self) -> int:
        """The number of the newest message."""
        return self._words[_HEAD]

    def whole(self, counter: int) -> bool:
        """Tell whether the message of this number is there, all of it."""
        words, word = self._words, self._counters[counter % SLOTS]
        # End first: once it is seen, so is all that was written before it.
        return words[word + 1] == counter == words[word]

    def written(self, counter: int) -> int:
        """Return when a message had been written, in nanoseconds."""
        return self._words[self._counters[counter % SLOTS] + 2]

    def header(self, counter: int) -> bytes:
        """Return a copy of a message's header."""
        start = self._headers[counter % SLOTS]
        return self._map[start : start + self.shape.header]

    def payload(self, counter: int, length: int) -> Tensor:
        """Return a view of the first bytes of a message's payload."""
        whole = self._payloads[counter % SLOTS]
        return whole if length == self.shape.length else whole[:length]

    def numbers(self, counter: int, dtype: torch.dtype) -> Tensor:
        """Return a view of a whole payload, as numbers of this type."""
        if dtype not in self._numbers:
            self._numbers[dtype] = [payload.view(dtype) for payload in self._payloads]
        return self._numbers[dtype][counter % SLOTS]

    def claim(self, incarnation: int) -> None:
        """Mark the ring as this process's."""
        known = (_MAGIC, _VERSION, self.shape.num_agents, SLOTS, self.shape.length, os.getpid(), incarnation)
        for name, value in zip(_NAMES, known, strict=False):
            self[name] = value

    def begin(self, counter: int, header: bytes) -> None:
        """Start to write a message: from here on its slot is not whole."""
        self._words[self._counters[counter % SLOTS]] = counter
        start = self._headers[counter % SLOTS]
        self._map[start : start + len(header)] = header

    def finish(self, counter: int) -> None:
        """Make the message that was written the newest."""
        word = self._counters[counter % SLOTS]
        self._words[word + 2] = time.monotonic_ns()
        self._words[word + 1] = counter
        self._words[_HEAD] = counter


def describe(descriptor: int) -> tuple[RingShape, int]:
    """Return a file's shape and its writer's process; raise Malformed if it is not a ring of this user."""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise Malformed("not a file of this user")
    raw = os.pread(descriptor, _FILE_HEADER, 0)
    if len(raw) < _FILE_HEADER:
        raise Malformed("a file without a header")
    word = dict(zip(_NAMES, np.frombuffer(raw, dtype=np.uint64).tolist(), strict=True))
    if (word["magic"], word["version"], word["slots"]) != (_MAGIC, _VERSION, SLOTS):
        raise Malformed("a file of something else")
    shape = RingShape(word["agents"], word["length"])
    if shape.file != status.st_size:  # to look behind a file's end would kill this process
        raise Malformed(f"a file of {status.st_size} bytes instead of {shape.file}")
    return shape, word["pid"]


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file, but neither follow a link nor wait for a pipe in its place."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> None:
    """Lock a file, or raise OSError because its writer lives."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def map_ring(path: Path, num_agents: int) -> MessageRing:
    """Return a peer's ring, to read."""
    with opened(path, os.O_RDONLY) as descriptor:
        shape, _ = describe(descriptor)
        if shape.num_agents != num_agents:
            raise Malformed(f"a ring for {shape.num_agents} agents")
        return MessageRing(descriptor, shape, write=False)


def take_over(path: Path, shape: RingShape, incarnation: int) -> MessageRing | None:
    """Return the ring that a dead incarnation has left, or None where there is none that can be used."""
    try:
        with opened(path, os.O_RDWR) as descriptor:
            try_lock(descriptor)
            # The last holder of the lock may have removed it since it was opened.
            if os.fstat(descriptor).st_nlink == 0 or describe(descriptor)[0] != shape:
                return None
            ring = MessageRing(descriptor, shape, write=True)
    except (OSError, Malformed):
        return None
    newest = ring["head"]
    if newest >= 2**63:  # no count, but damage
        return None
    if ring.whole(newest + 1):  # it died just before it named this one the newest
        ring["head"] = newest + 1
    ring.claim(incarnation)
    return ring


def create(path: Path, shape: RingShape, incarnation: int) -> MessageRing:
    """Make a ring under another name and then rename it, so that readers never map half of one."""
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # for this user alone
    try:
        try_lock(descriptor)
        _allocate(descriptor, shape.file)
        ring = MessageRing(descriptor, shape, write=True)
        ring.claim(incarnation)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return ring


def _allocate(descriptor: int, size: int) -> None:
    """Take all the memory now: a write without memory would kill this process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # macOS, which has no /dev/shm either
        os.truncate(descriptor, size)
