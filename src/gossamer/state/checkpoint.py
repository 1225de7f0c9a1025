"""Checkpoints: .npz files with a checksum, written so that no reader ever sees half of one.

The last two are kept. A new one is written whole beside them before anything is renamed, so a run that is killed at
any instant, or a disk that is full, leaves at least one that is valid.
"""

import contextlib
import errno
import hashlib
import io
import itertools
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.errors import UserError
from gossamer.shapes import Tensor

Array = NDArray[Any]
Count = Callable[[bytes], object]  # adds bytes to a checksum

FORMAT = 2
CHUNK = 1 << 24  # bytes that are written, read and hashed at a time
FULL = (errno.ENOSPC, errno.EDQUOT)
RESUME = "what was saved before is whole: make room, then go on with --resume"
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # from file systems that cannot sync a folder

# Entries beside the tensors. The sum comes last and covers all others, with their names.
_FORMAT, _BFLOAT16, _SUM = "format", "bfloat16", "sha256"


class Checkpoints:
    """The newest checkpoint of a run and the one before: after the first save, one is valid at every instant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / "checkpoint.npz"
        self.previous = folder / "checkpoint.previous.npz"
        self._newest_is_damaged = False

    def exist(self) -> bool:
        """Say whether there is a checkpoint."""
        return self.newest.exists() or self.previous.exists()

    def save(self, state: dict[str, Tensor]) -> None:
        """Write the newest checkpoint; the one that was newest becomes the previous one."""
        with tells_of_a_full_disk(self.folder):
            with _replacing(self.newest) as file:
                _write(file, state)
                _sync(file)
                # From here to the end of this block there is no newest one; the previous one is valid. A damaged
                # one must not take the place of the valid one that this run was resumed from.
                if not self._newest_is_damaged and self.newest.exists():
                    self.newest.replace(self.previous)
            self._newest_is_damaged = False
            _sync_folder(self.folder)

    def load(self) -> dict[str, Tensor]:
        """Read the newest checkpoint, or the previous one when that is missing or damaged."""
        try:
            state = load_checkpoint(self.newest)
        except UserError as error:
            if not self.previous.exists():
                raise
            state = self._load_previous(error)
        _temporary(self.newest).unlink(missing_ok=True)  # of a run that was killed while it saved
        return state

    def _load_previous(self, reason: UserError) -> dict[str, Tensor]:
        try:
            state = load_checkpoint(self.previous)
        except UserError as error:
            raise (reason if self.newest.exists() else error) from None
        self._newest_is_damaged = self.newest.exists()
        what = "damaged" if self._newest_is_damaged else "missing"
        warnings.warn(
            f"checkpoint '{self.newest}' is {what}; going on from the previous one, '{self.previous}'",
            RuntimeWarning,
            stacklevel=3,
        )
        return state


def load_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read one file, or say that it is missing or damaged; nothing of it is returned before its sum was verified."""
    try:
        with zipfile.ZipFile(path) as archive:
            version = _read(archive, _FORMAT).tolist() if f"{_FORMAT}.npy" in archive.namelist() else 0
            if version == FORMAT:
                return _verified(archive)
    except FileNotFoundError:
        raise UserError(f"there is no checkpoint '{path}'; give a run folder that was saved, or train anew") from None
    except MemoryError:
        raise
    except Exception as error:  # on damaged bytes, zipfile and numpy raise errors of a dozen classes
        raise UserError(
            f"checkpoint '{path}' is damaged or truncated ({error}); train anew into another folder"
        ) from None
    raise UserError(f"checkpoint '{path}' has format {version}, this version reads {FORMAT}; train anew")


def part_of(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def write_text(path: Path, text: str, *, lasting: bool = True) -> None:
    """Write a small file in one piece: a temporary one, renamed into place.

    Unless it is `lasting`, do not wait for the disk: a power cut may lose it.
    """
    write_bytes(path, text.encode("utf-8"), lasting=lasting)


def write_bytes(path: Path, data: bytes, remedy: str = RESUME, *, lasting: bool = True) -> None:
    """Write a file in one piece; the remedy is what to do when the disk is full."""
    with tells_of_a_full_disk(path.parent, remedy), _replacing(path) as file:
        file.write(data)
        if lasting:
            _sync(file)


@contextlib.contextmanager
def tells_of_a_full_disk(folder: Path, remedy: str = RESUME) -> Iterator[None]:
    """Turn the error of a full disk into a line that says which folder is full and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UserError(f"there is no space left in '{folder}' ({error.strerror}); {remedy}") from None


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a temporary file beside `path` that takes its place at the end, or disappears after an error."""
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring renames to the disk as well: they are entries of the folder."""
    if os.name == "nt":  # where a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def _write(file: IO[bytes], state: dict[str, Tensor]) -> None:
    """Write the tensors, one at a time from wherever they are, and the sum of what was written."""
    assert not {_FORMAT, _BFLOAT16, _SUM} & set(state)
    total = hashlib.sha256()
    with zipfile.ZipFile(file, "w") as archive:  # not compressed: parameters hardly shrink
        _add(archive, _FORMAT, np.array(FORMAT), total.update)
        for name, value in state.items():
            _add(archive, name, _to_numpy(value), total.update)
        names = [name for name, value in state.items() if value.dtype == torch.bfloat16]
        _add(archive, _BFLOAT16, np.array(names, dtype=np.str_), total.update)
        _add(archive, _SUM, np.array(total.hexdigest()), total.update)


def _add(archive: zipfile.ZipFile, name: str, array: Array, count: Count) -> None:
    """Write one array as an .npy member, hashing on the way: a large file is not read back for its sum."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    content = array.reshape(-1).view(np.uint8)
    chunks = (content[i : i + CHUNK].tobytes() for i in range(0, len(content), CHUNK))
    count(name.encode())
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        for part in itertools.chain([header.getvalue()], chunks):
            count(part)
            member.write(part)


def _verified(archive: zipfile.ZipFile) -> dict[str, Tensor]:
    total = hashlib.sha256()
    names = [name.removesuffix(".npy") for name in archive.namelist() if name != f"{_SUM}.npy"]
    arrays = {name: _read(archive, name, total.update) for name in names}
    if len(arrays) < len(names) or str(_read(archive, _SUM)) != total.hexdigest():
        raise ValueError("its content does not have the sum that was stored")
    del arrays[_FORMAT]
    halves = set(arrays.pop(_BFLOAT16).tolist())
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {name: value.view(torch.bfloat16) if name in halves else value for name, value in tensors.items()}


def _read(archive: zipfile.ZipFile, name: str, count: Count = len) -> Array:
    """Read one array; its header is held against the member's size, as a damaged one may ask for any memory."""
    count(name.encode())
    with archive.open(f"{name}.npy") as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"'{name}' is no array of this format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        start = member.tell()
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or start + size != archive.getinfo(f"{name}.npy").file_size:
            raise ValueError(f"'{name}' has another size than its header says")
        member.seek(0)
        count(member.read(start))
        array = np.empty(shape, dtype)
        content = array.reshape(-1).view(np.uint8)
        for i in range(0, size, CHUNK):
            part = member.read(min(CHUNK, size - i))
            count(part)
            content[i : i + len(part)] = np.frombuffer(part, np.uint8)
    return array


def _to_numpy(value: Tensor) -> Array:
    """Return a tensor's bytes as an array; numpy has no bfloat16, so its bits are kept as whole numbers."""
    plain = value.detach().cpu().contiguous()
    array: Array = (plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain).numpy()
    return array
