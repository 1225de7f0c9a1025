"""What was run of a result, and whether it agrees with the paper: computed from the order and the size of differences.

A difference is clear when it is larger than its own standard deviation; a cell with one seed is given the usual one.
Where the paper's own difference is not clear, ours fails only if it is clearly the other way round.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.paper.cells import CEILING, Cell, Scale
from gossamer.paper.store import USUAL_SPREAD, Outcome, Record

RowColumn = tuple[str, str]  # row and column of a table
WORDS = REPRODUCED, ORDER_ONLY, FAILED, NOT_RUN = "reproduced", "order only", "failed", "not run"
PAPERS_SCALE = "full"  # runs at other scales are shorter, and end lower for that


@dataclass(frozen=True)
class Reported:
    """A number that the paper prints: a mean, and the standard deviation where there is one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Claim:
    """The paper says that one cell has a larger accuracy than another."""

    larger: RowColumn
    smaller: RowColumn


@dataclass(frozen=True)
class Section:
    """One scale and protocol of a result: all its cells, and the outcomes of those that were run.

    `stale` has those that were only run with a former revision of their rule: pages show them, no comparison has them.
    """

    scale: Scale
    protocol: str
    cells: list[Cell]
    outcomes: dict[RowColumn, Outcome]
    stale: dict[RowColumn, Outcome] = field(default_factory=dict)
    elsewhere: dict[RowColumn, tuple[str, Outcome]] = field(default_factory=dict)  # runs of other scales

    @property
    def about(self) -> str:
        """What is trained, and for how long: in a few words where all cells are alike."""
        kinds = {(cell.settings.model, cell.settings.task, cell.settings.epochs) for cell in self.cells}
        if len(kinds) > 1:
            return self.scale.about
        ((model, task, epochs),) = kinds
        place_of = next(name for name, stands_in in self.scale.models.items() if stands_in == model)
        return f"{model} in place of {place_of}, {task}, {epochs} epochs"

    @property
    def rows(self) -> list[str]:
        """In the order of the cells."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """In the order of their numbers, or else of the cells."""
        return sorted(self.numbers, key=lambda column: self.numbers[column])

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The delay or number of agents of each column, where columns have one."""
        return {cell.column: cell.number for cell in self.cells}

    @functools.cached_property
    def places(self) -> set[RowColumn]:
        """All places that have a cell."""
        return {(cell.row, cell.column) for cell in self.cells}

    def has_runs(self, *, row: str | None = None, column: str | None = None) -> bool:
        """Whether anything was run in this row or column."""
        return any(row in (None, place[0]) and column in (None, place[1]) for place in self.outcomes)

    def lost(self, row: str, column: str, ceiling: str = CEILING) -> list[float]:
        """Return the points that a row is below the synchronous run, seed by seed."""
        ours, best = self.outcomes.get((row, column)), self.outcomes.get((ceiling, column))
        return [] if ours is None or best is None else best.above(ours)

    def environments(self) -> list[str]:
        """Return the devices and versions of the runs."""
        runs = [record for outcome in self.outcomes.values() for record in outcome.records]
        return sorted({_environment(record) for record in runs})

    def searching(self) -> set[str]:
        """Return the experiments whose learning rate is not final."""
        return {outcome.cell.key for outcome in self.outcomes.values() if outcome.cell.tentative}

    def caveats(self) -> list[str]:
        """Warn of single seeds, of learning rates that are not final, and of stale rows."""
        seeds = [len(outcome.records) for outcome in self.outcomes.values()]
        single = [] if min(seeds) > 1 else [f"{'All' if max(seeds) == 1 else 'Some'} cells have one seed."]
        return [*single, *unfinished_searches(self.searching()), *stale_note(self.stale_rows)]

    @property
    def stale_rows(self) -> list[str]:
        """The rows that have stale cells, in the order of the rows."""
        there = {row for row, _ in self.stale}
        return [row for row in self.rows if row in there]


def unfinished_searches(keys: Iterable[str]) -> list[str]:
    """Return a sentence on searches that have not ended, if there are any."""
    count = len(set(keys))
    return [f"The learning-rate search is unfinished for {counted(count, 'cell')} (marked `?`)."] if count else []


def stale_note(rows: Sequence[str]) -> list[str]:
    """Return a sentence on rules that have changed since they were run, if there are any."""
    names = ", ".join(rows)
    return [f"Changed since they were run (stale, in no comparison and no picture): {names}."] if rows else []


def _environment(record: Record) -> str:
    versions = [f"{name} {version}" for name, version in record.get("versions", {}).items()]
    return ", ".join([f"{record.get('device')}, {record.get('precision')}", *versions])


def leading(sections: Sequence[Section]) -> list[Section]:
    """Return the sections of the scale with the most cells that were run, of equal ones the larger scale.

    A few runs at a large scale do not outweigh a smaller one where everything was run.
    """
    counts: Counter[str] = Counter()
    for section in sections:
        counts[section.scale.name] += len(section.outcomes)
    most = max(counts, key=lambda name: counts[name], default=None)  # of equal ones the first, which is the larger
    return [section for section in sections if section.scale.name == most]


# Verdicts.


@dataclass(frozen=True)
class CheckedClaim:
    """A claim beside what was measured: the differences in points, and one standard deviation of each."""

    claim: Claim
    keys: tuple[str, str]  # of the two experiments
    ours: float
    spread: float
    paper: float | None = None
    paper_spread: float = 0.0

    @property
    def word(self) -> str:
        """One of the four words."""
        unclear = self.paper is not None and self.paper <= self.paper_spread
        if self.ours < -self.spread if unclear else self.ours <= self.spread:
            return FAILED
        tolerance = math.hypot(self.spread, self.paper_spread)
        return ORDER_ONLY if self.paper is not None and abs(self.ours - self.paper) > tolerance else REPRODUCED

    @property
    def gap(self) -> float:
        """How far ours is from the paper's, or from 0 where it prints no number."""
        return abs(self.ours - (self.paper or 0))

    def __str__(self) -> str:
        larger, smaller = self.claim.larger, self.claim.smaller
        where = f"{larger[0]} over {smaller[0]} ({larger[1]})"
        if larger[0] == smaller[0]:
            where = f"{larger[0]}, {larger[1]} over {smaller[1]}"
        printed = "" if self.paper is None else f"; the paper has {_with_spread(self.paper, self.paper_spread)}"
        return f"{where} is {_with_spread(self.ours, self.spread)} points{printed}"


@dataclass(frozen=True)
class Verdict:
    """What the runs say in a word and in a sentence, and the comparisons behind it by word."""

    word: str
    sentence: str
    counts: Mapping[str, int] = field(default_factory=dict)


def single_verdict(word: str, sentence: str) -> Verdict:
    """Return the verdict on a result that is one comparison."""
    return Verdict(word, f"{word.capitalize()}: {sentence}", {word: 1})


def check_claims(
    section: Section, claims: Iterable[Claim], reported: Mapping[RowColumn, Reported]
) -> list[CheckedClaim]:
    """Return the claims whose cells were both run."""
    checked = []
    for claim in claims:
        larger, smaller = section.outcomes.get(claim.larger), section.outcomes.get(claim.smaller)
        if larger is None or smaller is None:
            continue
        keys, ours = (larger.cell.key, smaller.cell.key), larger.mean - smaller.mean
        spread = math.hypot(larger.spread, smaller.spread)
        first, second = reported.get(claim.larger), reported.get(claim.smaller)
        if first is None or second is None:
            checked.append(CheckedClaim(claim, keys, ours, spread))
        else:
            paper_spread = math.hypot(first.std or 0.0, second.std or 0.0)
            checked.append(CheckedClaim(claim, keys, ours, spread, first.mean - second.mean, paper_spread))
    return checked


def verdict_on_claims(section: Section, claims: Sequence[Claim], reported: Mapping[RowColumn, Reported]) -> Verdict:
    """Compare the orders that the paper prints with ours."""
    possible = [claim for claim in claims if {claim.larger, claim.smaller} <= section.places]
    checked = check_claims(section, possible, reported)
    counts = {word: sum(found.word == word for found in checked) for word in (REPRODUCED, ORDER_ONLY, FAILED)}
    counts[NOT_RUN] = len(possible) - len(checked)
    if not checked:
        return Verdict(NOT_RUN, "Not run: no two cells that the paper compares have runs.", counts)
    word = next(word for word in (FAILED, ORDER_ONLY, REPRODUCED) if counts[word])
    numbers = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word != NOT_RUN)
    example = max((found for found in checked if found.word == word), key=lambda found: found.gap)
    sentences = [f"{counted(len(possible), 'comparison')}: {numbers}. Largest gap: {example}."]
    if any(outcome.std is None for outcome in section.outcomes.values()):
        sentences.append(f"A single seed is given the usual standard deviation of {USUAL_SPREAD:g} points.")
    return Verdict(word, " ".join([*sentences, *baseline_note(section, reported)]), counts)


def baseline_note(section: Section, reported: Mapping[RowColumn, Reported]) -> list[str]:
    """Say where even the run without delay ends below the paper's best: the protocol falls short there, not a rule."""
    short = []
    for (row, column), outcome in section.outcomes.items():
        best = max((number.mean for place, number in reported.items() if place[1] == column), default=0.0)
        if row == CEILING and outcome.mean + (outcome.std or 0.0) < best:
            short.append((best - outcome.mean, column, outcome.mean, best))
    if section.scale.name != PAPERS_SCALE or not short:
        return []
    _, column, ours, paper = max(short, key=lambda each: each[0])
    return [f"Our delay-free baseline reaches {ours:.1f} % ({column}); the paper reports {paper:.1f} % under delay."]


def counted(count: int, one: str) -> str:
    """Return a number with what it counts."""
    return f"{count} {one}" + ("" if count == 1 else "s")


def _with_spread(points: float, spread: float) -> str:
    return f"{points:+.1f}" + (f" ± {spread:.1f}" if spread else "")
