"""Pictures of results, drawn from the stored runs: the paper's numbers hollow, ours filled."""

import math
import textwrap
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer.paper.atlas_view import draw_atlas
from gossamer.paper.findings import Section, number_in
from gossamer.paper.looks import Look, look_of
from gossamer.paper.losses_view import draw_losses
from gossamer.paper.outcomes import Outcome
from gossamer.paper.paper_tables import CHOICE_SHARES
from gossamer.paper.recipes import SYNCHRONOUS
from gossamer.report.style import COLOURS, DASHES, DPI, GREY, styled

PAPER_LOOK: Look = {"marker": "s", "color": GREY, "markerfacecolor": "none", "linestyle": "none"}
PROTOCOL_LOOK: dict[str, Look] = {
    "paper": {"marker": "o", "color": COLOURS[2], "linestyle": "none"},
    "tuned": {"marker": "D", "color": COLOURS[1], "linestyle": "none"},
}
PAPER = "the paper"
PANELS = 4  # in a row
CLUSTER_DASHES = (DASHES[0], DASHES[1], DASHES[2], DASHES[3])


@styled
def draw(sections: Sequence[Section]) -> Figure:
    """Draw the sections of one result at one scale, a protocol each."""
    drawn = _DRAWINGS[sections[0].recipe.kind](sections)
    about = textwrap.fill(sections[0].about, int(8 * drawn.get_figwidth()))  # what stands for the paper's models
    drawn.suptitle(f"{sections[0].recipe.name} at scale {sections[0].scale.name}\n{about}", fontsize=12)
    return drawn


def _panels(titles: Sequence[str], width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title."""
    across = min(PANELS, len(titles))
    down = math.ceil(len(titles) / across)
    figure = Figure(figsize=(max(6.4, width * across), height * down + 1.3), dpi=DPI, layout="constrained")
    panels = [figure.add_subplot(down, across, place + 1) for place in range(len(titles))]
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title.replace("CIFAR-100, ", "CIFAR-100\n").replace("CIFAR-10, ", "CIFAR-10\n"))
    return figure, panels


def _table(sections: Sequence[Section]) -> Figure:
    """Draw a panel a column and a line a row: accuracies with one standard deviation."""
    first = sections[0]
    shown = [name for name in first.columns if any(place[1] == name for each in sections for place in each.outcomes)]
    rows = [row for row in first.rows if any((row, name) in each.outcomes for each in sections for name in shown)]
    figure, panels = _panels(shown, height=max(2.4, 1.0 + 0.3 * len(rows)))
    for place, (panel, name) in enumerate(zip(panels, shown, strict=True)):
        for at, row in enumerate(reversed(rows)):
            reported = first.recipe.reported.get((row, name))
            if reported is not None:
                panel.errorbar(reported.mean, at, xerr=reported.std or None, capsize=2, **PAPER_LOOK)
            for shift, section in zip((-0.14, 0.14), sections, strict=False):
                _dot(panel, section.outcomes.get((row, name)), at + shift, PROTOCOL_LOOK[section.protocol])
        panel.set_yticks(range(len(rows)), list(reversed(rows)) if place % PANELS == 0 else [""] * len(rows))
        panel.grid(visible=True, axis="both")
        panel.set_xlabel("test accuracy in %")
    looks = {f"here, protocol {section.protocol}": PROTOCOL_LOOK[section.protocol] for section in sections}
    add_legend(figure, {PAPER: PAPER_LOOK, **looks}, columns=3)
    return figure


def _dot(panel: Axes, outcome: Outcome | None, at: float, look: Look) -> None:
    if outcome is not None:
        panel.errorbar(outcome.mean, at, xerr=outcome.std, capsize=2, **look)


def add_legend(figure: Figure, looks: dict[str, Look], columns: int) -> None:
    """Say below the panels whose markers look how."""
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _curves(sections: Sequence[Section]) -> Figure:
    """Draw accuracy over the epochs: a panel a case and protocol."""
    shown = [
        (section, name)
        for section in sections
        for name in section.columns
        if any(place[1] == name for place in section.outcomes)
    ]
    figure, panels = _panels([f"{name}\nprotocol {section.protocol}" for section, name in shown])
    for panel, (section, name) in zip(panels, shown, strict=True):
        for row in section.rows:
            outcome = section.outcomes.get((row, name))
            if outcome is not None:
                epochs, accuracy = outcome.curve("accuracy")
                panel.plot(epochs, [100 * value for value in accuracy], **look_of(row, section.rows))
        panel.set_xlabel("epochs")
        panel.set_ylabel("test accuracy in %")
    _legend(figure, sections[0].rows)
    return figure


def _against_numbers(sections: Sequence[Section]) -> Figure:
    """Draw accuracy against the number in a column's name: delays or sizes; a panel a protocol."""
    figure, panels = _panels([f"protocol {section.protocol}" for section in sections], width=5.2, height=4.0)
    of_delay = sections[0].recipe.kind == "delays"
    for panel, section in zip(panels, sections, strict=True):
        for row in section.rows:
            _line_of_row(panel, section, row)
        if of_delay:
            panel.set_xscale("symlog", linthresh=1)
        numbers = sorted({number_in(name)[1] for name in section.columns if name != SYNCHRONOUS})
        panel.set_xticks(numbers, list(map(str, numbers)))
        panel.minorticks_off()
        panel.set_xlabel("delay tau" if of_delay else "agents")
        panel.set_ylabel("test accuracy in %")
    _legend(figure, sections[0].rows)
    return figure


def _line_of_row(panel: Axes, section: Section, row: str) -> None:
    look = look_of(row, section.rows)
    columns = [name for name in section.columns if (row, name) in section.outcomes]
    outcomes = [section.outcomes[row, name] for name in columns]
    if SYNCHRONOUS in columns:  # without delay: the ceiling of all delays
        panel.axhline(outcomes[0].mean, **{**look, "marker": ""})
    elif outcomes:
        numbers, means = [number_in(name)[1] for name in columns], [outcome.mean for outcome in outcomes]
        panel.errorbar(numbers, means, yerr=[outcome.std or 0.0 for outcome in outcomes], capsize=2, **look)


def _choices(sections: Sequence[Section]) -> Figure:
    """Draw the share of predicting over the epochs: a panel a granularity and protocol, a line a cluster."""
    parts = [
        (section, part)
        for section in sections
        for part in ("model", "tensor")
        if any(row.endswith(part) for row, _ in section.outcomes)
    ]
    titles = [f"a choice for each {part}, protocol {section.protocol}" for section, part in parts]
    figure, panels = _panels(titles, width=4.8)
    criteria = list(dict.fromkeys(row.partition(",")[0] for row in sections[0].rows))
    for panel, (section, part) in zip(panels, parts, strict=True):
        for share in CHOICE_SHARES:
            panel.axhline(share, color=GREY, linewidth=1, linestyle=":")
        for order, criterion in enumerate(criteria):
            outcome = section.outcomes.get((f"{criterion}, {part}", section.columns[0]))
            for cluster, line in enumerate(_cluster_lines(outcome)):
                panel.plot(*line, color=COLOURS[order % len(COLOURS)], linestyle=CLUSTER_DASHES[cluster % 4])
        panel.set_ylim(-0.04, 1.04)
        panel.set_xlabel("epochs")
    panels[0].set_ylabel("share of predicting steps")
    handles = [Line2D([], [], color=COLOURS[at % len(COLOURS)], label=name) for at, name in enumerate(criteria)]
    handles += [Line2D([], [], color=GREY, linestyle=CLUSTER_DASHES[at], label=f"cluster {at + 1}") for at in (0, 1)]
    handles.append(Line2D([], [], color=GREY, linewidth=1, linestyle=":", label="the paper"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _cluster_lines(outcome: Outcome | None) -> list[tuple[list[float], list[float]]]:
    """Return epochs and shares of each cluster."""
    if outcome is None:
        return []
    epochs, shares = outcome.predict_shares()
    clusters = zip(*shares, strict=True)
    return [
        (
            [epoch for epoch, share in zip(epochs, cluster, strict=True) if share is not None],
            [share for share in cluster if share is not None],
        )
        for cluster in clusters
    ]


def _times(sections: Sequence[Section]) -> Figure:
    """Draw the seconds of an epoch as bars."""
    section = sections[0]
    rows = [row for row in section.rows if (row, section.columns[0]) in section.outcomes]
    figure, (panel,) = _panels(["an epoch, all agents on one device"])
    outcomes = [section.outcomes[row, section.columns[0]] for row in rows]
    errors = [outcome.std or 0.0 for outcome in outcomes]
    panel.bar(rows, [outcome.mean for outcome in outcomes], yerr=errors, color=COLOURS[6], width=0.6, capsize=3)
    panel.set_ylabel("seconds")
    return figure


def _legend(figure: Figure, rows: Sequence[str]) -> None:
    handles = [Line2D([], [], label=row, **look_of(row, rows)) for row in rows]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


_DRAWINGS: dict[str, Callable[[Sequence[Section]], Figure]] = {
    "table": _table,
    "target": draw_losses,
    "curves": _curves,
    "delays": _against_numbers,
    "sizes": _against_numbers,
    "atlas": draw_atlas,
    "choices": _choices,
    "times": _times,
}
