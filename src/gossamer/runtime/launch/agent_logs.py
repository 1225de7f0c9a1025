"""Agents' log files, and following them while they grow."""

from pathlib import Path


def log_path(folder: Path, rank: int) -> Path:
    """Return the log file of an agent."""
    return folder / f"agent-{rank}.log"


def last_words(path: Path, most: int = 4096) -> str:
    """Return the last non-empty line of a log: for an error, the one that matters."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Tail:
    """Follows a file from now on, or from its start, by whole lines."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path, self._rest = path, b""
        self._place = path.stat().st_size if path.exists() and not from_start else 0

    def read(self, *, whole: bool = False) -> list[str]:
        """Return the lines that came since the last call; at the end, `whole`, also one that lacks its end."""
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
