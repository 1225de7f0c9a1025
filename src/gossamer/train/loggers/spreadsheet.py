"""metrics.csv: one line per evaluation, one column per number."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings
from gossamer.train.loggers.logged_values import flatten


class CsvLogger:
    """Writes RUN/metrics.csv. It begins with the rows of an earlier part of the run."""

    def __init__(self, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        self._path: Path = folder.path / "metrics.csv"
        self._folder = folder
        self._write(rows)

    def on_row(self, row: dict[str, Any]) -> None:
        """Add a line. A new number, such as the first predict share, needs a new column: then rewrite the file."""
        line = _line(row)
        self._lines.append(line)
        if set(line) <= set(self._columns):
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(line)
        else:
            self._rewrite()

    def close(self, summary: dict[str, Any] | None) -> None:
        """Rewrite the file from metrics.jsonl, so that the two agree."""
        self._write(self._folder.read_rows())

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        self._columns: list[str] = []
        self._lines = [_line(row) for row in rows]
        self._rewrite()

    def _rewrite(self) -> None:
        # Take columns from the last row first: rows before the first message lack some.
        self._columns = list(dict.fromkeys(name for line in reversed(self._lines) for name in line))
        with self._path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._lines)


def _line(row: dict[str, Any]) -> dict[str, str]:
    return {"_".join(name): repr(number).removesuffix(".0") for name, number in flatten(row).items()}
