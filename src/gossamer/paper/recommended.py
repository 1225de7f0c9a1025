"""Beyond the paper: the algorithm that this library recommends under delay, beside no delay at all and tuned rivals.

The recommended rule takes the learning rate that was found for the synchronous run. So the claim is the strong one: a
run that was tuned without delay can move to late links as it is.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.paper.cells import CEILING, DEEP, FIRST_MODEL, PARTITIONS, Cell, Conditions, Scale, at_length, make_cell
from gossamer.paper.findings import NOT_RUN, Section, Verdict, counted
from gossamer.paper.paper_result import BeyondThePaper, LineStyle, add_legend, markdown_table, style_of
from gossamer.report.style import DPI, GREY

OURS, MATCHED, UNDAMPED, BASELINE = "SDM-ASGD", "DM-ASGD", "DM-ASGD, undamped", "D-ASGD"
WITHOUT_DELAY = "SDM-ASGD, no delay"  # shows what its damping does by itself
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
    "PC-ASGD": "pc-asgd/theta=auto",
    "PC-ASGD-PV": "pc-asgd/theta=pv",
    "PC-ASGD, theta 0.3": "pc-asgd/theta=0.3",
    "DASGD-IS": "dasgd-is",
}
AT_THE_CEILINGS_RATE = (OURS, MATCHED, UNDAMPED, WITHOUT_DELAY)
FEW = (CEILING, OURS)  # of deep nets
SOME = (*FEW, MATCHED, WITHOUT_DELAY)  # of long runs
AT_SMOKE = (*SOME, "DC-S3GD", BASELINE)  # takes a minute
LIMITS = {20: 0.3, 60: 0.5}  # points that the rule may lose, by delay
MET, MISSED = "target met", "target missed"
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100)
NORM_NOTE = (
    "With skewed labels BatchNorm's statistics are computed again before each evaluation (`norm_stats=recalibrated`), "
    "from an agent's own data, as an agent has no other. So all rules lose some points to the averaged model, whose "
    "statistics are of all data (`accuracy_average_model` of a run), and seeds differ by the partition. "
    "Rates are also searched with skewed labels, from the rate of equal data on, as some rules fail there. A rate with "
    "a question mark is still that of equal data."
)


@dataclass(frozen=True)
class Loss:
    """The points that a rule loses to the synchronous run in one column: mean over seeds, seed by seed."""

    column: str
    points: float
    spread: float | None
    seeds: int

    @property
    def limit(self) -> float:
        """The points that may be lost at this delay."""
        return LIMITS[int(self.column.rpartition("tau ")[2])]

    @property
    def within(self) -> bool:
        """Whether the loss is within its limit."""
        return self.points <= self.limit

    @property
    def unclear(self) -> bool:
        """Whether it is nearer to its limit than the standard error of the mean, which one seed does not have."""
        return self.spread is None or abs(self.points - self.limit) < self.spread / math.sqrt(self.seeds)

    @property
    def text(self) -> str:
        """The points with their standard deviation, if there is one."""
        return f"{self.points:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")

    @property
    def text_with_seeds(self) -> str:
        """The text with the number of seeds."""
        return f"{self.text} ({self.seeds})"


def losses(section: Section, row: str) -> dict[str, Loss]:
    """Return what a row loses in each column that has the synchronous run too, over the seeds that both have."""
    found = {}
    for column in section.columns:
        if pairs := section.lost(row, column):
            spread = statistics.stdev(pairs) if len(pairs) > 1 else None
            found[column] = Loss(column, statistics.fmean(pairs), spread, len(pairs))
    return found


def losses_by_row(section: Section) -> dict[str, dict[str, Loss]]:
    """Return them by row and column, of the rows that have any."""
    found = {row: losses(section, row) for row in section.rows if row != CEILING}
    return {row: of_row for row, of_row in found.items() if of_row}


@dataclass(frozen=True)
class RecommendedRule(BeyondThePaper):
    """What the recommended rule loses to a run without delay."""

    def verdict(self, section: Section) -> Verdict:
        """Say whether the rule stays within its limits in every column, and what it sends."""
        ours = list(losses(section, OURS).values())
        if not ours:
            return Verdict(NOT_RUN, f"Not run: {CEILING} and {OURS} are both needed.")
        within, unclear = sum(loss.within for loss in ours), sum(loss.unclear for loss in ours)
        missing, worst = len(section.columns) - len(ours), max(ours, key=lambda loss: loss.points - loss.limit)
        word = MET if within == len(ours) else MISSED
        sentences = [
            f"{word.capitalize()}: {OURS} stays within its limit in {within} of {counted(len(ours), 'case')}"
            f"{f'; {missing} not run' if missing else ''}.",
            f"The worst case loses {worst.text} points where {worst.limit:g} are allowed ({worst.column}).",
        ]
        if unclear:
            sentences.append(
                f"{counted(unclear, 'case')} may change with more seeds (one seed, or within one standard error)."
            )
        return Verdict(word, " ".join([*sentences, *_bytes(section)]))

    def summary_table(self, section: Section) -> list[str]:
        """Return what ours loses and what the nearest rival does: a line for each model, length and partition."""
        found = losses_by_row(section)
        heads = [
            head for delay, limit in LIMITS.items() for head in (f"tau {delay}, at most {limit:g}", "nearest rival")
        ]
        rows = []
        for place in dict.fromkeys(column.rpartition(", ")[0] for column in section.columns):
            cells = [place]
            for column in (f"{place}, tau {delay}" for delay in LIMITS):
                here = {row: each[column] for row, each in found.items() if column in each}
                alone = "no synchronous run" if (OURS, column) in section.outcomes else "not run"
                rivals = [row for row in here if row not in AT_THE_CEILINGS_RATE]
                nearest = min(rivals, key=lambda row: here[row].points, default=None)
                cells.append(here[OURS].text_with_seeds if OURS in here else alone)
                cells.append("-" if nearest is None else f"{nearest} {here[nearest].text_with_seeds}")
            rows.append(cells)
        return markdown_table([f"{OURS} loses", *heads], rows, "---|")

    def tables(self, section: Section) -> list[str]:
        """Return accuracies, then losses."""
        return [*super().tables(section), *losses_table(section), ""]

    def draw(self, sections: Sequence[Section]) -> Figure:
        """Draw a line for each case, a mark for each rule, and the limit."""
        found = losses_by_row(sections[0])
        columns = [name for name in reversed(sections[0].columns) if any(name in of_row for of_row in found.values())]
        figure = Figure(figsize=(8.4, 2.2 + 0.42 * len(columns)), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        styles: dict[str, LineStyle] = {
            row: {**style_of(row, list(found)), "linestyle": "none", "markersize": 6} for row in found
        }
        for row in reversed(found):  # ours, which is the first, above the others
            for at, column in enumerate(columns):
                if (loss := found[row].get(column)) is not None:
                    axes.errorbar(loss.points, at, xerr=loss.spread, capsize=2, **styles[row])
                    axes.plot([loss.limit] * 2, [at - 0.3, at + 0.3], color=GREY, linewidth=2)
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(columns)), columns)
        _spread_out(axes)
        axes.set_xlabel("points lost to the synchronous run, seed by seed")
        limit = {"linestyle": "none", "marker": "|", "markersize": 12, "color": GREY}
        add_legend(figure, {**styles, "as much as may be lost": limit}, columns=3)
        return figure


def losses_table(section: Section) -> list[str]:
    """Return a table with a line for each case; spreads are those of the differences, without what seeds share."""
    found = losses_by_row(section)
    if not found:
        return []
    rows = []
    for column in section.columns:
        here = [of_row[column] for of_row in found.values() if column in of_row]
        if here:
            empty = {row: "not run" if (row, column) in section.places else "-" for row in found}
            cells = [of_row[column].text if column in of_row else empty[row] for row, of_row in found.items()]
            rows.append([column, f"{here[0].limit:g}", *cells])
    about = f"Points lost to the synchronous run, seed by seed: mean ± standard deviation over seeds; {CEILING} is 0."
    return [about, "", *markdown_table(["", "at most", *found], rows)]


def _bytes(section: Section) -> list[str]:
    """Compare what an agent sends in a step with D-ASGD's."""
    for column in section.columns:
        both = [section.outcomes.get((row, column)) for row in (OURS, BASELINE)]
        sent = [each.records[0]["bytes_sent"] / each.records[0]["iterations"] for each in both if each is not None]
        if len(sent) == len(both):
            return [f"{OURS} sends {sent[0] / sent[1]:.2f} times the bytes of {BASELINE}."]
    return []


def _spread_out(axes: Axes) -> None:
    """Give tenths of a point as much room as tens; the axis is linear between -1 and 1, where the limits are."""
    axes.set_xscale("symlog", linthresh=1)
    axes.margins(x=0.06)
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()


def _cells(scale: Scale, protocol: str) -> list[Cell]:
    """Return all rows for the scale's own model at its own length, and fewer where runs are longer and nets deeper.

    A shorter run needs a larger rate, and gains more from every agent's gradient at once.
    """
    places = [(FIRST_MODEL, scale.epochs, AT_SMOKE if scale.name == "smoke" else tuple(ROWS))]
    if scale.long_epochs:
        places += [(FIRST_MODEL, scale.long_epochs, SOME), (DEEP, scale.long_epochs, FEW)]
    return [
        _cell(scale, protocol, Conditions(model=model, delay=delay, partition=partition), epochs, row)
        for model, epochs, rows in places
        for partition in PARTITIONS
        for delay in LIMITS
        for row in rows
    ]


def _cell(scale: Scale, protocol: str, where: Conditions, epochs: int, row: str) -> Cell:
    """Return a cell whose rate is searched at its own length."""
    column = f"{scale.models[where.model]}, {epochs} epochs, {where.partition}, tau {where.delay}"
    there = dataclasses.replace(where, delay=0) if row == WITHOUT_DELAY else where
    cell = make_cell(scale, protocol, there, row, column, ROWS[row])
    if row in AT_THE_CEILINGS_RATE:
        ceiling = make_cell(scale, protocol, where, CEILING, column, ROWS[CEILING])
        cell = dataclasses.replace(cell, tune_on=ceiling.tune_on, refine_on=ceiling.refine_on)
    tune_on = tuple(at_length(trial, epochs) for trial in cell.tune_on)
    refine_on = None if cell.refine_on is None else at_length(cell.refine_on, epochs)
    # All rows are beyond the paper, so none runs after the others.
    settings = at_length(cell.settings, epochs)
    return dataclasses.replace(cell, settings=settings, tune_on=tune_on, refine_on=refine_on, extra=False)


RECOMMENDED = RecommendedRule(
    "recommended",
    "beyond the paper: how near the recommended algorithm comes to no delay at all, beside tuned rivals",
    cells=_cells,
    caption="Points lost to the synchronous run, seed by seed (number of seeds): the recommended rule at the "
    "synchronous run's rate, and the rival that loses least at its own.",
    reading="The mean of all agents moves as if nothing were late: matched differences add up to zero over the agents, "
    "and a difference of two states of the same age has no drift. What delay leaves is noise: an agent hears of "
    "other clusters too late for curved directions, and has there the noise of its own cluster. SDM-ASGD damps this "
    "noise (docs/algorithms/sdm-asgd.md). A run without delay gains from the damping too; the row without delay shows "
    "how much. With skewed labels losses differ between seeds by more than the limits, so three seeds cannot decide "
    f"whether a limit is kept. {NORM_NOTE}",
)
