"""What the agents say of themselves: each posts "status/RANK" in the book, and launchers read it there."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gossamer.runtime.book import Book
from gossamer.runtime.directory.keys import read_key
from gossamer.runtime.environment import Run

NO_AGENT = -1  # a launcher posts nothing
LAST_LOOK = 1.0  # seconds for an agent's last words to arrive


class Board:
    """The newest status of every agent of a run. Nothing here waits for the book, but `settle` for a second."""

    def __init__(self, run: Run) -> None:
        assert run.book is not None
        key = None if run.key_file is None else read_key(Path(run.key_file))
        self._book = Book(run.book, run.run, NO_AGENT, key)
        self._ranks = range(run.agents)
        for rank in self._ranks:
            self._book.watch(f"status/{rank}")

    def newest(self) -> dict[int, dict[str, Any]]:
        """Return what was read last, by rank; an agent that never said anything is missing."""
        said = {rank: self._book.read(f"status/{rank}") for rank in self._ranks}
        return {rank: status for rank, status in said.items() if status is not None}

    def settle(self, ended: Iterable[int]) -> None:
        """Wait a moment until those who have ended well, and who said anything at all, have said that they are done."""
        deadline, ended = time.monotonic() + LAST_LOOK, set(ended)
        while time.monotonic() < deadline:
            newest = self.newest()
            if all(newest[rank].get("done") for rank in ended & set(newest)):
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Leave the book."""
        self._book.close()
