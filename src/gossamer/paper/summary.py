"""OUT/README.md: what is confirmed, what is not and what is better, with one picture, from the stored runs alone."""

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.paper.atlas import nearest_table
from gossamer.paper.cells import CEILING
from gossamer.paper.findings import Section, leading, sections_of
from gossamer.paper.judge import has_verdict, judge, notes_on, sentence_of
from gossamer.paper.paper_tables import FIRST
from gossamer.paper.recipes import RECIPES
from gossamer.paper.recommended import recommended_table
from gossamer.paper.statements import LEGEND, find_statements, to_table
from gossamer.paper.store import Store
from gossamer.paper.toy_page import toy_counts
from gossamer.paper.verdict import FAILS, HOLDS, OPEN, ORDER, Verdict, counted
from gossamer.state.checkpoint import write_text

WIDTH = 120
BASELINE, OURS = "D-ASGD", "PC-ASGD"
PICTURE = "summary.png"
RANKED = ("table", "delays", "sizes")  # the curves are the table's
SHARES = {HOLDS: 1.0, ORDER: 1.0, FAILS: 0.0, OPEN: math.nan}  # of a result that is one statement
HEADINGS: dict[str, Callable[[float], bool]] = {  # by the share of comparisons that have the paper's order
    "What is confirmed, at least in order": lambda share: share == 1,
    "What holds in part": lambda share: 0 < share < 1,
    "What does not hold": lambda share: share == 0,
}
BEYOND_KINDS: dict[str, tuple[str, Callable[[Section], list[str]]]] = {  # what their tables show
    "atlas": (
        "Who comes nearest to a run that waits for everyone, of those that do not wait. Where there is one seed, a "
        "point more or less says little.",
        nearest_table,
    ),
    "target": (
        "Points lost to the synchronous run, seed by seed (number of seeds), by the recommended rule at the "
        "synchronous run's rate and by the rival that loses least at its own.",
        recommended_table,
    ),
}
BEYOND = "What is found and recommended, beyond the paper"


def write_summary(store: Store, folder: Path) -> list[Path]:
    """Write the page and its picture, and return their paths."""
    sections = {name: sections_of(recipe, store) for name, recipe in RECIPES.items()}
    drawn = _draw([*sections["table-2"], *sections["table-3"]], folder)
    page = folder / "README.md"
    write_text(page, to_summary(sections, picture=bool(drawn), more=_further_pages(folder)))
    return [page, *drawn]


def _further_pages(folder: Path) -> list[str]:
    """Return links to the results without such runs whose pages are there, with what they say in short."""
    named = [name for name, recipe in RECIPES.items() if recipe.kind in ("document", "toy")]
    counts = toy_counts(folder)
    return [
        f"[{name}]({name}.md)" + (f" ({counts})" if RECIPES[name].kind == "toy" and counts else "")
        for name in named
        if (folder / f"{name}.md").is_file()
    ]


def to_summary(results: dict[str, list[Section]], *, picture: bool, more: Sequence[str] = ()) -> str:
    """Return the page as Markdown."""
    leads = [lead for sections in results.values() for lead in _leads(sections)]
    lines = ["# The paper's results, repeated", "", *_opening(results), "", *_overview(results), ""]
    lines += _notes(results)
    lines += [f"![points above {BASELINE}]({PICTURE})", ""] if picture else []
    lines += _findings(leads)
    beyond = [line for lead in leads if lead.recipe.kind in BEYOND_KINDS for line in _beyond(lead)]
    lines += [f"## {BEYOND}", "", *beyond] if beyond else []
    better = _better(leads)
    if better:
        lines += [f"## What is better than {OURS}", "", "What the paper does not have, by more than 1 std:", ""]
        lines += [*better, ""]
    lines += [_wrapped(f"See also: {', '.join(more)}.", indent=""), ""] if more else []
    left = [
        name for name, sections in results.items() if not sections and RECIPES[name].kind not in ("document", "toy")
    ]
    lines += [f"Not run yet: {', '.join(left)}.", ""] if left else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _leads(sections: list[Section]) -> list[Section]:
    """Return for each protocol the section that says most."""
    protocols = dict.fromkeys(section.protocol for section in sections)
    return [leading([each for each in sections if each.protocol == protocol])[0] for protocol in protocols]


def _link(section: Section) -> str:
    name = section.recipe.name
    return f"[{name}]({name}.md), scale {section.scale.name}, protocol {section.protocol}"


def _beyond(section: Section) -> list[str]:
    """Return what goes beyond the paper: what it is, a table, and what is still open."""
    about, table = BEYOND_KINDS[section.recipe.kind]
    told, notes = ([sentence_of(section)], []) if has_verdict(section.recipe) else ([], [notes_on(section).strip()])
    missing = [row for row in section.rows if all(place[0] != row for place in section.outcomes)]
    notes += [f"Not run: {', '.join(missing)}."] if missing else []
    lines = [_wrapped(" ".join([f"{_link(section)}.", *told, about]), indent=""), "", *table(section), ""]
    return [*lines, _wrapped(" ".join(notes).strip(), indent=""), ""] if any(notes) else lines


def _findings(leads: list[Section]) -> list[str]:
    """Return what the paper says, a statement or a result at a time, under the heading that it deserves."""
    claiming = [lead for lead in leads if lead.recipe.claims]
    protocols = list(dict.fromkeys(lead.protocol for lead in claiming))
    statements = find_statements(claiming)
    single = [lead for lead in leads if not lead.recipe.claims and lead.recipe.kind not in BEYOND_KINDS]
    lines, legend = [], [_wrapped(LEGEND, indent=""), ""]
    for heading, belongs in HEADINGS.items():
        found = [statement for statement in statements if belongs(statement.share)]
        told = [f"* {_link(lead)}: {sentence_of(lead)}" for lead in single if belongs(SHARES[judge(lead).word])]
        lines += [f"## {heading}", ""] if found or told else []
        if found:
            lines += [*to_table(found, protocols), "", *legend]
            legend = []  # once
        lines += [*map(_wrapped, told), ""] if told else []
    return lines


def _opening(results: dict[str, list[Section]]) -> list[str]:
    """Say what was run, at which scale, and what the table shows."""
    scales = {section.scale.name: section.scale for sections in results.values() for section in sections}
    told = [f"*{name}*: {scale.about}." for name, scale in scales.items()]
    text = (
        "Written by `gossamer reproduce` from the runs in data/. "
        "The table says how many of a result's comparisons hold, + how many hold in order but not in size. "
    )
    return [_wrapped(text + " ".join(told), indent="")]


def _overview(results: dict[str, list[Section]]) -> list[str]:
    """Return a table of verdicts: a line a result, a column a scale and protocol."""
    judged = {
        (name, f"{section.scale.name}, {section.protocol}"): _verdict(judge(section))
        for name, sections in results.items()
        for section in sections
        if has_verdict(section.recipe)
    }
    names, columns = (list(dict.fromkeys(place[at] for place in judged)) for at in (0, 1))
    if not judged:
        return []
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name in names:
        lines.append(f"| [{name}]({name}.md) | {' | '.join(judged.get((name, column), '') for column in columns)} |")
    return lines


def _verdict(verdict: Verdict) -> str:
    return f"{verdict.word}: {verdict.numbers}" if verdict.numbers else verdict.word


def _notes(results: dict[str, list[Section]]) -> list[str]:
    """Return what is to be known of all of it."""
    sections = [section for found in results.values() for section in found]
    told = [
        f"At scale {section.scale.name}, {note[0].lower()}{note[1:]}"
        for section in sections
        if section.recipe.claims and (note := judge(section).note)
    ]
    places = {
        outcome.cell.key for section in sections for outcome in section.outcomes.values() if outcome.cell.tentative
    }
    if places:
        told.append(
            f"In {counted(len(places), 'place', 'places')} the learning rate is still looked for; pages mark them."
        )
    return [_wrapped(" ".join(dict.fromkeys(told)), indent=""), ""] if told else []


def _better(sections: list[Section]) -> list[str]:
    """Return the rows beyond the paper that are clearly above PC-ASGD somewhere; waiting for all is no rival.

    A run that stands in several results is counted once.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], tuple[float, bool]]] = {}
    for section in sections:
        for (row, column), outcome in section.outcomes.items():
            ours = section.outcomes.get((OURS, column))
            if ours is None or not outcome.cell.extra or section.recipe.kind not in RANKED or row == CEILING:
                continue
            points = outcome.mean - ours.mean
            clear = points > math.hypot(outcome.spread, ours.spread)
            where = f"scale {section.scale.name}, protocol {section.protocol}"
            found.setdefault((row, where), {})[outcome.cell.key, ours.cell.key] = points, clear
    lines = []
    for (row, where), places in sorted(found.items()):
        above = [points for points, clear in places.values() if clear]
        if above:
            span = f"{min(above):.1f}{f' to {max(above):.1f}' if len(above) > 1 else ''}"
            lines.append(_wrapped(f"* {row}: in {len(above)} of {len(places)} places, by {span} points ({where})."))
    return lines


def _draw(sections: list[Section], folder: Path) -> list[Path]:
    """Draw all algorithms of these tables in the first case."""
    if not any((BASELINE, FIRST) in section.outcomes for section in sections):
        return []
    from gossamer.paper.advantages import draw_advantages  # matplotlib is slow to import

    draw_advantages(sections, FIRST, BASELINE).savefig(
        folder / PICTURE, facecolor="white", pil_kwargs={"optimize": True}
    )
    return [folder / PICTURE]


def _wrapped(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
