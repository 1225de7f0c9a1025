"""What all tables and figures share: cells, sections, a verdict, a page and a picture. Each kind is a subclass."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer.engine.training import Stop
from gossamer.paper.cells import BEYOND, FAMILY, PROTOCOLS, SCALES, Cell, Scale
from gossamer.paper.findings import Claim, Reported, RowColumn, Section, Verdict, leading, verdict_on_claims
from gossamer.paper.rates import Rates
from gossamer.paper.store import Store
from gossamer.report.style import COLOURS, DPI, GREY, line_style, save_picture, styled
from gossamer.state.checkpoint import write_text

WIDTH = 120
COLUMNS, WIDE_COLUMNS = 9, 4  # of one table; fewer where cells hold more
PANELS = 4  # in a row of a picture
ACCURACY = (
    "Test accuracy in %, mean over agents at the last epoch; mean ± standard deviation over seeds (number of seeds)"
)
Sections = dict[str, list[Section]]  # by the name of the result


@dataclass(frozen=True)
class PaperResult:
    """A table or figure by name. `needs` is the data that its runs read."""

    name: str
    what: str
    needs: str = "nothing"

    def cells_of(self, scale: Scale, protocols: Iterable[str]) -> list[Cell]:
        """Return the cells of those protocols that the result has, the paper's first; none without stored runs."""
        return []

    @property
    def page_name(self) -> str:
        """The name of its page."""
        return self.name

    def run_apart(
        self, seeds: int, folder: Path, stop: Stop, on_case: Callable[[int, int], None], scale: Scale
    ) -> None:
        """Run what has no cells."""

    def write(self, sections: Sequence[Section], folder: Path) -> list[Path]:
        """Write the page and its pictures, and return their paths."""
        raise NotImplementedError

    def in_short(self, folder: Path) -> str:
        """Return what the summary says beside the link to a page without stored runs."""
        return ""


@dataclass(frozen=True)
class MeasuredResult(PaperResult):
    """A table or figure that is filled by stored runs. `reading` explains differences from the paper."""

    cells: Callable[[Scale, str], list[Cell]] = field(kw_only=True)  # of a protocol
    needs: str = "CIFAR-10 at quick and full"
    reported: Mapping[RowColumn, Reported] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    reading: str = ""
    protocols: tuple[str, ...] = tuple(PROTOCOLS)

    over_time: ClassVar[bool] = False  # whether its picture shows how runs went, and not only how they ended
    last_heading: ClassVar[str] = ""  # of one more column, if there is one

    def cells_of(self, scale: Scale, protocols: Iterable[str]) -> list[Cell]:
        """Return the cells of those protocols that the result has, the paper's first."""
        cells = [cell for name in protocols if name in self.protocols for cell in self.cells(scale, name)]
        return sorted(cells, key=lambda cell: cell.extra)

    def section(self, rates: Rates, protocol: str) -> Section:
        """Look up all that is stored of one scale and protocol."""
        cells = self.cells_of(rates.scale, [protocol])
        found = {(cell.row, cell.column): rates.outcome(cell) for cell in cells}
        outcomes = {place: outcome for place, outcome in found.items() if outcome is not None}
        missing = {(cell.row, cell.column): cell for cell in cells if (cell.row, cell.column) not in outcomes}
        before = {place: rates.former.outcome(cell) for place, cell in missing.items()}
        stale = {place: outcome for place, outcome in before.items() if outcome is not None}
        return Section(rates.scale, protocol, cells, outcomes, stale)

    def verdict(self, section: Section) -> Verdict | None:
        """Compare the runs with the paper; None where the paper says nothing."""
        return verdict_on_claims(section, self.claims, self.reported)

    def findings(self, section: Section) -> str:
        """Return what the page says first."""
        verdict = self.verdict(section)
        return " ".join([*([verdict.sentence] if verdict else []), *section.caveats()])

    def statement(self, claim: Claim) -> str:
        """Return the sentence that a claim is a case of."""
        return f"{claim.larger[0]} beats {claim.smaller[0]}"

    def draw(self, sections: Sequence[Section]) -> Figure:
        """Draw the sections of one scale, a protocol each."""
        raise NotImplementedError

    @styled
    def picture(self, sections: Sequence[Section]) -> Figure:
        """Draw the sections of one scale under a title."""
        drawn = self.draw(sections)
        about = textwrap.fill(sections[0].about, int(8 * drawn.get_figwidth()))  # what stands for the paper's models
        drawn.suptitle(f"{self.name} at scale {sections[0].scale.name}\n{about}", fontsize=12)
        return drawn

    def write(self, sections: Sequence[Section], folder: Path) -> list[Path]:
        """Write the page, and a picture of the scale with the most runs."""
        page, picture = folder / f"{self.name}.md", folder / f"{self.name}.png"
        write_text(page, self.page(sections))
        if not sections:
            return [page]
        save_picture(self.picture(leading(sections)), picture)
        return [page, picture]

    def page(self, sections: Sequence[Section]) -> str:
        """Return the page as Markdown."""
        lines = [f"# {self.name}: {self.what}", ""]
        for section in sections:
            where = f"Scale {section.scale.name}, protocol {section.protocol}"
            lines.append(wrapped(f"* **{where}.** {self.findings(section)}", "  "))
        lines += ["", f"![{self.name}]({self.name}.png)", ""] if sections else ["Nothing has been run yet.", ""]
        for section in sections:
            lines += [*self._section(section), ""]
        lines += ["## What may explain it", "", wrapped(self.reading), ""] if self.reading else []
        return "\n".join(lines).rstrip("\n") + "\n"

    def _section(self, section: Section) -> list[str]:
        """Return one scale and protocol: what it is, its tables, and how to repeat it."""
        scale, protocol = section.scale.name, section.protocol
        seeds = max(len(outcome.records) for outcome in section.outcomes.values())
        return [
            *(f"## Scale {scale}, protocol {protocol}", ""),
            *(wrapped(f"Scale: {section.about}. Protocol: {PROTOCOLS[protocol]}."), ""),
            *(wrapped(self.legend(section)), ""),
            *self.tables(section),
            *(
                "```",
                f"gossamer reproduce {self.name} --scale {scale} --protocol {protocol} --seeds {seeds}",
                "```",
                "",
            ),
            wrapped(f"Made on: {'; '.join(section.environments())}."),
        ]

    def legend(self, section: Section) -> str:
        """Say what the cells hold."""
        with_rates = ", learning rate and momentum m, local or at the server" if section.protocol == "tuned" else ""
        return f"{ACCURACY}{with_rates}."

    def tables(self, section: Section) -> list[str]:
        """Return all cells, in tables that a page can hold."""
        size = WIDE_COLUMNS if self.reported or section.protocol == "tuned" else COLUMNS
        groups = [section.columns[first : first + size] for first in range(0, len(section.columns), size)]
        return [line for columns in groups for line in (*self._table(section, columns), "")]

    def _table(self, section: Section, columns: list[str]) -> list[str]:
        """Return a table of these columns, the paper's number before ours where there is one."""
        printed = {name: any(place[1] == name for place in self.reported) for name in columns}
        heads = [head for name in columns for head in ([f"{name}: paper", "here"] if printed[name] else [name])]
        heads += [self.last_heading] if self.last_heading else []
        lines = []
        for row in section.rows:
            cells: list[str] = []
            for name in columns:
                cells += [_reported_text(self.reported.get((row, name)))] if printed[name] else []
                cells.append(_cell_text(section, (row, name)))
            cells += [self.last_cell(section, row)] if self.last_heading else []
            if any(cell.strip() for cell in cells):
                lines.append([row, *cells])
        return markdown_table(["", *heads], lines)

    def last_cell(self, section: Section, row: str) -> str:
        """Return a row's cell under the last heading."""
        return ""


@dataclass(frozen=True)
class BeyondThePaper(MeasuredResult):
    """A result of this library. `caption` says what its table in the summary shows."""

    protocols: tuple[str, ...] = ("tuned",)
    caption: str = field(kw_only=True)

    def verdict(self, section: Section) -> Verdict | None:
        """Return None unless there is a target: the paper says nothing about it."""
        return None

    def summary_table(self, section: Section) -> list[str]:
        """Return the table in the summary."""
        raise NotImplementedError


ResultSection = tuple[MeasuredResult, Section]


def find_sections(results: Iterable[PaperResult], store: Store) -> Sections:
    """Return what was run of some results, the largest scale first; smoke only where there is nothing else."""
    scales = [Rates(scale, store) for scale in reversed(SCALES.values()) if scale.name in store.scales]
    return {result.name: _sections_of(result, scales) for result in results if isinstance(result, MeasuredResult)}


def _sections_of(result: MeasuredResult, scales: Sequence[Rates]) -> list[Section]:
    made = [result.section(rates, protocol) for rates in scales for protocol in result.protocols]
    for section in made:  # a cell without runs shows the same cell at another scale, the largest that has it
        for other in reversed(made):
            if other.protocol == section.protocol and other is not section:
                found = {place: (other.scale.name, outcome) for place, outcome in other.outcomes.items()}
                section.elsewhere.update(found)
    sections = [section for section in made if section.outcomes]
    return [section for section in sections if section.scale.name != "smoke"] or sections


def _reported_text(number: Reported | None) -> str:
    if number is None:
        return ""
    return f"{number.mean:.1f}" + ("" if number.std is None else f" ± {number.std:.1f}")


def _cell_text(section: Section, place: RowColumn) -> str:
    """Return mean, standard deviation and seeds, or that and where it was not run."""
    if place in section.outcomes:
        return section.outcomes[place].text_with_rate
    if place in section.stale:
        return f"stale: {section.stale[place].text_with_rate}"
    if place not in section.places:
        return ""
    scale, there = section.elsewhere.get(place, ("", None))
    return "not run" if there is None else f"not run ({scale}: {there.text_with_rate})"


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], mark: str = "---:|") -> list[str]:
    """Return a table; `mark` aligns all columns after the first."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return [lines[0], f"|---|{mark * (len(heads) - 1)}", *lines[1:]]


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph in lines of the page's width."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


# Pictures: the paper's numbers hollow, ours filled.

LineStyle = dict[str, Any]  # keyword arguments of matplotlib
MAIN_ROWS = (*FAMILY, *BEYOND)  # look the same in all pictures
PAPER = "the paper"
PAPER_STYLE: LineStyle = {"marker": "s", "color": GREY, "markerfacecolor": "none", "linestyle": "none"}
PROTOCOL_STYLE: dict[str, LineStyle] = {
    "paper": {"marker": "o", "color": COLOURS[2], "linestyle": "none"},
    "tuned": {"marker": "D", "color": COLOURS[1], "linestyle": "none"},
}


def style_of(row: str, rows: Sequence[str]) -> LineStyle:
    """Return the style of a row's line among these rows."""
    others = [each for each in rows if each not in MAIN_ROWS]
    order = MAIN_ROWS.index(row) if row in MAIN_ROWS else len(MAIN_ROWS) + others.index(row)
    names = ("color", "linestyle", "marker")
    return {name: line_style(order)[name] for name in names} | {"markersize": 4.5, "linewidth": 1.5}


def panels_for(titles: Sequence[str], width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title."""
    across = min(PANELS, len(titles))
    down = math.ceil(len(titles) / across)
    figure = Figure(figsize=(max(6.4, width * across), height * down + 1.3), dpi=DPI, layout="constrained")
    panels = [figure.add_subplot(down, across, place + 1) for place in range(len(titles))]
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title.replace("CIFAR-100, ", "CIFAR-100\n").replace("CIFAR-10, ", "CIFAR-10\n"))
    return figure, panels


def add_legend(figure: Figure, styles: Mapping[str, LineStyle], columns: int) -> None:
    """Name the lines below the panels."""
    handles = [Line2D([], [], **{"label": label, **style}) for label, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
