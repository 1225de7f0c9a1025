"""Finished runs on disk, and what those of one cell say: mean and standard deviation over seeds.

OUT/data has one file a scale, and a line of JSON a run. Lines are only ever added, each in one write: several programs
may share a file, files of several machines can be put together, and version control shows what is new. A line that was
cut off, by a full disk or a kill, is skipped with a warning; its run is made again.
"""

import copy
import json
import os
import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms import algorithm_class
from gossamer.errors import UserError
from gossamer.paper.cells import Cell, key_of_identity
from gossamer.run.metric_rows import mean
from gossamer.run.settings import is_stale
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import tells_of_a_full_disk

Record = dict[str, Any]

USUAL_SPREAD = 0.6  # points: the median over cells of the CIFAR results that have three seeds
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
        """Read all runs of the folder."""
        self.folder = folder / "data"
        self._records: dict[tuple[str, int], Record] = {}  # by key and seed
        self._num_read: dict[Path, int] = {}  # whole lines of each file
        self._read(until=None)

    def refresh(self) -> None:
        """Read what others have added. A last line without an end may still be on its way to the disk."""
        self._read(until=-1)

    def _read(self, until: int | None) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            lines = _lines_of(path)
            for record in _records_in(path, lines[:until], self._num_read.get(path, 0)):
                self._records.setdefault(_place(record), record)
            self._num_read[path] = len(lines) - 1

    @property
    def scales(self) -> set[str]:
        """The scales that have runs."""
        return {record["scale"] for record in self._records.values()}

    def find(self, key: str, seed: int) -> Record | None:
        """Return a finished run, if there is one."""
        return self._records.get((key, seed))

    def seeds_of(self, key: str) -> list[Record]:
        """Return all runs of an experiment, by seed."""
        return sorted((record for (of, _), record in self._records.items() if of == key), key=lambda run: run["seed"])

    def all(self) -> list[Record]:
        """Return every run."""
        return list(self._records.values())

    def former(self) -> "Store":
        """Return the stale runs alone: those of rules' former revisions, by the keys of their present ones."""
        there = copy.copy(self)
        there._records = {}
        for record in self.all():
            if is_stale(identity := record["settings"]):
                revision = algorithm_class(identity["algorithm"]).revision
                key = key_of_identity({**identity, "revision": revision})
                there._records[key, record["seed"]] = {**record, "key": key}
        return there

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
        """Add the runs of another such file that are not here yet; return how many."""
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
    """Return the records from a line on; any other line is skipped with a warning."""
    records = []
    for number, line in enumerate(lines[first:], start=first + 1):
        record = _parse(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            warnings.warn(f"'{path}' line {number} is damaged and skipped", RuntimeWarning, stacklevel=5)
    return records


def _parse(line: bytes) -> Record | None:
    """Return a record, or None for any other line."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    whole = all(isinstance(record.get(name), kind) for name, kind in _NEEDED.items())
    # The scale names a file when the record is imported.
    return record if whole and record["scale"].isalnum() else None


def _place(record: Record) -> tuple[str, int]:
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


@dataclass(frozen=True)
class Outcome:
    """The runs of one cell, at least one."""

    cell: Cell
    records: list[Record]

    @property
    def values(self) -> list[float]:
        """The quantity that the cell is about: accuracy in per cent, or the seconds of an epoch."""
        if self.cell.timed:
            return [statistics.median(record["epoch_seconds"]) for record in self.records]
        return [100 * record["accuracy"] for record in self.records]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds, from two seeds on."""
        return statistics.stdev(self.values) if len(self.records) > 1 else None

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; of one seed the usual one."""
        return USUAL_SPREAD if self.std is None else self.std

    def above(self, other: "Outcome") -> list[float]:
        """Return by how much this one is higher, seed by seed, for the seeds that both have."""
        mine, theirs = (
            {record["seed"]: value for record, value in zip(each.records, each.values, strict=True)}
            for each in (self, other)
        )
        return [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]

    @property
    def diverged(self) -> int:
        """How many runs ended because a loss was not finite."""
        return sum(record["status"] != "finished" for record in self.records)

    @property
    def text(self) -> str:
        """Mean, standard deviation and number of seeds, as '61.2 ± 0.4 (3)'."""
        digits = 3 if self.cell.timed else 1
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        ended = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.mean:.{digits}f}{spread} ({len(self.records)}{ended})"

    @property
    def rate(self) -> str:
        """The learning rate, with a question mark while the search is unfinished."""
        return f"{self.cell.settings.lr:g}" + ("?" if self.cell.tentative else "")

    @property
    def momentum(self) -> str:
        """The momentum of the agents, or of the server where that has one."""
        settings = self.cell.settings
        at_server = settings.options.get("server_momentum")
        return f"server m {at_server:g}" if at_server else f"m {settings.momentum:g}"

    @property
    def text_with_rate(self) -> str:
        """The text, and of a tuned cell the learning rate and momentum."""
        return self.text + (f", lr {self.rate}, {self.momentum}" if self.cell.protocol == "tuned" else "")

    def predict_shares(self) -> tuple[list[float], list[list[float | None]]]:
        """Return the epochs and the shares of predicting steps, for each cluster: means over seeds."""
        rows = zip(*self._over_epochs("predict"), strict=True)
        known = {epoch: of_seeds for epoch, of_seeds in rows if all(of_seeds)}  # none before the first step
        return list(known), [[mean(shares) for shares in zip(*of_seeds, strict=True)] for of_seeds in known.values()]

    def last_share(self) -> float | None:
        """Return the share of predicting steps in the last interval, the mean over clusters."""
        _, shares = self.predict_shares()
        return mean(shares[-1]) if shares else None

    def accuracy_curve(self) -> tuple[list[float], list[float]]:
        """Return the epochs and the accuracies in per cent, means over seeds."""
        epochs, rows = self._over_epochs("accuracy")
        return epochs, [100 * statistics.fmean(of_seeds) for of_seeds in rows]

    def _over_epochs(self, name: str) -> tuple[list[float], list[list[Any]]]:
        """Return the epochs at which all seeds were evaluated, and a column of the history there, seed by seed."""
        of_seeds = [
            dict(zip(record["history"]["epoch"], record["history"][name], strict=True)) for record in self.records
        ]
        epochs = [epoch for epoch in of_seeds[0] if all(epoch in each for each in of_seeds)]
        return epochs, [[each[epoch] for each in of_seeds] for epoch in epochs]
