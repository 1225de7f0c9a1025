"""What rules lose to the synchronous run, seed by seed, as a picture."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer.paper.findings import Section
from gossamer.paper.looks import look_of
from gossamer.paper.recommended import losses_by_row
from gossamer.report.style import DPI, GREY

TITLE = "points lost to the synchronous run, seed by seed"
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100)  # of an axis that is even between -1 and 1, where the limits are


def draw_losses(sections: Sequence[Section]) -> Figure:
    """Draw a line for each case, a mark for each rule, and how much may be lost."""
    section = sections[0]
    found = losses_by_row(section)
    rows = list(found)
    columns = [column for column in section.columns if any(column in found[row] for row in rows)]
    figure = Figure(figsize=(8.4, 2.2 + 0.42 * len(columns)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    looks = {row: {**look_of(row, rows), "linestyle": "none", "markersize": 6} for row in rows}
    for row in reversed(rows):  # ours, which is the first, above the others
        for at, column in enumerate(reversed(columns)):
            if (loss := found[row].get(column)) is not None:
                axes.errorbar(loss.points, at, xerr=loss.spread, capsize=2, **looks[row])
                axes.plot([loss.limit] * 2, [at - 0.3, at + 0.3], color=GREY, linewidth=2)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(columns)), list(reversed(columns)))
    _spread_out(axes)
    axes.set_xlabel(TITLE)
    limit = Line2D([], [], linestyle="none", marker="|", markersize=12, color=GREY, label="as much as may be lost")
    handles = [Line2D([], [], label=row, **looks[row]) for row in rows]
    figure.legend(handles=[*handles, limit], loc="outside lower center", ncols=3)
    return figure


def _spread_out(axes: Axes) -> None:
    """Give tenths of a point as much room as tens."""
    axes.set_xscale("symlog", linthresh=1)
    axes.margins(x=0.06)
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()
