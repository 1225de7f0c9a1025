"""What rules lose to the synchronous run, seed by seed: as a table and as a picture."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer.experiments.reproduce.outcomes import Section
from gossamer.experiments.reproduce.recipe import CEILING
from gossamer.experiments.reproduce.recommended import Loss, losses
from gossamer.experiments.style import COLOURS, DPI, GREY, MARKERS

TITLE = "points lost to the synchronous run, seed by seed"


def losses_table(section: Section) -> list[str]:
    """Return a table with a line for each case; spreads are those of the differences, so that common ones are out."""
    found = _by_row(section)
    rows = list(found)
    if not rows:
        return []
    lines = [
        f"Points lost to the synchronous run, seed by seed: mean ± standard deviation over seeds; {CEILING} is 0.",
        "",
    ]
    lines += [f"| | at most | {' | '.join(rows)} |", f"|---|---:|{'---:|' * len(rows)}"]
    meant = {(cell.row, cell.column) for cell in section.cells}
    for column in section.columns:
        here = {row: found[row].get(column) for row in rows}
        limits = {f"{loss.limit:g}" for loss in here.values() if loss is not None}
        if limits:
            empty = {row: "not run" if (row, column) in meant else "-" for row in rows}
            cells = [empty[row] if loss is None else loss.text for row, loss in here.items()]
            lines.append(f"| {column} | {limits.pop()} | {' | '.join(cells)} |")
    return lines


def _by_row(section: Section) -> dict[str, dict[str, Loss]]:
    """Return the losses by row and column, of the rows that have any."""
    found = {row: losses(section, row) for row in section.rows if row != CEILING}
    return {row: {loss.column: loss for loss in each} for row, each in found.items() if each}


def draw_losses(sections: Sequence[Section]) -> Figure:
    """Draw a line for each case, a mark for each rule, and how much may be lost."""
    section = sections[0]
    found = _by_row(section)
    rows = list(found)
    columns = [column for column in section.columns if any(column in found[row] for row in rows)]
    figure = Figure(figsize=(8.4, 2.2 + 0.42 * len(columns)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    for order, row in enumerate(rows):
        for at, column in enumerate(reversed(columns)):
            if (loss := found[row].get(column)) is not None:
                axes.errorbar(loss.points, at, xerr=loss.spread, capsize=2, **_look(order))
                axes.plot([loss.limit] * 2, [at - 0.3, at + 0.3], color=GREY, linewidth=2)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(columns)), list(reversed(columns)))
    axes.set_xlabel(TITLE)
    limit = Line2D([], [], linestyle="none", marker="|", markersize=12, color=GREY, label="as much as may be lost")
    handles = [Line2D([], [], label=row, **_look(order)) for order, row in enumerate(rows)]
    figure.legend(handles=[*handles, limit], loc="outside lower center", ncols=3)
    return figure


def _look(order: int) -> dict[str, Any]:
    return {"marker": MARKERS[order % len(MARKERS)], "color": COLOURS[order % len(COLOURS)], "linestyle": "none"}
