"""Every algorithm against every delay, best first: tables, and who comes nearest to no delay at all without waiting."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.algorithms import algorithm_class, parse_algorithm
from gossamer.paper.findings import Section, number_in
from gossamer.paper.outcomes import Outcome

SYNCHRONOUS = "sync"
TOLD = (20, 100)  # delays of the sentence
TABLED = (1, 5, 20, 100)  # and of the table
NEAREST = 3  # algorithms in it


@dataclass(frozen=True)
class Chart:
    """What was run with data dealt out in one way: outcomes by row and delay, the best row first."""

    part: str
    delays: list[int]
    outcomes: dict[str, dict[int, Outcome]]

    def lost(self, row: str, delay: int) -> float | None:
        """Return the points that a row is below the synchronous run, in the mean over the seeds that both have."""
        mine, best = (self.outcomes.get(name, {}).get(delay) for name in (row, SYNCHRONOUS))
        pairs = [] if mine is None or best is None else best.above(mine)
        return statistics.fmean(pairs) if pairs else None


def charts_of(section: Section) -> list[Chart]:
    """Return a chart for each way to deal out the data."""
    parts = list(dict.fromkeys(number_in(name)[0].strip() for name in section.columns))
    charts = (_chart(section, part) for part in parts)
    return [chart for chart in charts if chart.outcomes]


def _chart(section: Section, part: str) -> Chart:
    columns = {number_in(name)[1]: name for name in section.columns if number_in(name)[0].strip() == part}
    found = {
        row: {delay: section.outcomes[row, name] for delay, name in columns.items() if (row, name) in section.outcomes}
        for row in section.rows
    }
    found = {row: outcomes for row, outcomes in found.items() if outcomes}
    return Chart(part, sorted(columns), dict(sorted(found.items(), key=lambda item: _height(item[1]), reverse=True)))


def _height(outcomes: dict[int, Outcome]) -> tuple[int, float]:
    """Return what rows are ordered by: how much of them was run, then the mean over delays."""
    return len(outcomes), statistics.fmean(outcome.mean for outcome in outcomes.values())


def atlas_sentence(section: Section) -> str:
    """Say who comes nearest to the synchronous run, where that is there."""
    told = [text for chart in charts_of(section) for delay in TOLD if (text := _nearest(chart, delay))]
    return " ".join(told) or "The synchronous run, which others are measured by, has not been run."


def _nearest(chart: Chart, delay: int) -> str:
    ranked = _ranked(chart, delay)
    if not ranked:
        return ""
    listed = ", ".join(ranked[:NEAREST])
    last = f"; last is {ranked[-1]}" if len(ranked) > NEAREST else ""
    return f"At tau {delay}, {chart.part}, nearest to the synchronous run: {listed}{last} (points, of {len(ranked)})."


def _ranked(chart: Chart, delay: int) -> list[str]:
    """Return the rows that do not wait with their points above the synchronous run, the nearest first."""
    lost = {row: points for row in chart.outcomes if (points := chart.lost(row, delay)) is not None}
    rows = sorted((row for row in lost if not _waits(row)), key=lambda row: lost[row])
    return [f"{row} {-lost[row]:+.1f}" for row in rows]


def nearest_table(section: Section) -> list[str]:
    """Return who comes nearest to the synchronous run and who is last, a line for each way to deal out and delay."""
    lines = [f"| points above the synchronous run | nearest |{' then |' * (NEAREST - 1)} last |"]
    lines += [f"|---|{'---|' * (NEAREST + 1)}"]
    for chart in charts_of(section):
        for delay in chart.delays:
            rows = _ranked(chart, delay) if delay in TABLED else []
            if len(rows) > NEAREST:
                lines.append(f"| {chart.part}, tau {delay} | {' | '.join([*rows[:NEAREST], rows[-1]])} |")
    return lines


def _waits(row: str) -> bool:
    """Whether a row's algorithm is a synchronous one, to which nothing is ever late."""
    return algorithm_class(parse_algorithm(row)[0]).waits


def atlas_tables(section: Section) -> list[str]:
    """Return the accuracies, and the rates that were found, for each way to deal out the data."""
    lines = []
    for chart in charts_of(section):
        lines += [f"**{chart.part}**, accuracy:", "", *_table(chart, lambda outcome: outcome.text), ""]
        lines += [f"**{chart.part}**, learning rate, with *m 0* where there is no momentum but the rule's own:", ""]
        lines += [*_table(chart, _rate), ""]
        missing = [row for row in section.rows if row not in chart.outcomes]
        lines += [f"Not run with these data: {', '.join(missing)}.", ""] if missing else []
    return lines


def _table(chart: Chart, text: Callable[[Outcome], str]) -> list[str]:
    heads = " | ".join(f"tau {delay}" for delay in chart.delays)
    lines = [f"| | {heads} |", f"|---|{'---:|' * len(chart.delays)}"]
    for row, outcomes in chart.outcomes.items():
        cells = [text(outcomes[delay]) if delay in outcomes else "not run" for delay in chart.delays]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _rate(outcome: Outcome) -> str:
    return outcome.rate + ("" if outcome.cell.settings.momentum else f", {outcome.momentum}")
