"""One trace of all agents' records, in the form that `--delay trace:FILE` replays."""

from pathlib import Path

from gossamer.network.trace import HEADER


def merge_traces(folder: Path, target: Path) -> int:
    """Write the rows of all trace-RANK.csv in a folder to one file, by step; return how many there are.

    An agent that is killed may leave half a row, and writes its header again when it is back: what is no row of four
    whole numbers is passed over.
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
