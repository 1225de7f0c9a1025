"""OUT/NAME.md: the pages of results, written from the stored runs. Only the paper's numbers are typed by hand."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import UserError
from gossamer.paper.atlas import atlas_tables
from gossamer.paper.findings import Recipe, Section, leading, sections_of
from gossamer.paper.judge import has_verdict, judge, sentence_of
from gossamer.paper.outcomes import Outcome
from gossamer.paper.paper_tables import Reported
from gossamer.paper.recommended import losses_table
from gossamer.paper.scales import PROTOCOLS
from gossamer.paper.store import Store
from gossamer.paper.summary import write_summary
from gossamer.paper.table_1 import write_table_1
from gossamer.paper.toy_page import write_toy
from gossamer.paper.verdict import last_share
from gossamer.state.checkpoint import write_text

WIDTH = 120
COLUMNS, WIDE_COLUMNS = 9, 4  # of one table; fewer where cells hold more
NOTHING = "Nothing has been run yet."


def make_folder(folder: Path) -> None:
    """Make the folder of all pages, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create '{folder}' ({error.strerror}); choose another --out") from None


def write_pages(recipes: Sequence[Recipe], store: Store, folder: Path) -> list[Path]:
    """Write the pages of these results and the summary of all, and return the paths."""
    make_folder(folder)
    paths = []
    for recipe in recipes:
        if recipe.kind == "document":
            paths += write_table_1(folder)
        elif recipe.kind == "toy":
            paths += write_toy(folder)
        else:
            paths += write_page(recipe, store, folder)
    return [*paths, *write_summary(store, folder)]


def verdicts_of(recipes: Sequence[Recipe], store: Store, scale: str) -> list[dict[str, str]]:
    """Return the verdicts at this scale on each result that was run."""
    found = []
    for recipe in filter(has_verdict, recipes):
        for section in sections_of(recipe, store):
            if section.scale.name == scale:
                verdict = judge(section)
                where = {"scale": section.scale.name, "protocol": section.protocol}
                found.append({"name": recipe.name, **where, "verdict": verdict.word, "because": verdict.sentence})
    return found


def write_page(recipe: Recipe, store: Store, folder: Path) -> list[Path]:
    """Write the page and its picture, and return their paths."""
    sections = sections_of(recipe, store)
    pictures = _write_picture(recipe, sections, folder)
    page = folder / f"{recipe.name}.md"
    write_text(page, to_page(recipe, sections, [path.name for path in pictures]))
    return [page, *pictures]


def _write_picture(recipe: Recipe, sections: Sequence[Section], folder: Path) -> list[Path]:
    """Draw the scale that says most."""
    if not sections:
        return []
    from gossamer.paper.figures import draw  # matplotlib is slow to import: only when it draws

    path = folder / f"{recipe.name}.png"
    draw(leading(sections)).savefig(path, facecolor="white", pil_kwargs={"optimize": True})
    return [path]


def to_page(recipe: Recipe, sections: Sequence[Section], pictures: Sequence[str]) -> str:
    """Return the page as Markdown."""
    lines = [f"# {recipe.name}: {recipe.what}", "", *_verdicts(recipe, sections), ""]
    lines += [line for name in pictures for line in (f"![{recipe.name}]({name})", "")]
    for section in sections:
        lines += [*_section(section), ""]
    if recipe.reading:
        lines += ["## What may explain it", "", _wrapped(recipe.reading), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _verdicts(recipe: Recipe, sections: Sequence[Section]) -> list[str]:
    """Return a sentence for each scale and protocol that was run."""
    if not sections:
        return [NOTHING]
    return [
        _wrapped(f"* **Scale {section.scale.name}, protocol {section.protocol}.** {sentence_of(section)}", "  ")
        for section in sections
    ]


def _section(section: Section) -> list[str]:
    """Return one scale and protocol: what it is, the table, and how to repeat it."""
    lines = [f"## Scale {section.scale.name}, protocol {section.protocol}", ""]
    lines += [_wrapped(f"Scale: {section.about}. Protocol: {PROTOCOLS[section.protocol]}.")]
    lines += ["", _wrapped(_legend(section)), ""]
    lines += _tables(section)
    if section.recipe.kind == "target":
        lines += [*losses_table(section), ""]
    seeds = max(len(outcome.records) for outcome in section.outcomes.values())
    asked = f"--scale {section.scale.name} --protocol {section.protocol} --seeds {seeds}"
    lines += ["```", f"gossamer reproduce {section.recipe.name} {asked}", "```", ""]
    return [*lines, _wrapped(f"Made on: {'; '.join(section.environments())}.")]


def _tables(section: Section) -> list[str]:
    if section.recipe.kind == "atlas":
        return atlas_tables(section)
    return [line for columns in _groups(section) for line in (*_table(section, columns), "")]


def _legend(section: Section) -> str:
    """Say what stands in the cells."""
    if section.recipe.kind == "times":
        return "Seconds of an epoch, the median over epochs; mean ± standard deviation over seeds (number of seeds)."
    told = (
        "Test accuracy in %, mean over agents at the last epoch; mean ± standard deviation over seeds (number of seeds)"
    )
    with_rates = section.protocol == "tuned" and section.recipe.kind != "atlas"  # which has tables of them
    return told + (", learning rate and momentum m, local or at the server." if with_rates else ".")


def _groups(section: Section) -> list[list[str]]:
    """Divide the columns into tables that a page can hold."""
    size = WIDE_COLUMNS if section.recipe.reported or section.protocol == "tuned" else COLUMNS
    columns = section.columns
    return [columns[first : first + size] for first in range(0, len(columns), size)]


def _table(section: Section, columns: list[str]) -> list[str]:
    """Return a table of these columns, the paper's number before ours where there is one."""
    printed = {name: any(place[1] == name for place in section.recipe.reported) for name in columns}
    shares = section.recipe.kind == "choices"
    heads = [head for name in columns for head in ([f"{name}: paper", "here"] if printed[name] else [name])]
    heads += ["predicts at the end"] if shares else []
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for row in section.rows:
        cells = []
        for name in columns:
            if printed[name]:
                cells.append(_reported(section.recipe.reported.get((row, name))))
            cells.append(_cell(section, row, name))
        if shares:
            cells.append(_shares(section.outcomes.get((row, columns[0]))))
        if any(cell.strip() for cell in cells):
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _reported(number: Reported | None) -> str:
    if number is None:
        return ""
    return f"{number.mean:.1f}" + ("" if number.std is None else f" ± {number.std:.1f}")


def _cell(section: Section, row: str, column: str) -> str:
    """Return mean, standard deviation and seeds, or that and where it was not run."""
    if not any((cell.row, cell.column) == (row, column) for cell in section.cells):
        return ""
    outcome = section.outcomes.get((row, column))
    if outcome is not None:
        return to_text(outcome)
    if (row, column) not in section.elsewhere:
        return "not run"
    scale, there = section.elsewhere[row, column]
    return f"not run ({scale}: {to_text(there)})"


def to_text(outcome: Outcome) -> str:
    """Return an outcome, with what was found for it where that was looked for."""
    rate = f", lr {outcome.rate}, {outcome.momentum}" if outcome.cell.protocol == "tuned" else ""
    return outcome.text + rate


def _shares(outcome: Outcome | None) -> str:
    """Return the share of predicting steps at the end: the mean, and that of each cluster."""
    share = None if outcome is None else last_share(outcome)
    if outcome is None or share is None:
        return ""
    clusters = ", ".join("-" if value is None else f"{value:.2f}" for value in outcome.predict_shares()[1][-1])
    return f"{share:.3f} ({clusters})"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
