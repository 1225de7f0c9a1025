"""Traces of message ages: one file per agent, joined into one that `--delay trace:FILE` replays."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer.network import NOTHING
from gossamer.network.trace import HEADER


class AgeRecord:
    """One agent's part of a trace: one row each time the age of a neighbour's message changes."""

    def __init__(self, folder: Path, rank: int, neighbours: Sequence[int]) -> None:
        self._rank, self._last = rank, dict.fromkeys(neighbours, NOTHING)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"trace-{rank}.csv"  # merge_traces looks for these names
        self._file = path.open("a", encoding="utf-8")
        if path.stat().st_size == 0:
            self._file.write(",".join(HEADER) + "\n")

    def add(self, step: int, ages: Mapping[int, int]) -> None:
        """Write the ages that changed; a silent neighbour has none."""
        for neighbour, age in ages.items():
            if age not in (NOTHING, self._last[neighbour]):
                self._file.write(f"{step},{neighbour},{self._rank},{age}\n")
            self._last[neighbour] = age

    def flush(self) -> None:
        """Flush the file, so that a kill loses little."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def merge_traces(folder: Path, target: Path) -> int:
    """Write the rows of all trace-RANK.csv in a folder to one file, by step; return how many there are.

    An agent that is killed may leave half a row, and writes its header again after a restart: only
    rows of four whole numbers count.
    """
    rows = [row for path in sorted(folder.glob("trace-*.csv")) for row in _rows(path)]
    rows.sort(key=lambda row: row[0])  # of one agent and step the later row stays the later one, which wins in a replay
    with target.open("w", encoding="utf-8") as file:
        for row in [tuple(HEADER), *rows]:
            file.write(",".join(map(str, row)) + "\n")
    return len(rows)


def _rows(path: Path) -> list[tuple[int, ...]]:
    rows = []
    # What follows the last line's end is a row that was cut off.
    for line in path.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0].split("\n"):
        parts = line.split(",")
        if len(parts) == len(HEADER) and all(part.isdecimal() for part in parts):
            rows.append(tuple(int(part) for part in parts))
    return rows
