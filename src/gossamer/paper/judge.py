"""The verdict on a result, whichever its kind, or what it shows where there is nothing to judge."""

from collections.abc import Callable

from gossamer.paper.atlas import atlas_sentence
from gossamer.paper.findings import Recipe, Section
from gossamer.paper.recommended import judge_recommended
from gossamer.paper.verdict import Verdict, counted, judge_choice, judge_claims, judge_time, seeds_note

_JUDGES: dict[str, Callable[[Section], Verdict]] = {
    "choices": judge_choice,
    "times": judge_time,
    "target": judge_recommended,
}


def has_verdict(recipe: Recipe) -> bool:
    """Whether there is anything to judge: what the paper says, or what was aimed at."""
    return bool(recipe.claims) or recipe.kind in _JUDGES


def judge(section: Section) -> Verdict:
    """Return what the runs of one scale and protocol say about a result."""
    return _JUDGES.get(section.recipe.kind, judge_claims)(section)


def sentence_of(section: Section) -> str:
    """Return what the page says first, and the summary where there is a verdict."""
    if has_verdict(section.recipe):
        return judge(section).sentence + _rates_note(section)
    return atlas_sentence(section) + notes_on(section)


def notes_on(section: Section) -> str:
    """Warn where there is one seed only, and where a rule may do better still."""
    return seeds_note(section) + _rates_note(section)


def _rates_note(section: Section) -> str:
    open_ones = {outcome.cell.key for outcome in section.outcomes.values() if outcome.cell.tentative}
    if not open_ones:
        return ""
    places = counted(len(open_ones), "place", "places")
    return f" In {places} the rate is still looked for (on the page with a question mark)."
