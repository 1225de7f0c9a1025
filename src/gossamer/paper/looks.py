"""How a row is drawn: the main ones alike in all pictures."""

from collections.abc import Sequence
from typing import Any

from gossamer.paper.cells import BEYOND, FAMILY
from gossamer.report.style import COLOURS, DASHES, MARKERS

MAIN_ROWS = (*FAMILY, *BEYOND)
Look = dict[str, Any]  # as matplotlib takes it


def look_of(row: str, rows: Sequence[str]) -> Look:
    """Return how a row's line looks among these rows."""
    others = [each for each in rows if each not in MAIN_ROWS]
    order = MAIN_ROWS.index(row) if row in MAIN_ROWS else len(MAIN_ROWS) + others.index(row)
    return {
        "color": COLOURS[order % len(COLOURS)],
        "linestyle": DASHES[order % len(DASHES)],
        "marker": MARKERS[order % len(MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.5,
    }
