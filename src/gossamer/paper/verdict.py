"""Whether what the paper says holds in the stored runs: computed, from the order and the size of differences.

A difference is clear when it is larger than one standard deviation of itself; a place with one seed is given the usual
one. Where the paper's own difference is not clear, ours must only not be clearly the other way round.
"""

import math
import statistics
from dataclasses import dataclass

from gossamer.paper.cells import CEILING
from gossamer.paper.findings import Claim, Section
from gossamer.paper.outcomes import USUAL_SPREAD, Outcome
from gossamer.paper.paper_tables import CHOICE_SHARES, EXTRA_TIME

HOLDS, ORDER, FAILS, OPEN = "holds", "holds in order but not in size", "does not hold", "not run"
NEAR_SHARE, NEAR_TIME = 0.05, 0.05
PRINTED = "literal, model"
PAPERS_SCALE = "full"  # others are shorter, and end lower for that


@dataclass(frozen=True)
class Judged:
    """A claim beside what was measured: the differences in points, and one standard deviation of each."""

    claim: Claim
    ours: float
    spread: float
    paper: float | None
    paper_spread: float

    @property
    def word(self) -> str:
        """One of the verdicts."""
        unclear = self.paper is not None and self.paper <= self.paper_spread
        if self.ours < -self.spread if unclear else self.ours <= self.spread:
            return FAILS
        tolerance = math.hypot(self.spread, self.paper_spread)
        return ORDER if self.paper is not None and abs(self.ours - self.paper) > tolerance else HOLDS

    def __str__(self) -> str:
        larger, smaller = self.claim.larger, self.claim.smaller
        where = f"{larger[0]} over {smaller[0]} ({larger[1]})"
        if larger[0] == smaller[0]:
            where = f"{larger[0]}, {larger[1]} over {smaller[1]}"
        printed = "" if self.paper is None else f", {with_spread(self.paper, self.paper_spread)} in the paper"
        return f"{where} is {with_spread(self.ours, self.spread)}{printed}"


@dataclass(frozen=True)
class Verdict:
    """One of the words, the sentence that says why, its numbers in short, and what is to be known beside it."""

    word: str
    sentence: str
    numbers: str = ""
    note: str = ""


def judge_claims(section: Section) -> Verdict:
    """Compare the orders that the paper prints with ours."""
    judged = judged_claims(section)
    if not judged:
        return Verdict(OPEN, "Not run: no two places that the paper compares are there.")
    counts = {word: sum(found.word == word for found in judged) for word in (HOLDS, ORDER, FAILS)}
    word = FAILS if counts[FAILS] else ORDER if counts[ORDER] else HOLDS
    told = [f"of {counted(len(judged), 'comparison', 'comparisons')} {counted(counts[HOLDS], 'holds', 'hold')}"]
    if counts[ORDER]:
        told.append(f"{counted(counts[ORDER], 'holds', 'hold')} in order but not in size")
    if counts[FAILS]:
        told.append(f"{counted(counts[FAILS], 'does', 'do')} not")
    missing = _possible(section) - len(judged)
    rest = f" ({missing} more not run)" if missing else ""
    example = max(
        (found for found in judged if found.word == word), key=lambda found: abs(found.ours - (found.paper or 0))
    )
    note, seeds = _ceiling_note(section), seeds_note(section)
    assumed = f" Their spread is taken as {USUAL_SPREAD:g} points." if seeds else ""
    sentence = f"{_capital(word)}: {', '.join(told)}{rest}; {example}.{seeds}{assumed}{f' {note}' if note else ''}"
    numbers = f"{counts[HOLDS]} + {counts[ORDER]} of {len(judged)}" + (f", {missing} not run" if missing else "")
    return Verdict(word, sentence, numbers, note)


def judged_claims(section: Section) -> list[Judged]:
    """Return the claims of which both places were run."""
    return [found for claim in section.recipe.claims if (found := _judged(section, claim)) is not None]


def _possible(section: Section) -> int:
    places = {(cell.row, cell.column) for cell in section.cells}
    return sum({claim.larger, claim.smaller} <= places for claim in section.recipe.claims)


def _judged(section: Section, claim: Claim) -> Judged | None:
    larger, smaller = section.outcomes.get(claim.larger), section.outcomes.get(claim.smaller)
    if larger is None or smaller is None:
        return None
    first, second = section.recipe.reported.get(claim.larger), section.recipe.reported.get(claim.smaller)
    known = first is not None and second is not None
    return Judged(
        claim,
        ours=larger.mean - smaller.mean,
        spread=math.hypot(larger.spread, smaller.spread),
        paper=first.mean - second.mean if known and first and second else None,
        paper_spread=math.hypot(first.std or 0.0, second.std or 0.0) if known and first and second else 0.0,
    )


def seeds_note(section: Section) -> str:
    """Warn where a difference is one of single runs."""
    seeds = [len(outcome.records) for outcome in section.outcomes.values()]
    if min(seeds) > 1:
        return ""
    return f" {'All' if max(seeds) == 1 else 'Some'} have one seed only."


def _ceiling_note(section: Section) -> str:
    """Say where even the synchronous run ends below the paper's best: then the protocol falls short, not a rule."""
    if section.scale.name != PAPERS_SCALE:
        return ""
    short = []
    for (row, column), outcome in section.outcomes.items():
        printed = [number.mean for place, number in section.recipe.reported.items() if place[1] == column]
        if row == CEILING and printed and outcome.mean + (outcome.std or 0.0) < max(printed):
            short.append((column, outcome.mean, max(printed)))
    if not short:
        return ""
    column, ours, paper = max(short, key=lambda each: each[2] - each[1])
    return (
        f"Even without delay this protocol ends at {ours:.1f} % ({column}), where the paper has {paper:.1f} % with it."
    )


def judge_choice(section: Section) -> Verdict:
    """Compare the share of predicting at the end with 0.625 or 0.375, whichever is nearer."""
    shares = {
        row: share for (row, _), outcome in section.outcomes.items() if (share := last_share(outcome)) is not None
    }
    if PRINTED not in shares:
        return Verdict(OPEN, "Not run: the printed criterion is not there.")
    near = [row for row, share in shares.items() if min(abs(share - paper) for paper in CHOICE_SHARES) <= NEAR_SHARE]
    word = HOLDS if PRINTED in near else FAILS
    named = "; ".join(f"'{row}'" for row in near)
    others = f"within {NEAR_SHARE:g} of either: {named}" if near else "none comes near either"
    paper = " or ".join(map(str, CHOICE_SHARES))
    return Verdict(
        word,
        f"{_capital(word)}: with the printed criterion agents predict in {shares[PRINTED]:.3f} of the last steps, the "
        f"paper has {paper}; of {counted(len(shares), 'reading', 'readings')} run, {others}.",
    )


def last_share(outcome: Outcome) -> float | None:
    """Return the share of predicting steps in the last interval, the mean over clusters."""
    _, shares = outcome.predict_shares()
    known = [share for share in shares[-1] if share is not None] if shares else []
    return statistics.fmean(known) if known else None


def judge_time(section: Section) -> Verdict:
    """Compare what PC-ASGD costs more than D-ASGD with the paper's 17 %."""
    times = {row: outcome for (row, _), outcome in section.outcomes.items()}
    if not {"PC-ASGD", "D-ASGD"} <= set(times):
        return Verdict(OPEN, "Not run: both PC-ASGD and D-ASGD are needed.")
    if len(section.environments()) > 1:
        return Verdict(OPEN, "Not comparable: the times were taken on different devices.")
    more = times["PC-ASGD"].mean / times["D-ASGD"].mean - 1
    word = HOLDS if abs(more - EXTRA_TIME) <= NEAR_TIME else ORDER if more > 0 else FAILS
    return Verdict(
        word,
        f"{_capital(word)}: an epoch of PC-ASGD takes {100 * more:+.0f} % against D-ASGD, {100 * EXTRA_TIME:+.0f} % in "
        "the paper.",
    )


def counted(count: int, one: str, many: str) -> str:
    """Return a number with what it counts, or what those do."""
    return f"{count} {one if count == 1 else many}"


def with_spread(points: float, spread: float) -> str:
    """Return a difference with its standard deviation, if it has one."""
    return f"{points:+.1f}" + (f" ± {spread:.1f}" if spread else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
