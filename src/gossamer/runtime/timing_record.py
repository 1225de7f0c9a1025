"""Recorded times of a run: one file per agent, joined into a testbed that `--testbed run:FOLDER` replays."""

import json
from collections.abc import Mapping
from pathlib import Path

from gossamer.run.process_settings import LinkSettings
from gossamer.state.checkpoint import write_text
from gossamer.testbed.recorded import LIMITS, LIMITS_FILE, TIMING_FILE, TIMING_HEADER


class TimingRecord:
    """One agent's part: how long its iterations took, and its neighbours' messages.

    A row is from,to,number,seconds: of an iteration, where both are this agent, or of the way of a message from the
    stamp that its sender gave it to its arrival. The first iteration and its message have no rows: agents wait for each
    other to start.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._rank = rank
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"timing-{rank}.csv").open("a", encoding="utf-8")  # merge_timings looks for these names

    def add(self, step: int, computed: int | None, arrivals: Mapping[int, tuple[int, int]]) -> None:
        """Write an iteration and the messages that came with it: by sender, their iteration and nanoseconds."""
        if computed is not None:
            self._write(self._rank, step, computed)
        for sender, (number, nanoseconds) in arrivals.items():
            if number > 0:
                self._write(sender, number, nanoseconds)

    def _write(self, sender: int, number: int, nanoseconds: int) -> None:
        self._file.write(f"{sender},{self._rank},{number},{nanoseconds / 1e9:.6f}\n")

    def flush(self) -> None:
        """Flush the file, so that a kill loses little."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def merge_timings(folder: Path, agents: int, links: LinkSettings) -> None:
    """Write the rows of all timing-RANK.csv in a folder to one file, and beside it the limits of the run."""
    with (folder / TIMING_FILE).open("w", encoding="utf-8") as file:
        file.write(",".join(TIMING_HEADER) + "\n")
        for rank in range(agents):
            path = folder / f"timing-{rank}.csv"
            if path.exists():
                # What follows the last line's end is a row that was cut off: an agent may be killed at any time.
                file.writelines(line + "\n" for line in _whole(path.read_text(encoding="utf-8", errors="replace")))
    limits = {"agents": agents, **{name: getattr(links, name) for name in LIMITS if name != "agents"}}
    write_text(folder / LIMITS_FILE, json.dumps(limits) + "\n")


def _whole(text: str) -> list[str]:
    lines = text.rpartition("\n")[0].split("\n")
    return [line for line in lines if line.count(",") == len(TIMING_HEADER) - 1]
