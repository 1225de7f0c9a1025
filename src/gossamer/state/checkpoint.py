"""Checkpoints: .npz files with a checksum, written atomically.

The newest two are kept. A new checkpoint is complete on disk before any file is renamed. So a killed run or a full disk
always leaves at least one valid checkpoint.
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
CHUNK = 1 << 24  # bytes to write, read and hash at a time
FULL = (errno.ENOSPC, errno.EDQUOT)
RESUME = "saved files are intact: free some space, then continue with --resume"
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # errors of file systems that cannot sync a folder

# Entries besides the tensors. The checksum comes last and covers the names and contents of all others.
_FORMAT, _BFLOAT16, _SUM = "format", "bfloat16", "sha256"


class Checkpoints:
    """The newest and the previous checkpoint of a run. After the first save, one of them is valid at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / "checkpoint.npz"
        self.previous = folder / "checkpoint.previous.npz"
        self._newest_is_damaged = False

    def exist(self) -> bool:
        """Return whether there is a checkpoint."""
        return self.newest.exists() or self.previous.exists()

    def save(self, state: dict[str, Tensor]) -> None:
        """Write the newest checkpoint. The former newest becomes the previous one."""
        with tells_of_a_full_disk(self.folder):
            with _replacing(self.newest) as file:
                _write(file, state)
                _sync(file)
                # Until the end of this block there is no newest checkpoint, but a valid previous one. A damaged newest
                # one must not replace the previous one, from which this run was resumed.
                if not self._newest_is_damaged and self.newest.exists():
                    self.newest.replace(self.previous)
            self._newest_is_damaged = False
            _sync_folder(self.folder)

    def load(self) -> dict[str, Tensor]:
        """Read the newest checkpoint, or the previous one if the newest is missing or damaged."""
        try:
            state = load_checkpoint(self.newest)
        except UserError as error:
            if not self.previous.exists():
                raise
            state = self._load_previous(error)
        _temporary(self.newest).unlink(missing_ok=True)  # left by a run that was killed while saving
        return state

    def _load_previous(self, reason: UserError) -> dict[str, Tensor]:
        try:
            state = load_checkpoint(self.previous)
        except UserError as error:
            raise (reason if self.newest.exists() else error) from None
        self._newest_is_damaged = self.newest.exists()
        what = "damaged" if self._newest_is_damaged else "missing"
        warnings.warn(
            f"checkpoint '{self.newest}' is {what}; continuing from the previous one, '{self.previous}'",
            RuntimeWarning,
            stacklevel=3,
        )
        return state


def load_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read one file and verify its checksum. Refuse a missing or damaged file."""
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
    """Return the entries whose names have a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def write_text(path: Path, text: str, *, lasting: bool = True) -> None:
    """Write a small file atomically: write a temporary file, then rename it.

    `lasting=False` does not wait for the disk: a power cut may lose the file.
    """
    write_bytes(path, text.encode("utf-8"), lasting=lasting)


def write_bytes(path: Path, data: bytes, remedy: str = RESUME, *, lasting: bool = True) -> None:
    """Write a file atomically. `remedy` is the advice in the error about a full disk."""
    with tells_of_a_full_disk(path.parent, remedy), _replacing(path) as file:
        file.write(data)
        if lasting:
            _sync(file)


@contextlib.contextmanager
def tells_of_a_full_disk(folder: Path, remedy: str = RESUME) -> Iterator[None]:
    """Turn the error of a full disk into one line with the folder and a remedy."""
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
    """Sync the folder, so that renames reach the disk too."""
    if os.name == "nt":  # folders cannot be opened there
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
    """Write the tensors, one at a time, and the checksum."""
    assert not {_FORMAT, _BFLOAT16, _SUM} & set(state)
    total = hashlib.sha256()
    with zipfile.ZipFile(file, "w") as archive:  # not compressed: parameters barely shrink
        _add(archive, _FORMAT, np.array(FORMAT), total.update)
        for name, value in state.items():
            _add(archive, name, _to_numpy(value), total.update)
        names = [name for name, value in state.items() if value.dtype == torch.bfloat16]
        _add(archive, _BFLOAT16, np.array(names, dtype=np.str_), total.update)
        _add(archive, _SUM, np.array(total.hexdigest()), total.update)


def _add(archive: zipfile.ZipFile, name: str, array: Array, count: Count) -> None:
    """Write one array as an .npy member and hash it on the way, so that the file need not be read back."""
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
        raise ValueError("its content does not match its checksum")
    del arrays[_FORMAT]
    halves = set(arrays.pop(_BFLOAT16).tolist())
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {name: value.view(torch.bfloat16) if name in halves else value for name, value in tensors.items()}


def _read(archive: zipfile.ZipFile, name: str, count: Count = len) -> Array:
    """Read one array. Check its header against the member size: a damaged header may ask for any amount of memory."""
    count(name.encode())
    with archive.open(f"{name}.npy") as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"'{name}' is not an array of this format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        start = member.tell()
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or start + size != archive.getinfo(f"{name}.npy").file_size:
            raise ValueError(f"'{name}' has a different size than its header says")
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
    """Return a tensor as a numpy array. numpy has no bfloat16, so its bits become uint16."""
    plain = value.detach().cpu().contiguous()
    array: Array = (plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain).numpy()
    return array
