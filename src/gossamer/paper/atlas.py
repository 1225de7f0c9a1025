"""Beyond the paper: every algorithm against every delay, each at its own rate, beside a run that waits for everyone."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.algorithms import algorithm_class, algorithm_names, parse_algorithm
from gossamer.paper.cells import (
    EQUAL_DATA,
    PARTITIONS,
    SCALES,
    Cell,
    Conditions,
    Scale,
    make_cell,
    skewed_trial,
    trial_settings,
)
from gossamer.paper.findings import RowColumn, Section
from gossamer.paper.paper_result import ACCURACY, BeyondThePaper, markdown_table, wrapped
from gossamer.paper.recommended import NORM_NOTE
from gossamer.paper.store import Outcome
from gossamer.report.style import DPI

SYNCHRONOUS = "sync"
DELAYS = (20, 0, 60, 5, 100, 10, 40, 2, 1)  # the most informative first
SMOKE_DELAYS = (20, 5)
TUNED_DELAYS = (0, 5, 20, 60, 100)  # have a search for the rate; a delay between takes the next larger one's rate
FIRST = ("pc-asgd/theta=auto", "pc-asgd/theta=pv", "d-asgd", "p-asgd", "c-asgd", "dm-asgd", SYNCHRONOUS)
SAME_WITHOUT_DELAY = tuple(name for name in FIRST if name != SYNCHRONOUS)  # equal the synchronous run
SAME_WITH_EQUAL_DATA = {"asgd": "dasgd-is"}  # at fixed delays, as these are
SUMMARY_DELAYS = (1, 5, 20, 100)
NEAREST = 3  # algorithms in the short table
COLOUR_MAP = "viridis"  # even in brightness, so that the colour-blind can read it
PALE = 0.6  # share of the colour map above which black text reads better than white


@dataclass(frozen=True)
class Chart:
    """What was run with one partition of the data: outcomes by row and delay, the best row first."""

    partition: str
    delays: list[int]
    outcomes: dict[str, dict[int, Outcome]]
    stale: dict[str, dict[int, Outcome]]  # of rows that have nothing else
    section: Section

    def lost(self, row: str, delay: int) -> float | None:
        """Return the points that a row is below the synchronous run, in the mean over the seeds that both have."""
        lost = self.section.lost(row, column_of(delay, self.partition), SYNCHRONOUS)
        return statistics.fmean(lost) if lost else None

    def ranked(self, delay: int) -> list[str]:
        """Return the rules that do not wait, with their points above the synchronous run, the nearest first."""
        lost = {row: points for row in self.outcomes if (points := self.lost(row, delay)) is not None}
        rows = sorted((row for row in lost if not _waits(row)), key=lambda row: lost[row])
        return [f"{row} {-lost[row]:+.1f}" for row in rows]

    def table(self, text: Callable[[Outcome], str]) -> list[str]:
        """Return a table of a line a row and a column a delay."""
        heads = ["", *(f"tau {delay}" for delay in self.delays)]
        lines = [(row, of_row) for row, of_row in self.outcomes.items()]
        lines += [(f"{row}, stale", of_row) for row, of_row in self.stale.items()]
        return markdown_table(
            heads,
            (
                [row, *(text(of_row[delay]) if delay in of_row else "not run" for delay in self.delays)]
                for row, of_row in lines
            ),
        )


def charts_of(section: Section) -> list[Chart]:
    """Return a chart for each partition that was run."""
    delays = sorted(set(section.numbers.values()))
    charts = []
    for partition in PARTITIONS:
        columns = {delay: column_of(delay, partition) for delay in delays}
        found = _by_height(section.rows, columns, section.outcomes)
        if found:
            before = _by_height([row for row in section.rows if row not in found], columns, section.stale)
            charts.append(Chart(partition, delays, found, before, section))
    return charts


def _by_height(
    rows: Sequence[str], columns: Mapping[int, str], outcomes: Mapping[RowColumn, Outcome]
) -> dict[str, dict[int, Outcome]]:
    """Return by row and delay what was run of these columns, the best row first.

    Rows with the most runs come first: the mean of a row with few would be that of the shortest delays.
    """
    found = {
        row: {delay: outcomes[row, name] for delay, name in columns.items() if (row, name) in outcomes} for row in rows
    }
    ordered = sorted((row for row in rows if found[row]), key=lambda row: _height(found[row]), reverse=True)
    return {row: found[row] for row in ordered}


def column_of(delay: int, partition: str) -> str:
    """Return the name of a column."""
    return f"tau {delay}, {partition}"


def _height(outcomes: dict[int, Outcome]) -> tuple[int, float]:
    """Return the number of runs, then the mean over delays."""
    return len(outcomes), statistics.fmean(outcome.mean for outcome in outcomes.values())


def _waits(row: str) -> bool:
    return algorithm_class(parse_algorithm(row)[0]).waits


@dataclass(frozen=True)
class DelayAtlas(BeyondThePaper):
    """Every algorithm against every delay."""

    def summary_table(self, section: Section) -> list[str]:
        """Return the rules nearest to the synchronous run and the last one, a line for each partition and delay."""
        rows = []
        for chart in charts_of(section):
            for delay in SUMMARY_DELAYS:
                ranked = chart.ranked(delay)
                if len(ranked) > NEAREST:
                    rows.append([f"{chart.partition}, tau {delay}", *ranked[:NEAREST], ranked[-1]])
        heads = ["points above the synchronous run", "nearest", *["then"] * (NEAREST - 1), "last"]
        return markdown_table(heads, rows, "---|")

    def legend(self, section: Section) -> str:
        """Say what the cells hold; rates have tables of their own."""
        return f"{ACCURACY}."

    def tables(self, section: Section) -> list[str]:
        """Return the short table, then accuracies and rates for each partition."""
        lines = [wrapped(self.caption), "", *self.summary_table(section), ""]
        for chart in charts_of(section):
            lines += [f"**{chart.partition}**, accuracy:", "", *chart.table(lambda outcome: outcome.text), ""]
            lines += [f"**{chart.partition}**, learning rate. *m 0*: no momentum except the rule's own.", ""]
            lines += [*chart.table(_rate), ""]
            missing = [row for row in section.rows if row not in chart.outcomes and row not in chart.stale]
            lines += [f"Not run with these data: {', '.join(missing)}.", ""] if missing else []
        return lines

    def draw(self, sections: Sequence[Section]) -> Figure:
        """Draw a map of colours for each partition, algorithms down and delays across, with the accuracies in it."""
        charts = [chart for section in sections for chart in charts_of(section)]
        rows = max(len(chart.outcomes) for chart in charts)
        figure = Figure(figsize=(7.2 * len(charts), 1.9 + 0.3 * rows), dpi=DPI, layout="constrained")
        heights = [outcome.mean for chart in charts for row in chart.outcomes.values() for outcome in row.values()]
        for place, chart in enumerate(charts):
            axes = figure.add_subplot(1, len(charts), place + 1)
            axes.set_title(chart.partition)
            _fill(axes, chart, min(heights), max(heights))
        return figure


def _rate(outcome: Outcome) -> str:
    return outcome.rate + ("" if outcome.cell.settings.momentum else f", {outcome.momentum}")


def _fill(axes: Axes, chart: Chart, low: float, high: float) -> None:
    """Colour all charts alike, so that they can be compared."""
    rows = chart.outcomes.values()
    values = np.array([[each[delay].mean if delay in each else np.nan for delay in chart.delays] for each in rows])
    axes.imshow(values, aspect="auto", cmap=COLOUR_MAP, vmin=low, vmax=max(high, low + 1e-9))
    for (down, across), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "black" if value - low > PALE * (high - low) else "white"
            axes.text(across, down, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=colour)
    axes.set_yticks(range(len(chart.outcomes)), list(chart.outcomes))
    axes.set_xticks(range(len(chart.delays)), list(map(str, chart.delays)))
    axes.set_xlabel("delay tau; test accuracy in %")
    axes.grid(visible=False)


def _cells(scale: Scale, protocol: str) -> list[Cell]:
    first = [parse_algorithm(text)[0] for text in FIRST]
    everyone = [*FIRST, *(name for name in algorithm_names() if name not in first)]
    small = scale.name == "smoke"
    short = dataclasses.replace(scale, epochs=scale.short_epochs)
    return [
        _cell(short, protocol, Conditions(delay=delay, partition=partition), text)
        for partition in PARTITIONS
        for delay in (SMOKE_DELAYS if small else DELAYS)
        for text in (FIRST if small else everyone)
    ]


def _cell(scale: Scale, protocol: str, where: Conditions, text: str) -> Cell:
    """Return a cell whose rate is one for a delay that is no smaller, so that it is stable here too."""
    rule = SYNCHRONOUS if where.delay == 0 and text in SAME_WITHOUT_DELAY else text
    with_equal_data = SAME_WITH_EQUAL_DATA.get(rule, rule)
    here = with_equal_data if where.partition == EQUAL_DATA else rule
    cell = make_cell(scale, protocol, where, text, column_of(where.delay, where.partition), here, where.delay)
    tuned_at = dataclasses.replace(where, delay=min(delay for delay in TUNED_DELAYS if delay >= where.delay))
    tune_on, refine_on = trial_settings(scale, tuned_at, with_equal_data), skewed_trial(scale, tuned_at, rule)
    return dataclasses.replace(cell, tune_on=tune_on, refine_on=refine_on)


ATLAS = DelayAtlas(
    "delay-atlas",
    "beyond the paper: accuracy of every algorithm against tau, equal and skewed data, each at its own rate",
    cells=_cells,
    caption="The rules nearest to a run that waits for everyone; rules that wait are left out. With one seed, "
    "differences of a point are not significant.",
    reading=f"Runs have {SCALES['quick'].short_epochs} epochs at scale quick; short runs lose more to delay than long "
    f"ones. Learning rates are searched at tau {', '.join(map(str, TUNED_DELAYS))}; other delays take the rate of the "
    "next larger one. A quick run has 490 steps: at tau 100 a fifth of it is over before the first late "
    "message arrives, which favours rules that late messages harm. local-sgd and diloco exchange only at every H-th "
    "step, so shorter delays make no difference to them. "
    f"Without delay {', '.join(SAME_WITHOUT_DELAY)} equal the synchronous run and share it. sync and cdmsgd wait for "
    "everyone; one run of each stands for all delays. "
    f"{' and '.join(*SAME_WITH_EQUAL_DATA.items())} are the same with equal data. "
    f"{NORM_NOTE}",
)
