"""The picture of the summary: how far every algorithm is above the baseline, in the paper and here."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from gossamer.paper.figures import PAPER, PAPER_LOOK, PROTOCOL_LOOK, add_legend
from gossamer.paper.findings import Section, leading
from gossamer.paper.looks import Look
from gossamer.paper.outcomes import Outcome
from gossamer.paper.paper_tables import Reported
from gossamer.report.style import DPI, GREY, styled

Advantages = dict[str, dict[str, tuple[float, float]]]  # by row and source: points, and their standard deviation


def advantages(sections: Sequence[Section], column: str, baseline: str) -> Advantages:
    """Return the points of every row above the baseline in one column, where both were run."""
    found: Advantages = {}
    for section in sections:
        base, printed = section.outcomes.get((baseline, column)), section.recipe.reported.get((baseline, column))
        for row in section.rows:
            outcome, reported = section.outcomes.get((row, column)), section.recipe.reported.get((row, column))
            if base is None or outcome is None or row == baseline:
                continue
            found.setdefault(row, {})[_source(section)] = _difference(outcome, base)
            if reported is not None and printed is not None:
                found[row][PAPER] = _difference(reported, printed)
    return found


def _source(section: Section) -> str:
    return f"here, protocol {section.protocol}, scale {section.scale.name}"


def _difference(one: Outcome | Reported, other: Outcome | Reported) -> tuple[float, float]:
    return one.mean - other.mean, math.hypot(one.std or 0.0, other.std or 0.0)


@styled
def draw_advantages(sections: Sequence[Section], column: str, baseline: str) -> Figure:
    """Draw a line for each row, the best at the top."""
    found = advantages(sections, column, baseline)
    rows = sorted(found, key=lambda row: max(points for points, _ in found[row].values()))
    figure = Figure(figsize=(8.4, max(2.8, 1.6 + 0.36 * len(rows))), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    looks = {PAPER: PAPER_LOOK, **_looks(sections)}
    for at, row in enumerate(rows):
        for source, (points, spread) in found[row].items():
            axes.errorbar(points, at, xerr=spread, capsize=2, **looks[source])
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(f"points of accuracy above {baseline}")
    axes.set_title(column)
    shown = {source for of_row in found.values() for source in of_row}
    add_legend(figure, {source: look for source, look in looks.items() if source in shown}, columns=2)
    return figure


def _looks(sections: Sequence[Section]) -> dict[str, Look]:
    """Return the markers of each scale and protocol, filled at the scale that says most."""
    lead = leading(sections)[0].scale
    return {
        _source(section): PROTOCOL_LOOK[section.protocol]
        | ({} if section.scale is lead else {"markerfacecolor": "none"})
        for section in sections
    }
