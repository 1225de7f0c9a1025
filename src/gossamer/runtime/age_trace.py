"""The ages of the messages that an agent held, written as a trace that the simulator can replay."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer.network import NOTHING
from gossamer.network.trace import HEADER


def trace_path(folder: Path, rank: int) -> Path:
    """Return where an agent writes its part of the run's trace."""
    return folder / f"trace-{rank}.csv"


class AgeRecord:
    """One agent's part of a trace: a row where the age of a neighbour's message is another than before."""

    def __init__(self, folder: Path, rank: int, neighbours: Sequence[int]) -> None:
        self._rank, self._last = rank, dict.fromkeys(neighbours, NOTHING)
        folder.mkdir(parents=True, exist_ok=True)
        path = trace_path(folder, rank)
        self._file = path.open("a", encoding="utf-8")
        if path.stat().st_size == 0:
            self._file.write(",".join(HEADER) + "\n")

    def add(self, step: int, ages: Mapping[int, int]) -> None:
        """Write what has changed; a neighbour that is not heard has no age."""
        for neighbour, age in ages.items():
            if age not in (NOTHING, self._last[neighbour]):
                self._file.write(f"{step},{neighbour},{self._rank},{age}\n")
            self._last[neighbour] = age

    def flush(self) -> None:
        """Bring what was written to the file, so that a kill loses little."""
        self._file.flush()
