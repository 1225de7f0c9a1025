"""What agents did, and the messages between them: the first ones of a run, as a file that pictures are drawn from."""

import csv
import io
from pathlib import Path

from gossamer.engine.timed.timetable import State, Timetable
from gossamer.state.checkpoint import write_text
from gossamer.testbed.time_unit import to_seconds

SPELLS_FILE = "timeline.csv"
HEADER = ("what", "agent", "to", "begin", "end")  # of a message: its sender, its receiver, sent, arrived
NAMES = {State.COMPUTING: "computing", State.WAITING: "waiting", State.DOWN: "down", State.RETURNING: "waiting"}


def write_spells(path: Path, table: Timetable) -> None:
    """Write the first spells and messages of a run, in order of their beginnings."""
    rows: list[tuple[str, int, str | int, float, float]] = [
        (NAMES[state], agent, "", to_seconds(begin), to_seconds(end)) for agent, state, begin, end in table.log
    ]
    rows += [
        ("message", sender, receiver, to_seconds(begin), to_seconds(end))
        for sender, receiver, begin, end in table.links.log
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *sorted(rows, key=lambda row: (row[3], row[4]))])
    write_text(path, text.getvalue())
