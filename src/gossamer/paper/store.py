"""Finished runs on disk: a line of JSON for each, in one file a scale, in OUT/data.

Lines are only ever added, each in one write, so that several programs may share a file, the files of several machines
can be put together, and a version control system shows what is new. A line that was cut off, by a full disk or a kill,
is left out with a warning; its run is made again.
"""

import json
import os
import warnings
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.run.folder import to_json
from gossamer.state.checkpoint import tells_of_a_full_disk

Record = dict[str, Any]
Place = tuple[str, int]  # key and seed

_NEEDED: dict[str, type | tuple[type, ...]] = {
    "key": str,
    "seed": int,
    "scale": str,
    "accuracy": (int, float),
    "status": str,
    "history": dict,
}


class Store:
    """All runs of a folder, by key and seed."""

    def __init__(self, folder: Path) -> None:
        """Read what is there."""
        self.folder = folder / "data"
        self._records: dict[Place, Record] = {}
        self._num_read: dict[Path, int] = {}  # whole lines of each file
        self._read(until=None)

    def refresh(self) -> None:
        """Read what others have added. A last line that has no end may be in the middle of its way to the disk."""
        self._read(until=-1)

    def _read(self, until: int | None) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            lines = _lines_of(path)
            for record in _records_in(path, lines[:until], self._num_read.get(path, 0)):
                self._records.setdefault(_place(record), record)
            self._num_read[path] = len(lines) - 1

    @property
    def scales(self) -> set[str]:
        """The scales of which there is anything."""
        return {record["scale"] for record in self._records.values()}

    def find(self, key: str, seed: int) -> Record | None:
        """Return a run that has been made."""
        return self._records.get((key, seed))

    def seeds_of(self, key: str) -> list[Record]:
        """Return all runs of an experiment, by seed."""
        return sorted((record for (of, _), record in self._records.items() if of == key), key=lambda run: run["seed"])

    def all(self) -> list[Record]:
        """Return every run."""
        return list(self._records.values())

    def add(self, record: Record) -> bool:
        """Keep a run; say whether it is new."""
        record = json.loads(to_json(record))
        if _place(record) in self._records:
            return False
        self._records[_place(record)] = record
        self.folder.mkdir(parents=True, exist_ok=True)
        _append(self.folder / f"{record['scale']}.jsonl", to_json(record))
        return True

    def take_in(self, path: Path) -> int:
        """Take the runs of another file of this kind that are not here yet; return how many."""
        if not path.is_file():
            raise UserError(f"there is no file '{path}' to import; give one of another folder's data/")
        return sum(self.add(record) for record in read_records(path))


def read_records(path: Path) -> list[Record]:
    """Return the whole lines of a file."""
    return _records_in(path, _lines_of(path))


def _lines_of(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read '{path}' ({error.strerror}); check its permissions") from None


def _records_in(path: Path, lines: list[bytes], first: int = 0) -> list[Record]:
    """Return the records from a line on; what is none is left out with a warning."""
    records = []
    for number, line in enumerate(lines[first:], start=first + 1):
        record = _parse(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            warnings.warn(f"'{path}' line {number} is damaged and left out", RuntimeWarning, stacklevel=5)
    return records


def _parse(line: bytes) -> Record | None:
    """Return a record, or nothing for what is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    whole = all(isinstance(record.get(name), kind) for name, kind in _NEEDED.items())
    # It names a file when it is imported.
    return record if whole and record["scale"].isalnum() else None


def _place(record: Record) -> Place:
    return record["key"], record["seed"]


def _append(path: Path, line: str) -> None:
    """Add a line in one write, after whatever a killed program left."""
    with tells_of_a_full_disk(path.parent), path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        cut = size > 0 and file.read(1) != b"\n"
        file.write((b"\n" if cut else b"") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
