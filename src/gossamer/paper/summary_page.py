"""Writes all pages. OUT/README.md says what is reproduced, what is not and what is better, from the stored runs."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.paper import RESULTS
from gossamer.paper.cells import BEYOND, CEILING, PROTOCOLS, READINGS
from gossamer.paper.findings import (
    FAILED,
    REPRODUCED,
    WORDS,
    CheckedClaim,
    Claim,
    Section,
    baseline_note,
    check_claims,
    counted,
    leading,
    unfinished_searches,
)
from gossamer.paper.paper_result import (
    BeyondThePaper,
    MeasuredResult,
    PaperResult,
    ResultSection,
    Sections,
    markdown_table,
    wrapped,
)
from gossamer.paper.paper_tables import FIRST, READINGS_NOTE, draw_above_baseline
from gossamer.report.style import save_picture
from gossamer.run.folder import make_folder
from gossamer.state.checkpoint import write_text

BASELINE = "D-ASGD"
PICTURE = "summary.png"
SMALL_TASKS = ("pc-asgd", "digits-delay-20")  # pages of docs/results on tasks that need no GPU
INTRODUCTION = (
    "`gossamer reproduce` wrote this page from the runs in data/. It compares differences, such as PC-ASGD over D-ASGD "
    "in one column of a table. *Reproduced*: ours has the paper's order and size. *Order only*: the same order, "
    "another size. *Failed*: another order, or a difference within one standard deviation over seeds. Protocol "
    "*paper*: one learning rate for all rules. Protocol *tuned*: a learning rate for each rule."
)
LEGEND = (
    "Each cell: in how many comparisons we find the same order, in how many of these also the paper's size, then the "
    "smallest and the largest difference in points of accuracy."
)


def write_pages(results: Iterable[PaperResult], sections: Sections, folder: Path) -> list[Path]:
    """Write the pages of these results and the summary of all, and return the paths."""
    make_folder(folder)
    paths = [path for result in results for path in result.write(sections.get(result.name, []), folder)]
    return [*paths, *write_summary(sections, folder)]


def write_summary(sections: Sections, folder: Path) -> list[Path]:
    """Write the summary and its picture, and return their paths."""
    page, picture = folder / "README.md", folder / PICTURE
    shown = [found for found in _found(sections) if found[0].name in ("table-2", "table-3")]
    drawn = [picture] if any((BASELINE, FIRST) in section.outcomes for _, section in shown) else []
    if drawn:
        save_picture(draw_above_baseline(shown, FIRST, BASELINE), picture)
    write_text(page, to_summary(sections, picture=bool(drawn), more=_other_pages(folder), small=_small(folder)))
    return [page, *drawn]


def _found(sections: Sections) -> list[ResultSection]:
    """Return all sections with their results."""
    measured = [result for result in RESULTS.values() if isinstance(result, MeasuredResult)]
    return [(result, section) for result in measured for section in sections.get(result.name, [])]


def _other_pages(folder: Path) -> list[str]:
    """Return links to the pages without stored runs, with what they say in short."""
    names = [name for name, result in RESULTS.items() if not isinstance(result, MeasuredResult)]
    pages = {name: RESULTS[name].page_name for name in names if (folder / f"{RESULTS[name].page_name}.md").is_file()}
    shorts = {page: RESULTS[name].in_short(folder) for name, page in pages.items()}
    return [f"[{page}]({page}.md)" + (f" ({short})" if short else "") for page, short in shorts.items()]


def _small(folder: Path) -> list[str]:
    """Return links to the pages on small tasks, where the folder has them."""
    return [f"[{name}]({name}.md)" for name in SMALL_TASKS if (folder / f"{name}.md").is_file()]


def to_summary(sections: Sections, *, picture: bool, more: Sequence[str] = (), small: Sequence[str] = ()) -> str:
    """Return the summary as Markdown."""
    everything = _found(sections)
    leads = [found for found in everything if _leads(found[1], sections[found[0].name])]
    others = [found for found in everything if found not in leads]
    lines = ["# The paper's results, repeated", "", wrapped(INTRODUCTION), ""]
    lines += [*_counts(leads), *_sentences(leads, everything, small)]
    lines += [f"![points above {BASELINE}]({PICTURE})", ""] if picture else []
    lines += _statements(leads)
    lines += _beyond(leads)
    if other_counts := _counts(others):
        lines += ["## Other scales", "", *other_counts]
    left = [name for name, result in RESULTS.items() if isinstance(result, MeasuredResult) and not sections.get(name)]
    lines += [wrapped(f"See also: {', '.join(more)}."), ""] if more else []
    lines += [wrapped(f"Not run yet: {', '.join(left)}."), ""] if left else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _leads(section: Section, sections: list[Section]) -> bool:
    """Whether this is the section of its protocol with the most runs."""
    return leading([each for each in sections if each.protocol == section.protocol])[0] is section


def _link(result: MeasuredResult, section: Section) -> str:
    return f"[{result.name}]({result.name}.md), scale {section.scale.name}, protocol {section.protocol}"


def _counts(found: Sequence[ResultSection]) -> list[str]:
    """Return a table of comparisons by word, a line for each result, scale and protocol."""
    rows = []
    for result, section in found:
        verdict = None if isinstance(result, BeyondThePaper) else result.verdict(section)
        if verdict is not None:
            counts = [str(verdict.counts.get(word, 0)) for word in WORDS]
            rows.append([f"[{result.name}]({result.name}.md)", section.scale.name, section.protocol, *counts])
    return [*markdown_table(["result", "scale", "protocol", *WORDS], rows), ""] if rows else []


def _sentences(leads: Sequence[ResultSection], everything: Sequence[ResultSection], small: Sequence[str]) -> list[str]:
    """Return in a few sentences what holds, and what to know of all of it."""
    groups: dict[str, list[str]] = {head: [] for head in HEADS}
    for statement in find_statements(leads):
        groups[statement.head].append(statement.text)
    told = [f"* **{head}:** {_joined(texts)}." for head, texts in groups.items() if texts]
    if any(text.startswith(READINGS) for text in itertools.chain(*groups.values())):
        told.append(f"* {READINGS_NOTE}" + (f" On small tasks: {', '.join(small)}." if small else ""))
    for scale in {section.scale.name: section.scale for _, section in everything}.values():
        here = [(result, section) for result, section in everything if section.scale is scale]
        notes = {note: None for result, section in here for note in baseline_note(section, result.reported)}
        told.append(" ".join([f"* Scale *{scale.name}*: {scale.about}.", *notes]))
    searching = {key for _, section in everything for key in section.searching()}
    before = [outcome for _, section in everything for outcome in section.stale.values()]
    told += [f"* {sentence}" for sentence in unfinished_searches(searching)]
    if stale := {outcome.cell.settings.algorithm for outcome in before}:
        told.append(f"* {counted(len(stale), 'rule')} changed after the runs. No comparison or picture has those runs.")
    return [*(wrapped(sentence, "  ") for sentence in told), ""] if told else []


def _joined(texts: Sequence[str]) -> str:
    """Return 'A beats B' and 'A beats C' as 'A beats B, C'."""
    losers: dict[str, list[str]] = {}
    for text in texts:
        winner, beats, loser = text.partition(" beats ")
        losers.setdefault(winner + beats, []).append(loser)
    return "; ".join(begin + ", ".join(ends) for begin, ends in losers.items())


# What the paper says of two algorithms, over all results.


HEADS = EVERY, SOME, NONE, NEVER_RUN = "In every comparison", "In some comparisons", "In no comparison", "Not run"


@dataclass(frozen=True)
class Statement:
    """One sentence, and the comparisons that bear on it, by protocol."""

    text: str
    checked: dict[str, list[CheckedClaim]]

    @property
    def all(self) -> list[CheckedClaim]:
        """The comparisons of all protocols."""
        return [each for of_protocol in self.checked.values() for each in of_protocol]

    @property
    def share(self) -> float:
        """The share of comparisons that have the order of the sentence; below 0 where nothing was run."""
        return sum(each.word != FAILED for each in self.all) / len(self.all) if self.all else -1.0

    @property
    def head(self) -> str:
        """In how many comparisons it holds."""
        return {1.0: EVERY, 0.0: NONE, -1.0: NEVER_RUN}.get(self.share, SOME)


def find_statements(found: Sequence[ResultSection], *, beyond: bool = False) -> list[Statement]:
    """Return what the paper says in these results, or what it lacks: the highest share first, what was not run last.

    Two experiments that meet in several results are compared once.
    """
    by_text: dict[str, dict[str, dict[tuple[str, str], CheckedClaim]]] = {}
    for result, section in found:
        claims = _better(section) if beyond and result.claims else result.claims
        for claim in claims:
            if {claim.larger, claim.smaller} <= section.places:
                by_text.setdefault(result.statement(claim), {})
        for each in check_claims(section, claims, result.reported):
            by_protocol = by_text.setdefault(result.statement(each.claim), {})
            by_protocol.setdefault(section.protocol, {}).setdefault(each.keys, each)
    statements = [
        Statement(text, {protocol: list(of_keys.values()) for protocol, of_keys in by_protocol.items()})
        for text, by_protocol in by_text.items()
    ]
    return sorted(statements, key=lambda statement: statement.share, reverse=True)


def _better(section: Section) -> list[Claim]:
    """Return the claims that rows beyond the paper are above PC-ASGD; a rule that waits for all is no rival."""
    rows = [row for row in BEYOND if row != CEILING]
    pairs = [*itertools.product(rows, READINGS), READINGS]
    return [Claim((row, column), (other, column)) for column in section.columns for row, other in pairs]


def _table(statements: Sequence[Statement], protocols: Sequence[str]) -> list[str]:
    """Return a line for each statement and a column for each protocol."""
    rows = []
    for statement in statements:
        printed = _span([each.paper for each in statement.all if each.paper is not None])
        rows.append([statement.text, printed, *(_cell(statement.checked.get(name, [])) for name in protocols)])
    heads = ["statement", "the paper's difference", *(f"protocol {name}" for name in protocols)]
    return [*markdown_table(heads, rows, "---|"), ""]


def _cell(checked: list[CheckedClaim]) -> str:
    """Return how many are in order, and in size, and the span of the differences."""
    if not checked:
        return "not run"
    order = sum(each.word != FAILED for each in checked)
    size = sum(each.word == REPRODUCED and each.paper is not None for each in checked)
    sized = f" ({size} in size)" if size else ""
    return f"{order} of {len(checked)}{sized}: {_span([each.ours for each in checked])}"


def _span(points: Sequence[float]) -> str:
    """Return '+0.9 to +3.3', or one number, or nothing."""
    ends = list(dict.fromkeys(f"{end:+.1f}" for end in (min(points), max(points)))) if points else []
    return " to ".join(ends)


def _statements(leads: Sequence[ResultSection]) -> list[str]:
    """Return what the paper says, a statement or a result at a time."""
    statements = [each for each in find_statements(leads) if each.all]
    single = [found for found in leads if not found[0].claims and not isinstance(found[0], BeyondThePaper)]
    lines = ["## What the paper says, and what we find", ""] if statements or single else []
    if statements:
        lines += [*_table(statements, _protocols(leads)), wrapped(LEGEND), ""]
    told = [wrapped(f"* {_link(result, section)}. {result.findings(section)}", "  ") for result, section in single]
    return [*lines, *told, ""] if told else lines


def _protocols(found: Sequence[ResultSection]) -> list[str]:
    there = {section.protocol for result, section in found if result.claims}
    return [protocol for protocol in PROTOCOLS if protocol in there]


def _beyond(leads: Sequence[ResultSection]) -> list[str]:
    """Return what goes beyond the paper: what it is, a table, and what is still open."""
    lines = []
    better = [each for each in find_statements(leads, beyond=True) if each.share > 0]
    if better:
        lines += [
            f"What is not in the paper, compared with {' and '.join(READINGS)}:",
            "",
            *_table(better, _protocols(leads)),
        ]
    for result, section in leads:
        if isinstance(result, BeyondThePaper):
            missing = [row for row in section.rows if row not in section.stale_rows and not section.has_runs(row=row)]
            notes = [f"Not run: {', '.join(missing)}."] if missing else []
            lines += [wrapped(f"**{result.name}.** {_link(result, section)}. {result.caption}"), ""]
            lines += [*result.summary_table(section), "", wrapped(" ".join([result.findings(section), *notes])), ""]
    return ["## Beyond the paper", "", *lines] if lines else []
