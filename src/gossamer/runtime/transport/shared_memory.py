"""Messages between processes of one host: every agent owns a ring in shared memory, and its peers read it in place."""

import errno
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from gossamer.errors import UserError
from gossamer.runtime.message import Malformed, Stamp, pack_header, unpack_header
from gossamer.runtime.transport.base import KEPT, Letter, Transport
from gossamer.runtime.transport.message_ring import (
    SLOTS,
    MessageRing,
    RingShape,
    create,
    describe,
    map_ring,
    opened,
    take_over,
    try_lock,
)
from gossamer.shapes import Tensor

LOOK_AGAIN = 0.05  # seconds between looks at whether a peer has a file, or another one than before
ORPHANED = 3600.0  # seconds after which the files of dead processes are removed
_TRIES = 3  # a writer quick enough to go once round while its newest message is looked up is asked again
_FILE_NAME = re.compile(r"gossamer-(?P<run>.+)-[0-9]+(?P<unfinished>\.[a-z0-9_]+)?")


@dataclass
class _PeerFile:
    """A peer's file."""

    path: Path
    ring: MessageRing | None = None
    look_at: float = 0.0  # when to look for another file
    refused: tuple[int, ...] = ()  # the file that was no ring, so that it is counted once
    letters: dict[int, tuple[int, Letter | None]] = field(default_factory=dict)  # by slot, each with its number


class SharedMemory(Transport):
    """Messages to and from agents of the same host. It is for one thread."""

    def __init__(self, run: str, rank: int, num_agents: int, incarnation: int, folder: Path | None = None) -> None:
        super().__init__()
        self._run, self._rank, self._num_agents, self._incarnation = run, rank, num_agents, incarnation
        self._folder = folder or _default_folder()
        self._ring: MessageRing | None = None
        self._peers: dict[int, _PeerFile] = {}

    def open(self, length: int) -> None:
        """Take over the file of an earlier incarnation, so that peers go on reading where they are, or make one."""
        shape, path = RingShape(self._num_agents, length), self._path(self._rank)
        self._ring = None
        try:
            self._ring = take_over(path, shape, self._incarnation) or create(path, shape, self._incarnation)
        except OSError as error:
            raise self._refusal(error, shape.file) from None

    def _path(self, rank: int) -> Path:
        return self._folder / f"gossamer-{self._run}-{rank}"

    def _refusal(self, error: OSError, size: int) -> UserError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(self._folder).free
            what = f"agent {self._rank} needs {size:,} bytes in '{self._folder}', where {free:,} are free"
            remedy = "make it larger (--shm-size for a container)"
        else:
            what = f"agent {self._rank} cannot write '{self._path(self._rank)}' ({error.strerror})"
            remedy = "remove that file"
        return UserError(f"{what}; {remedy}, or set GOSSAMER_TRANSPORT=sockets")

    def publish(self, stamp: Stamp, parts: Sequence[Tensor]) -> None:
        """Copy the parts into the slot of the oldest message."""
        ring = self._ring
        if ring is None:
            raise ValueError("nothing can be published before it is opened")
        length = parts[0].nbytes if len(parts) == 1 else sum(part.nbytes for part in parts)
        if length > ring.shape.length:
            raise ValueError(f"a payload of {length} bytes, but {ring.shape.length} were announced")
        counter = ring.head + 1
        ring.begin(counter, pack_header(stamp, self._num_agents, length))
        if len(parts) == 1 and length == ring.shape.length:
            part = parts[0] if parts[0].dim() == 1 else parts[0].view(-1)
            ring.numbers(counter, part.dtype).copy_(part)
        else:
            payload, start = ring.payload(counter, length), 0
            for part in parts:
                _copy(part.reshape(-1).view(torch.uint8), payload[start : start + part.nbytes])
                start += part.nbytes
        ring.finish(counter)

    def latest(self, peer: int) -> Letter | None:
        """Return the newest whole message in the peer's ring."""
        state = self._look(peer)
        ring = state.ring
        if ring is None:
            return None
        head = ring.head
        letter = self._letter(peer, state, ring, head) if head else None  # most often the newest one is whole
        for _ in range(_TRIES):
            if letter is not None:
                return letter
            letter = next(self._letters(peer, state), None)
        return letter

    def at(self, peer: int, sequence: int) -> Letter | None:
        """Return a message by its iteration; what an earlier incarnation has left in the ring does not count."""
        state = self._look(peer)
        if state.ring is None:
            return None
        wanted = state.ring["incarnation"], sequence
        return next((letter for letter in self._letters(peer, state) if letter.stamp.order == wanted), None)

    def _look(self, peer: int) -> _PeerFile:
        """Find the peer's file, or the one that has replaced it; keep the last one while there is none."""
        state = self._peers.get(peer)
        if state is None:
            state = self._peers[peer] = _PeerFile(self._path(peer))
        now = time.monotonic()
        if now < state.look_at:
            return state
        state.look_at = now + LOOK_AGAIN
        with suppress(OSError):  # not there, or gone again
            status = state.path.lstat()
            file = status.st_dev, status.st_ino  # which no other file is given while this one is mapped
            if state.ring is None or state.ring.identity != file:
                try:
                    state.ring, state.letters = map_ring(state.path, self._num_agents), {}
                except Malformed:
                    self.counts["malformed"] += state.refused != (*file, status.st_size)
                    state.refused = *file, status.st_size
        return state

    def _letters(self, peer: int, state: _PeerFile) -> Iterator[Letter]:
        """Yield the last messages of a peer, the newest first, without those that are not whole or malformed."""
        ring = state.ring
        if ring is None:
            return
        head = ring.head
        for counter in range(head, max(0, head - KEPT), -1):
            letter = self._letter(peer, state, ring, counter)
            if letter is not None:
                yield letter

    def _letter(self, peer: int, state: _PeerFile, ring: MessageRing, counter: int) -> Letter | None:
        """Return the message of this number, or None if it is not whole or malformed."""
        if not ring.whole(counter):
            return None
        number, letter = state.letters.get(counter % SLOTS, (0, None))
        if number != counter:
            letter = self._parse(peer, ring, counter)
            if not ring.whole(counter):  # what was parsed may be of two messages
                return None
            if letter is None:
                self.counts["malformed"] += 1
            state.letters[counter % SLOTS] = counter, letter
        return letter

    def _parse(self, peer: int, ring: MessageRing, counter: int) -> Letter | None:
        """Return a message whose payload lies in the ring, or None where the header is not one of this peer's."""
        try:
            stamp, length, _ = unpack_header(ring.header(counter), self._num_agents)
        except Malformed:
            return None
        if stamp.sender != peer or length > ring.shape.length:
            return None
        payload, arrived = ring.payload(counter, length), ring.written(counter)
        return Letter(stamp, payload, arrived=arrived, intact=partial(ring.whole, counter))

    def close(self) -> None:
        """Close all files and remove its own. Letters that were returned stay readable."""
        ring, self._ring = self._ring, None
        self._peers.clear()
        if ring is not None:
            path = self._path(self._rank)
            with suppress(OSError):
                status = path.lstat()
                if (status.st_dev, status.st_ino) == ring.identity:  # and not a later incarnation's
                    path.unlink()


def _copy(source: Tensor, target: Tensor) -> None:
    """Copy bytes, by words where they are aligned: torch takes 1.5 times as long for single bytes."""
    words = 0
    if source.storage_offset() % 8 == 0 and target.storage_offset() % 8 == 0:
        words = source.numel() // 8 * 8
        target[:words].view(torch.int64).copy_(source[:words].view(torch.int64))
    if words < source.numel():
        target[words:].copy_(source[words:])


def _default_folder() -> Path:
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def remove_leftovers(run: str, folder: Path | None = None) -> int:
    """Remove all files of a run whose agents have ended, however they did; return how many there were."""
    return _remove(_files(folder)[run])


def remove_orphans(folder: Path | None = None) -> int:
    """Remove files of runs with no live process and no recent file; return how many there were."""
    return sum(_remove(paths) for paths in _files(folder).values() if not any(map(_may_be_needed, paths)))


def _files(folder: Path | None) -> defaultdict[str, list[Path]]:
    """Return the files of each run."""
    runs: defaultdict[str, list[Path]] = defaultdict(list)
    for path in (folder or _default_folder()).iterdir():
        match = _FILE_NAME.fullmatch(path.name)
        if match:
            runs[match["run"]].append(path)
    return runs


def _remove(paths: Iterable[Path]) -> int:
    removed = 0
    for path in paths:
        with suppress(OSError):  # gone already, or another user's
            path.unlink()
            removed += 1
    return removed


def _may_be_needed(path: Path) -> bool:
    try:
        with opened(path, os.O_RDONLY) as descriptor:
            if time.time() - os.fstat(descriptor).st_mtime < ORPHANED:
                return True
            try_lock(descriptor)  # shows a writer in a container too, whose process number means nothing here
            return Path("/proc", str(describe(descriptor)[1])).exists()
    except OSError:
        return True
    except Malformed:  # one that was never finished, or another user's file
        return "." not in path.name
