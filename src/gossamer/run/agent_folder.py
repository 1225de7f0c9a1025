"""The files that each agent process writes into the run folder: metrics, checkpoints, final status and log."""

import json
from pathlib import Path
from typing import Any

from gossamer.run.folder import read_object
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import Checkpoints, write_text


class AgentFolder:
    """The folder RUN/agents/RANK of one agent."""

    def __init__(self, run: Path, rank: int) -> None:
        self.path = run / "agents" / str(rank)
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints = Checkpoints(self.path)
        self.metrics_path, self._end = self.path / "metrics.jsonl", self.path / "end.json"

    def begin(self) -> None:
        """Delete the final status of an earlier part of the run."""
        self._end.unlink(missing_ok=True)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row of metrics."""
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(to_json(row) + "\n")

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return the rows by step. After a restart a step may have two rows; the later one counts."""
        return {row["step"]: row for row in read_rows(self.metrics_path)}

    def end(self, status: str) -> None:
        """Write the final status of the agent."""
        write_text(self._end, json.dumps({"status": status}) + "\n")

    @property
    def status(self) -> str | None:
        """The final status; None if the agent still runs or was killed."""
        status = read_object(self._end).get("status")
        return None if status is None else str(status)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics file, or no rows if the file does not exist."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [row for line in lines if (row := parsed(line)) is not None]


def parsed(line: str) -> dict[str, Any] | None:
    """Return the row of a line, or None if a killed process left the line incomplete."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "step" in row else None


def log_path(folder: Path, rank: int) -> Path:
    """Return the log file of an agent."""
    return folder / f"agent-{rank}.log"


def last_words(path: Path, most: int = 4096) -> str:
    """Return the last non-empty line of a log. After a traceback it names the error."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Tail:
    """Reads the new lines of a growing file, from now on or from its start."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path, self._rest = path, b""
        self._place = path.stat().st_size if path.exists() and not from_start else 0

    def read(self, *, whole: bool = False) -> list[str]:
        """Return the complete lines since the last call. `whole` also returns an incomplete last line."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                fresh = file.read()
        except OSError:
            fresh = b""
        self._place += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        if whole and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
