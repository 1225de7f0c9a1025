"""Beyond the paper: what this library recommends under delay, held against no delay at all and against tuned rivals.

The recommended rule takes the learning rate that was found for the synchronous run. So the claim is the strong one:
whoever has tuned a run without delay can put it onto late links as it is.
"""

import dataclasses
import math
import re
import statistics
from dataclasses import dataclass

from gossamer.paper.cells import CEILING, Cell, make_cell
from gossamer.paper.findings import Section
from gossamer.paper.scales import DEEP, FIRST_MODEL, Scale, Setting, at_length
from gossamer.paper.verdict import FAILS, HOLDS, OPEN, Verdict, counted

OURS, MATCHED, UNDAMPED, BASELINE = "SDM-ASGD", "DM-ASGD", "DM-ASGD, undamped", "D-ASGD"
WITHOUT_DELAY = "SDM-ASGD, no delay"  # what its damping does by itself
ROWS = {
    CEILING: "sync",
    OURS: "sdm-asgd",
    MATCHED: "dm-asgd",
    UNDAMPED: "dm-asgd/gain=undamped",
    WITHOUT_DELAY: "sdm-asgd",
    "SGP": "sgp",
    "DC-S3GD": "dc-s3gd",
    "C-ASGD": "c-asgd",
    BASELINE: "d-asgd",
    "PC-ASGD": "pc-asgd/theta=pv",
    "PC-ASGD, theta 0.3": "pc-asgd/theta=0.3",
    "DASGD-IS": "dasgd-is",
}
AT_THE_CEILINGS_RATE = (OURS, MATCHED, UNDAMPED, WITHOUT_DELAY)
FEW = (CEILING, OURS)  # of deep nets
SOME = (*FEW, MATCHED, WITHOUT_DELAY)  # of long runs
AT_SMOKE = (*SOME, "DC-S3GD", BASELINE)  # which is to take a minute
PARTS = ("iid", "dirichlet:0.3")
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


def recommended_cells(scale: Scale, protocol: str) -> list[Cell]:
    """Return all rows for the scale's own model at its own length, and fewer where runs are longer and nets deeper.

    The shorter a run, the larger the rate that it needs, and the more it gains from every agent's gradient at once.
    """
    places = [(FIRST_MODEL, scale.epochs, AT_SMOKE if scale.name == "smoke" else tuple(ROWS))]
    if scale.long_epochs:
        places += [(FIRST_MODEL, scale.long_epochs, SOME), (DEEP, scale.long_epochs, FEW)]
    return [
        _cell(scale, protocol, Setting(model=model, delay=delay, partition=part), epochs, row)
        for model, epochs, rows in places
        for part in PARTS
        for delay in LIMITS
        for row in rows
    ]


def _cell(scale: Scale, protocol: str, where: Setting, epochs: int, row: str) -> Cell:
    """Return a cell whose rate is looked for at its own length."""
    column = f"{scale.models[where.model]}, {epochs} epochs, {where.partition}, tau {where.delay}"
    there = dataclasses.replace(where, delay=0) if row == WITHOUT_DELAY else where
    cell = make_cell(scale, protocol, there, row, column, ROWS[row])
    if row in AT_THE_CEILINGS_RATE:
        ceiling = make_cell(scale, protocol, where, CEILING, column, ROWS[CEILING])
        cell = dataclasses.replace(cell, tune_on=ceiling.tune_on, refine_on=ceiling.refine_on)
    tune_on = tuple(at_length(trial, epochs) for trial in cell.tune_on)
    refine_on = None if cell.refine_on is None else at_length(cell.refine_on, epochs)
    # All of it is beyond the paper, so that nothing stands back.
    settings = at_length(cell.settings, epochs)
    return dataclasses.replace(cell, settings=settings, tune_on=tune_on, refine_on=refine_on, extra=False)


def judge_recommended(section: Section) -> Verdict:
    """Say whether the recommended rule stays within its limits in every column, and at what price."""
    ours = losses(section, OURS)
    if not ours:
        return Verdict(OPEN, f"Not run: both {CEILING} and {OURS} are needed.")
    word = HOLDS if all(loss.within for loss in ours) else FAILS
    worst = max(ours, key=lambda loss: loss.points - loss.limit)
    missing = len(section.columns) - len(ours)
    rest = f" ({missing} more not run)" if missing else ""
    within = sum(loss.within for loss in ours)
    return Verdict(
        word,
        f"{word[:1].upper()}{word[1:]}: {OURS} loses no more to the synchronous run than it may in "
        f"{within} of {counted(len(ours), 'case', 'cases')}{rest}{_unclear(ours)}. "
        f"Farthest from its limit is {worst}.{_bytes(section)}",
        f"{within} of {len(ours)}" + (f", {missing} not run" if missing else ""),
    )


def _unclear(ours: list[Loss]) -> str:
    """Say in how many cases further seeds may change that."""
    unclear = sum(loss.unclear for loss in ours)
    if not unclear:
        return ""
    return f"; {counted(unclear, 'is', 'are')} nearer to the limit than the standard error, or of one seed"


def _bytes(section: Section) -> str:
    """Compare what an agent sends in a step with D-ASGD's."""
    for column in section.columns:
        both = [section.outcomes.get((row, column)) for row in (OURS, BASELINE)]
        sent = [each.records[0]["bytes_sent"] / each.records[0]["iterations"] for each in both if each is not None]
        if len(sent) == len(both):
            return f" {OURS} sends {sent[0] / sent[1]:.2f} times the bytes of {BASELINE}."
    return ""


def recommended_table(section: Section) -> list[str]:
    """Return what ours loses and what the nearest rival does: a line for each model, length and data."""
    ours = {loss.column: loss for loss in losses(section, OURS)}
    rivals: dict[str, list[tuple[Loss, str]]] = {}
    for row in section.rows:
        for loss in [] if row in (CEILING, *AT_THE_CEILINGS_RATE) else losses(section, row):
            rivals.setdefault(loss.column, []).append((loss, row))
    heads = [f"tau {delay}, at most {limit:g} | nearest rival" for delay, limit in LIMITS.items()]
    lines = [f"| {OURS} loses | {' | '.join(heads)} |", f"|---|{'---:|---|' * len(LIMITS)}"]
    for place in dict.fromkeys(map(place_of, section.columns)):
        cells = []
        for column in (f"{place}, tau {delay}" for delay in LIMITS):
            alone = "no synchronous run" if (OURS, column) in section.outcomes else "not run"
            cells.append(_with_seeds(ours[column]) if column in ours else alone)
            near = min(rivals.get(column, []), key=lambda each: each[0].points, default=None)
            cells.append("-" if near is None else f"{near[1]} {_with_seeds(near[0])}")
        lines.append(f"| {place} | {' | '.join(cells)} |")
    return lines


def _with_seeds(loss: Loss) -> str:
    return f"{loss.text} ({loss.seeds})"


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
