"""The paper's Tables 1 to 4: the numbers that it prints, the cells that repeat them, and how they are drawn.

Accuracies are in per cent. The paper calls ± a variance; it is read as a standard deviation over 6 runs. Its columns
"o.p." disagree with the differences of its accuracies and are left out.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from gossamer.paper.cells import (
    ALGORITHMS,
    BEYOND,
    CEILING,
    FAMILY,
    PARTS,
    READINGS,
    Cell,
    Conditions,
    Scale,
    make_cell,
)
from gossamer.paper.findings import Claim, Reported, RowColumn, Section, leading
from gossamer.paper.paper_result import (
    PANELS,
    PAPER,
    PAPER_STYLE,
    PROTOCOL_STYLE,
    LineStyle,
    MeasuredResult,
    PaperResult,
    ResultSection,
    add_legend,
    panels_for,
)
from gossamer.paper.store import Outcome
from gossamer.report.style import DPI, GREY, styled
from gossamer.state.checkpoint import write_text

CASES = tuple(itertools.product(("PreResNet-110", "DenseNet"), ("CIFAR-10", "CIFAR-100")))
NETWORKS = {5: "paper-2", 8: "paper-1", 20: "paper-3"}  # by their number of agents
RIVALS = ("D-ASGD", "AD-PSGD", "DC-S3GD", "DASGD-IS", "Adaptive Braking")
THETAS = {
    "theta 0.3": "pc-asgd/theta=0.3",
    "theta 0.5": "pc-asgd/theta=0.5",
    "theta 0.7": "pc-asgd/theta=0.7",
    "theta Bernoulli 0.3": "pc-asgd/theta=bernoulli:0.3",
    "theta Bernoulli 0.5": "pc-asgd/theta=bernoulli:0.5",
    "theta Bernoulli 0.7": "pc-asgd/theta=bernoulli:0.7",
    "theta uniform": "pc-asgd/theta=uniform",
    "PC-ASGD-PV": "pc-asgd/theta=pv",
    "D-ASGD": "d-asgd",
}
VARIANTS = ("PC-ASGD, descent", "PC-ASGD, theta 0.3")  # run in the first case only
CRITERION_NOTE = (
    "The printed criterion prefers the step with *less* descent, so PC-ASGD-PV predicts in nearly every step. The "
    "paper's words ask for the opposite (docs/readings.md, first row)."
)
READINGS_NOTE = (
    "The paper's PC-ASGD is compared twice. PC-ASGD-PV is the variant that the paper runs. PC-ASGD has theta=auto: "
    "Algorithm 1 leaves theta open, the paper tries no value this small (docs/algorithms/pc-asgd.md)."
)
PACE_NOTE = (
    "Averaging with stale states slows D-ASGD down to eta / (1 + tau b), a tenth of eta with 8 agents at tau 20. So "
    "one common learning rate decides much of the order (docs/algorithms.md)."
)


def column_of(model: str, data: str, agents: int) -> str:
    """Return the name of a column."""
    return f"{model}, {data}, {agents} agents"


COLUMNS_8, COLUMNS_20 = (tuple(column_of(*case, agents) for case in CASES) for agents in (8, 20))
FIRST = COLUMNS_8[0]


def _printed(columns: tuple[str, ...], rows: dict[str, str]) -> dict[RowColumn, Reported]:
    """Read rows of 'mean±std' with spaces between them; those of PC-ASGD stand for both readings."""
    return {
        (reading, name): Reported(*(float(part) for part in text.split("±")))
        for row, line in rows.items()
        for reading in (READINGS if row == READINGS[0] else (row,))
        for name, text in zip(columns, line.split(), strict=True)
    }


# Table 2. PC-ASGD is the variant PV, the baseline is D-ASGD.
_WITH_8 = {
    "PC-ASGD": "87.3±1.1 67.4±1.4 86.9±0.9 68.6±0.6",
    "P-ASGD": "84.9±0.9 64.8±1.3 84.4±0.6 66.8±1.5",
    "C-ASGD": "86.0±1.0 66.4±1.2 85.9±0.9 66.8±1.6",
    "D-ASGD": "84.0±0.3 64.5±1.5 83.3±0.9 66.1±1.9",
}
_WITH_20 = {
    "PC-ASGD": "84.7±0.9 62.4±0.8 82.9±0.9 64.5±0.7",
    "P-ASGD": "83.3±0.9 61.7±1.0 82.0±0.7 62.5±1.3",
    "C-ASGD": "82.5±1.0 61.5±1.0 81.8±0.6 62.0±1.5",
    "D-ASGD": "80.4±0.7 59.3±1.7 80.1±0.9 60.4±1.7",
}
PRINTED_WITH_8 = _printed(COLUMNS_8, _WITH_8)
# Table 3. AD-PSGD has D-ASGD's numbers of Table 2, and the text says that the two are one.
_RIVALS = {
    "PC-ASGD": "87.3±1.1 67.4±1.4 86.9±0.6 68.6±0.6",
    "D-ASGD": _WITH_8["D-ASGD"],
    "AD-PSGD": _WITH_8["D-ASGD"],
    "DC-S3GD": "86.3±0.8 63.5±1.7 85.7±0.8 66.2±1.3",
    "DASGD-IS": "85.0±0.3 64.6±1.2 84.6±0.4 66.2±0.8",
    "Adaptive Braking": "86.8±0.9 66.5±1.2 85.3±1.0 67.3±1.1",
}
# Table 4 prints means only.
_MEANS = dict(zip(THETAS, ("86.3", "85.0", "84.5", "85.6", "85.0", "84.1", "85.2", "87.3", "84.0"), strict=True))


def cells_of_cases(rows: tuple[str, ...], agents: tuple[int, ...] = (8,)) -> Callable[[Scale, str], list[Cell]]:
    """Return what makes the cells of these rows, for all models and data that a scale has."""

    def cells(scale: Scale, protocol: str) -> list[Cell]:
        return [
            make_cell(scale, protocol, Conditions(*case, NETWORKS[size]), row, column_of(*case, size))
            for size in agents
            for case in CASES
            if case[0] in scale.models and case[1] in scale.tasks
            for row in rows
            if row not in VARIANTS or case == CASES[0]
        ]

    return cells


def _thetas(scale: Scale, protocol: str) -> list[Cell]:
    cells = [make_cell(scale, protocol, Conditions(), row, FIRST, text) for row, text in THETAS.items()]
    ours = make_cell(scale, protocol, Conditions(), "theta auto", FIRST, ALGORITHMS["PC-ASGD"])
    return [*cells, ours, make_cell(scale, protocol, Conditions(), "PC-ASGD, descent", FIRST)]


def readings_beat(rows: Sequence[str], columns: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims that PC-ASGD, in either reading, is above all of these columns' rows."""
    return tuple(claim for reading in READINGS for claim in beats(reading, rows, columns))


def beats(row: str, rows: Sequence[str], columns: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims that a row is above all others of these columns."""
    return tuple(Claim((row, column), (other, column)) for column in columns for other in rows if other != row)


@dataclass(frozen=True)
class AccuracyTable(MeasuredResult):
    """Accuracies beside the paper's."""

    def statement(self, claim: Claim) -> str:
        """Return the sentence that a claim is a case of; one for all choices of theta."""
        is_theta = claim.smaller[0].startswith("theta")
        return "PC-ASGD-PV beats any other choice of theta" if is_theta else super().statement(claim)

    def draw(self, sections: Sequence[Section]) -> Figure:
        """Draw a panel a column and a line a row: accuracies with one standard deviation."""
        first = sections[0]
        shown = [name for name in first.columns if any(each.has_runs(column=name) for each in sections)]
        rows = [row for row in first.rows if any((row, name) in each.outcomes for each in sections for name in shown)]
        figure, panels = panels_for(shown, height=max(2.4, 1.0 + 0.3 * len(rows)))
        for place, (panel, name) in enumerate(zip(panels, shown, strict=True)):
            for at, row in enumerate(reversed(rows)):
                dots: list[tuple[float, Reported | Outcome | None, LineStyle]]
                dots = [(0.0, self.reported.get((row, name)), PAPER_STYLE)]
                for shift, section in zip((-0.14, 0.14), sections, strict=False):
                    dots.append((shift, section.outcomes.get((row, name)), PROTOCOL_STYLE[section.protocol]))
                for shift, number, style in dots:
                    if number is not None:
                        panel.errorbar(number.mean, at + shift, xerr=number.std, capsize=2, **style)
            panel.set_yticks(range(len(rows)), list(reversed(rows)) if place % PANELS == 0 else [""] * len(rows))
            panel.grid(visible=True, axis="both")
            panel.set_xlabel("test accuracy in %")
        styles = {f"here, protocol {section.protocol}": PROTOCOL_STYLE[section.protocol] for section in sections}
        add_legend(figure, {PAPER: PAPER_STYLE, **styles}, columns=3)
        return figure


@dataclass(frozen=True)
class ConvergenceRates(PaperResult):
    """Table 1: what the paper says of each algorithm, and what holds of its rate. It has no runs."""

    def write(self, sections: Sequence[Section], folder: Path) -> list[Path]:
        """Write the page, and return its path."""
        page = folder / f"{self.name}.md"
        write_text(page, self.page())
        return [page]

    def page(self) -> str:
        """Return the page as Markdown."""
        lines = [f"# {self.name}: asynchronous algorithms and their convergence rates", ""]
        lines += ["As printed, except for the last two columns.", "", f"| {_HEADINGS} |", f"|{'---|' * 10}"]
        return "\n".join([*lines, *(f"| {row} |" for row in _RATES), "", _RATES_NOTES])


_HEADINGS = (
    "method | f | gradient | delay | rate as printed | decentralised | compensates | alternates | rule here | "
    "what holds"
)
_TO_A_POINT = "to a stationary point, with a step that shrinks as 1/sqrt(T)"
_NEIGHBOURHOOD = (
    "to a neighbourhood whose radius does not vanish with the step; the term in T is only the way there, so it cannot "
    "be compared with the rows above"
)
_BOUNDED = "Lipschitz | bounded"
_PC_ASGD = "yes | yes | yes | `pc-asgd`"
_DC_ASGD = "no | yes | no | `dc-asgd-c`, `dc-asgd-a`"
_RATES = (
    f"ASGD | non-convex | {_BOUNDED} | O(1/sqrt(T)) | no | no | no | `asgd` | {_TO_A_POINT}",
    f"DC-ASGD | strongly convex | {_BOUNDED} | O(1/T) | {_DC_ASGD} | to the minimum, with a step that shrinks as 1/T",
    f"DC-ASGD | non-convex | {_BOUNDED} | O(1/sqrt(T)) | {_DC_ASGD} | {_TO_A_POINT}",
    "AD-PSGD | non-convex | Lipschitz and bounded | bounded | O(1/sqrt(T)) | yes | no | no | `ad-psgd` | "
    f"{_TO_A_POINT}; what the experiments call AD-PSGD is `d-asgd`",
    "DC-S3GD (printed DC-s3dg) | non-convex | Lipschitz | unbounded | none | yes | yes | no | `dc-s3gd` | "
    "no rate is given in its paper either",
    f"PC-ASGD | weakly strongly convex | {_BOUNDED} | O(eps^T) | {_PC_ASGD} | linear, {_NEIGHBOURHOOD}",
    f"PC-ASGD | non-convex | {_BOUNDED} | O(1/T) | {_PC_ASGD} | 1/T, {_NEIGHBOURHOOD}",
)
_RATES_NOTES = """\
The rates of PC-ASGD are for a constant step, the others for steps that shrink: they answer different questions.
The proofs have further gaps, so the bounds are no guarantee for the algorithm as it is run:

* The analysis replaces a stale state by the current one by definition: it does not cover stale states.
* The mixing matrix of the clipping step is block diagonal for clusters that do not overlap. Then its second eigenvalue
  is 1. The bounds ask for less than 1 as soon as one step clips.
* The squared-gradient bound at small steps is no smaller than the trivial bound that its own assumptions give.
* A larger delay appears to speed up convergence. This follows from an index shift, not from the algorithm.

`gossamer algorithms NAME` describes each rule; docs/readings.md lists what the paper leaves open.
"""

# The picture of the summary: all rows of Tables 2 and 3 in one column.


def _differences(
    found: Sequence[ResultSection], column: str, baseline: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return by row and source the points above the baseline and their standard deviation, in the paper and here."""
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for result, section in found:
        for row in section.rows:
            for source, numbers in ((_source(section), section.outcomes), (PAPER, result.reported)):
                one, other = numbers.get((row, column)), numbers.get((baseline, column))
                if one is not None and other is not None and row != baseline and (row, column) in section.outcomes:
                    spread = math.hypot(one.std or 0.0, other.std or 0.0)
                    points.setdefault(row, {})[source] = one.mean - other.mean, spread
    return points


def _source(section: Section) -> str:
    return f"here, protocol {section.protocol}, scale {section.scale.name}"


@styled
def draw_above_baseline(found: Sequence[ResultSection], column: str, baseline: str) -> Figure:
    """Draw how far each row is above the baseline, the best at the top; the scale with the most runs is filled."""
    points = _differences(found, column, baseline)
    rows = sorted(points, key=lambda row: max(ours for ours, _ in points[row].values()))
    figure = Figure(figsize=(8.4, max(2.8, 1.6 + 0.36 * len(rows))), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    lead = leading([section for _, section in found])[0].scale
    styles = {PAPER: PAPER_STYLE}
    for _, section in found:
        hollow = {} if section.scale is lead else {"markerfacecolor": "none"}
        styles[_source(section)] = PROTOCOL_STYLE[section.protocol] | hollow
    for at, row in enumerate(rows):
        for source, (ours, spread) in points[row].items():
            axes.errorbar(ours, at, xerr=spread, capsize=2, **styles[source])
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(f"points of accuracy above {baseline}")
    axes.set_title(column)
    shown = {source for of_row in points.values() for source in of_row}
    add_legend(figure, {source: style for source, style in styles.items() if source in shown}, columns=2)
    return figure


TABLES = (
    ConvergenceRates("table-1", "asynchronous algorithms and their convergence rates, with what holds of each"),
    AccuracyTable(
        "table-2",
        "accuracy of PC-, P-, C- and D-ASGD: two models, two data sets, 8 and 20 agents, tau 20",
        "CIFAR-10 and CIFAR-100 at quick and full",
        cells=cells_of_cases((*FAMILY, *BEYOND), (8, 20)),
        reported=PRINTED_WITH_8 | _printed(COLUMNS_20, _WITH_20),
        claims=(
            *readings_beat(PARTS, (*COLUMNS_8, *COLUMNS_20)),
            *beats("P-ASGD", ("D-ASGD",), (*COLUMNS_8, *COLUMNS_20)),
            *beats("C-ASGD", ("D-ASGD",), (*COLUMNS_8, *COLUMNS_20)),
        ),
        reading=f"{READINGS_NOTE} {CRITERION_NOTE} {PACE_NOTE}",
    ),
    AccuracyTable(
        "table-3",
        "accuracy of PC-ASGD and four delay-tolerant rivals: two models, two data sets, 8 agents, tau 20",
        "CIFAR-10 and CIFAR-100 at quick and full",
        cells=cells_of_cases((*READINGS, *RIVALS, CEILING, "DM-ASGD")),
        reported=_printed(COLUMNS_8, _RIVALS),
        claims=readings_beat(RIVALS, COLUMNS_8),
        reading=f"{READINGS_NOTE} {CRITERION_NOTE} {PACE_NOTE} The paper's AD-PSGD is its D-ASGD; the page has both. "
        "DASGD-IS and Adaptive Braking take no weight decay. Adaptive Braking has its own momentum of 0.9 under either "
        "protocol. DASGD-IS is plain ASGD here: data and speeds are equal (docs/algorithms/dasgd-is.md).",
    ),
    AccuracyTable(
        "table-4",
        "accuracy for every choice of theta: fixed, by chance, by the criterion; PreResNet-110, CIFAR-10, 8 agents",
        cells=_thetas,
        reported=_printed((FIRST,), _MEANS),
        claims=beats("PC-ASGD-PV", tuple(THETAS), (FIRST,)),
        reading=f"{CRITERION_NOTE} The row theta auto is our default, which the paper does not have.",
    ),
)
