"""What rules lose to the synchronous run, seed by seed."""

import math
import re
import statistics
from dataclasses import dataclass

from gossamer.paper.outcomes import Section
from gossamer.paper.recipe import CEILING

LIMITS = {20: 0.3, 60: 0.5}  # points that may be lost, by delay


@dataclass(frozen=True)
class Loss:
    """The points that a rule loses to the synchronous run in one column: mean over seeds, seed by seed."""

    column: str
    points: float
    spread: float | None
    limit: float
    seeds: int

    @property
    def within(self) -> bool:
        """Whether that is as little as was asked for."""
        return self.points <= self.limit

    @property
    def unclear(self) -> bool:
        """Whether it is nearer to its limit than the standard error of the mean, which one seed does not have."""
        return self.spread is None or abs(self.points - self.limit) < self.spread / math.sqrt(self.seeds)

    @property
    def text(self) -> str:
        """The points with their standard deviation, if there is one."""
        return f"{self.points:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")

    def __str__(self) -> str:
        return f"{self.text} ({self.column}; at most {self.limit:g})"


def place_of(column: str) -> str:
    """Return the model, length and data of 'preresnet:20, 30 epochs, iid, tau 20'."""
    return column.rpartition(", ")[0]


def delay_of(column: str) -> int:
    """Return its delay."""
    match = re.search(r"tau (\d+)$", column)
    assert match is not None, column
    return int(match[1])


def losses(section: Section, row: str) -> list[Loss]:
    """Return what a row loses in each column where the synchronous run is there too, of the seeds that both have."""
    found = []
    for column in section.columns:
        mine, ceiling = section.outcomes.get((row, column)), section.outcomes.get((CEILING, column))
        pairs = ceiling.above(mine) if mine is not None and ceiling is not None else []
        if pairs:
            spread = statistics.stdev(pairs) if len(pairs) > 1 else None
            found.append(Loss(column, statistics.fmean(pairs), spread, LIMITS[delay_of(column)], len(pairs)))
    return found


def losses_table(section: Section) -> list[str]:
    """Return a table with a line for each case; spreads are those of the differences, so that common ones are out."""
    found = losses_by_row(section)
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


def losses_by_row(section: Section) -> dict[str, dict[str, Loss]]:
    """Return them by row and column, of the rows that have any."""
    found = {row: losses(section, row) for row in section.rows if row != CEILING}
    return {row: {loss.column: loss for loss in each} for row, each in found.items() if each}
