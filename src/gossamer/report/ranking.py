"""Who ended where: every seed's last accuracy, the best algorithm at the top."""

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from gossamer.report.runs import Run, check_drawable, conditions, labels_of
from gossamer.report.style import COLOURS, DPI, GREY, LATE, styled


@styled
def draw_ranking(runs: Sequence[Run]) -> Figure:
    """Draw the last accuracies of each label: a dot a seed, a bar at the mean; crosses ended early."""
    check_drawable(runs)
    ends = {label: [run for run in runs if run.label == label] for label in labels_of(runs)}
    means = {label: statistics.fmean(_accuracy(run) for run in of_label) for label, of_label in ends.items()}
    order = sorted(ends, key=lambda label: means[label])
    figure = Figure(figsize=(8, 1.4 + 0.27 * len(order)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    for row, label in enumerate(order):
        whole = [_accuracy(run) for run in ends[label] if not run.diverged]
        broken = [_accuracy(run) for run in ends[label] if run.diverged]
        axes.plot(whole, [row] * len(whole), "o", color=COLOURS[2], alpha=0.55, markersize=5, markeredgewidth=0)
        axes.plot(broken, [row] * len(broken), "X", color=LATE, markersize=7)
        axes.plot([means[label]], [row], "|", color=COLOURS[0], markersize=13, markeredgewidth=2)
    axes.set_yticks(range(len(order)), [_name(ends[label][0]) for label in order])
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.grid(visible=True, axis="both")
    axes.set_xlabel("last test accuracy in %, mean over agents")
    axes.set_title(" · ".join(conditions(runs)[:2]))
    note: dict[str, Any] = {"ha": "right", "va": "bottom", "color": GREY, "fontsize": 9}
    axes.text(1, 0, "dots: seeds, bars: means ", transform=axes.transAxes, **note)
    return figure


def _accuracy(run: Run) -> float:
    return 100 * statistics.fmean(run.history[-1]["accuracy"])


def _name(run: Run) -> str:
    """Return the label with the learning rate that belongs to it."""
    rate = run.summary.get("lr")
    return run.label.replace("/", " ") if rate is None else f"{run.label.replace('/', ' ')}   lr {rate:g}"
