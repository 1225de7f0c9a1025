"""metrics.csv: one line an evaluation, one column a number."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings
from gossamer.train.loggers.logged_values import flatten


class CsvLogger:
    """Writes RUN/metrics.csv beside metrics.jsonl; what an earlier part of the run has measured comes first."""

    def __init__(self, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        self._path: Path = folder.path / "metrics.csv"
        self._folder = folder
        self._write(rows)

    def on_row(self, row: dict[str, Any]) -> None:
        """Add a line; a number that no row had before, such as a predict share, needs a column, so all is rewritten."""
        line = _line(row)
        self._lines.append(line)
        if set(line) <= set(self._columns):
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(line)
        else:
            self._rewrite()

    def close(self, summary: dict[str, Any] | None) -> None:
        """Leave a file that agrees with metrics.jsonl, however that came about."""
        self._write(self._folder.read_rows())

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        self._columns: list[str] = []
        self._lines = [_line(row) for row in rows]
        self._rewrite()

    def _rewrite(self) -> None:
        # The last row comes first: it has the columns that are missing before the first message.
        self._columns = list(dict.fromkeys(name for line in reversed(self._lines) for name in line))
        with self._path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._lines)


def _line(row: dict[str, Any]) -> dict[str, str]:
    return {"_".join(name): repr(number).removesuffix(".0") for name, number in flatten(row).items()}
