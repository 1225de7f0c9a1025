"""OUT/README.md: what is confirmed, what is not and what is better, with one picture, from the stored runs alone."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

from gossamer.experiments.reproduce.judge import has_verdict, judge, sentence_of
from gossamer.experiments.reproduce.outcomes import Section, leading, sections_of
from gossamer.experiments.reproduce.paper import FIRST
from gossamer.experiments.reproduce.recipe import CEILING
from gossamer.experiments.reproduce.recipes import RECIPES
from gossamer.experiments.reproduce.store import Store
from gossamer.experiments.reproduce.toy_result import toy_counts
from gossamer.experiments.reproduce.verdict import FAILS, HOLDS, OPEN, ORDER
from gossamer.state.checkpoint import write_text

WIDTH = 120
BASELINE, OURS = "D-ASGD", "PC-ASGD"
PICTURE = "summary.png"
RANKED = ("table", "delays", "sizes")  # the curves are the table's
HEADINGS = {
    HOLDS: "What is confirmed",
    ORDER: "What holds in order but not in size",
    FAILS: "What does not hold",
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
    judged: dict[str, list[str]] = {}
    leads = {name: _leads(sections) for name, sections in results.items()}
    for name, found in leads.items():
        for lead, others in found:
            heading = BEYOND if RECIPES[name].kind in ("target", "atlas") else HEADINGS.get(judge(lead).word, "")
            where = f"scale {lead.scale.name}, protocol {lead.protocol}"
            told = f"* [{name}]({name}.md), {where}: {sentence_of(lead)}{_also(others)}"
            judged.setdefault(heading, []).append(_wrapped(told))
    lines = ["# The paper's results, repeated", "", *_opening(results), ""]
    lines += [*_overview(results), ""]
    lines += [f"![points above {BASELINE}]({PICTURE})", ""] if picture else []
    for heading in (*HEADINGS.values(), BEYOND):
        if heading in judged:
            lines += [f"## {heading}", "", *judged[heading], ""]
    better = _better([lead for found in leads.values() for lead, _ in found])
    if better:
        lines += [f"## What is better than {OURS}", "", "What the paper does not have, by more than 1 std:", ""]
        lines += [*better, ""]
    lines += [_wrapped(f"See also: {', '.join(more)}.", indent=""), ""] if more else []
    left = [
        name for name, sections in results.items() if not sections and RECIPES[name].kind not in ("document", "toy")
    ]
    lines += [f"Not run yet: {', '.join(left)}.", ""] if left else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _leads(sections: list[Section]) -> list[tuple[Section, list[Section]]]:
    """Return for each protocol the section that says most, and those of other scales."""
    found = []
    for protocol in dict.fromkeys(section.protocol for section in sections):
        alike = [section for section in sections if section.protocol == protocol]
        (lead,) = leading(alike)
        found.append((lead, [section for section in alike if section is not lead]))
    return found


def _also(others: list[Section]) -> str:
    """Return what other scales say, where they say something."""
    verdicts = [(section.scale.name, judge(section)) for section in others]
    return "".join(f" At scale {name}: {verdict.sentence}" for name, verdict in verdicts if verdict.word != OPEN)


def _opening(results: dict[str, list[Section]]) -> list[str]:
    """Say what was run, and at which scale."""
    scales = {section.scale.name: section.scale for sections in results.values() for section in sections}
    told = [f"*{name}*: {scale.about}." for name, scale in scales.items()]
    text = (
        "Written by `gossamer reproduce` from the runs in data/. Each result is judged at the scale at which most of "
        "it has been run: a difference counts when it is larger than one standard deviation over seeds. "
        "In brackets: how many of the comparisons could be made. "
    )
    return [_wrapped(text + " ".join(told), indent="")]


def _overview(results: dict[str, list[Section]]) -> list[str]:
    """Return a table of verdicts: a line a result, a column a scale and protocol."""
    judged = {
        (name, f"{section.scale.name}, {section.protocol}"): judge(section).short
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
            clear = points > math.hypot(outcome.std or 0.0, ours.std or 0.0)
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
    from gossamer.experiments.reproduce.advantages import draw_advantages  # matplotlib is slow to import

    draw_advantages(sections, FIRST, BASELINE).savefig(
        folder / PICTURE, facecolor="white", pil_kwargs={"optimize": True}
    )
    return [folder / PICTURE]


def _wrapped(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
