"""Figures: curves over iterations or seconds, the network, an overview of both, and the ranking.

Figures do not use pyplot: no window opens, and the caller's backend and open figures do not change.
"""

import io
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from gossamer.errors import UserError, unknown_name
from gossamer.network import Network
from gossamer.report.axes import Axis, axis_of, places_by_mark
from gossamer.report.network_picture import NetworkLayout, late_label, late_links, lay_out, network_title
from gossamer.report.runs import QUANTITIES, Curve, check_drawable, fold, has_predict, limits
from gossamer.report.style import (
    COLOURS,
    DASHES,
    DPI,
    FILLS,
    GREY,
    LATE,
    OVERVIEW_DPI,
    RELIABLE,
    Dashes,
    line_style,
    save_picture,
    styled,
)
from gossamer.run.metric_rows import LabelledRun, conditions, labels_of
from gossamer.shapes import Bool, Tensor


class Picture(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        save_picture(self, file, dpi=80)
        return file.getvalue()


PICTURES = ("accuracy", "loss", "consensus", "predict")  # the curves that write_plots writes


@styled
def draw_curves(runs: Sequence[LabelledRun], quantity: str, *, axis: str | None = None) -> Figure:
    """Draw a quantity over an axis: a line and a band for each label.

    Args:
        axis: iterations, epochs, sim_seconds, seconds or megabytes. Without it, simulated seconds if all runs have
            them, otherwise iterations.
    """
    if quantity not in QUANTITIES:
        raise unknown_name("quantity", quantity, QUANTITIES)
    check_drawable(runs)
    if quantity == "predict" and not has_predict(runs):
        raise UserError("no run has a predict share; give a run of an algorithm that predicts, such as pc-asgd")
    across = axis_of(runs, axis)
    figure = Picture(figsize=(8, 4.6), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    handles = _curves_on(axes, runs, quantity, across)
    total = QUANTITIES[quantity].total
    axes.set_title(QUANTITIES[quantity].title + ("" if total else ", mean over agents"))
    names = [textwrap.fill(str(handle.get_label()), 24) for handle in handles]
    common = "\n".join(conditions(runs))
    legend = figure.legend(handles, names, loc="outside right upper", title=common, labelspacing=0.7)
    legend.set_alignment("left")
    legend.get_title().set(color=GREY, fontsize=9.5)
    return figure


@styled
def draw_quantities(runs: Sequence[LabelledRun], *, axis: str | None = None) -> Figure:
    """Draw accuracy, loss, consensus distance and, if a run has it, predict share, side by side.

    Args:
        axis: as for `draw_curves`.
    """
    check_drawable(runs)
    across = axis_of(runs, axis)
    names = ["accuracy", "loss", "consensus", *(["predict"] if has_predict(runs) else [])]
    rows, columns = (2, 2) if len(names) == 4 else (1, 3)
    figure = Picture(figsize=(10.4, 3.4 * rows), dpi=OVERVIEW_DPI, layout="constrained")
    handles: list[Line2D] = []
    for place, name in enumerate(names):
        drawn = _curves_on(figure.add_subplot(rows, columns, place + 1), runs, name, across)
        handles = handles or drawn
    if len(labels_of(runs)) > 1 or any(run.diverged for run in runs):
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
    label = "" if len(labels_of(runs)) > 1 else f"{runs[0].label}: "
    figure.suptitle(label + " · ".join(conditions(runs)), fontsize=12)
    return figure


@styled
def draw_network(network: Network) -> Figure:
    """Draw agents as circles in their clusters, reliable links solid and late links dashed."""
    layout = lay_out(network)
    width, height = layout.size
    inch = min(6.2 / width, 5.2 / height, 1.1)  # the length of 1 in the layout
    figure = Picture(figsize=(6.6, inch * height + 0.95), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    handles = _network_on(axes, network, layout, inch)
    figure.suptitle(network_title(network), fontsize=12, fontweight="bold")
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


@styled
def draw_overview(runs: Sequence[LabelledRun], network: Network) -> Figure:
    """Draw the network on the left; accuracy, consensus distance and predict share on the right."""
    check_drawable(runs)
    common, across = conditions(runs), axis_of(runs, None)
    figure = Picture(figsize=(11.4, 5.8), dpi=OVERVIEW_DPI, layout="constrained")
    rows = 2 if has_predict(runs) else 1
    grid = figure.add_gridspec(rows, 3, width_ratios=(1, 1.3, 1))
    left = figure.add_subplot(grid[:, 0])
    layout = lay_out(network).upright()
    links = _network_on(left, network, layout, min(3.0 / layout.size[0], 3.6 / layout.size[1]))
    left.set_title(network_title(network).replace(", ", "\n", 1))
    if links:
        left.legend(handles=links, loc="upper center", bbox_to_anchor=(0.5, 0.0))
    handles = _curves_on(figure.add_subplot(grid[:, 1]), runs, "accuracy", across)
    for row, quantity in enumerate(("consensus", "predict")[:rows]):
        axes = figure.add_subplot(grid[row, 2])
        _curves_on(axes, runs, quantity, across)
        if row < rows - 1:
            axes.set_xlabel("")
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(4, len(handles), int(11 / (0.7 + 0.09 * longest))))  # as many as fit into 11 inches
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    number = len(labels_of(runs))
    algorithms = f"{number} algorithms" if number > 1 else handles[0].get_label()
    figure.suptitle(" · ".join([f"{algorithms}: {common[0]}", *common[1:]]), fontsize=13)
    return figure


def write_plots(folder: Path, runs: Sequence[LabelledRun], network: Network) -> list[Path]:
    """Write accuracy, loss, consensus, predict, ranking, network and overview as PNG, and return the paths.

    Without a predict share there is no predict.png.
    """
    check_drawable(runs)
    names = [name for name in PICTURES if name != "predict" or has_predict(runs)]
    figures = {name: draw_curves(runs, name) for name in names}
    figures |= {"ranking": draw_ranking(runs), "network": draw_network(network)}
    figures["overview"] = draw_overview(runs, network)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        save_picture(figure, paths[-1])
    return paths


def _curves_on(axes: Axes, runs: Sequence[LabelledRun], name: str, across: Axis) -> list[Line2D]:
    """Draw the curves and return handles for the legend; with nothing to draw, of every label."""
    curves = fold(runs, name)
    drawn = [curve for curve in curves if len(curve.marks)]
    axes.set_title(QUANTITIES[name].title)
    axes.set_xlabel(across.title.lower())
    if not drawn:
        axes.text(0.5, 0.5, "no value above zero", transform=axes.transAxes, ha="center", color=GREY)
        axes.set(xticks=[], yticks=[])
        return [_line(curve, [], curve.label) for curve in curves]
    low, high = limits(name, drawn)
    where = {curve.label: _places(runs, curve.label, across) for curve in drawn}
    last = max(where[curve.label][curve.marks[-1]] for curve in drawn)
    axes.set(yscale="log" if QUANTITIES[name].log else "linear", ylim=(low, high), xlim=_x_limits(last, across))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=across.key == "iterations"))
    if QUANTITIES[name].log:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    lines = []
    for curve in drawn:
        place = where[curve.label]
        x = [place[mark] for mark in curve.marks]
        line = _line(curve, x, _legend_label(curve, low, high, QUANTITIES[name].unit))
        every = max(1, len(x) // 8)
        # About eight markers per curve, at different places for each curve.
        line.set_markevery(list(range(curve.order * every // len(curves), len(x), every)))
        axes.add_line(line)
        axes.fill_between(x, curve.low, curve.high, color=line.get_color(), alpha=0.13, linewidth=0)
        for mark, value in curve.ends:
            end = min(max(value, low), high)
            axes.plot(place[mark], end, "X", color=line.get_color(), markersize=10, zorder=5, clip_on=False)
        lines.append(line)
    return lines


def _places(runs: Sequence[LabelledRun], label: str, across: Axis) -> dict[float, float]:
    """Return the place of each mark of a label's clock on the axis."""
    found = places_by_mark([run.history for run in runs if run.label == label], [across])
    return {mark: float(place[across.key] or 0.0) for mark, place in found.items()}


def _x_limits(last: float, across: Axis) -> tuple[float, float]:
    """Return the limits of the x axis; half an iteration more than a margin, so that a single one can be drawn."""
    spare = 0.5 if across.key == "iterations" else 0.0 if last else 0.5
    return -0.015 * last - spare, 1.015 * last + spare


def _line(curve: Curve, x: Sequence[float], label: str) -> Line2D:
    return Line2D(x, curve.mean, label=label, **line_style(curve.order))


def _legend_label(curve: Curve, low: float, high: float, unit: str) -> str:
    """Return the label, with a note on values outside the axes."""
    notes = []
    if curve.num_diverged:
        share = "" if curve.num_seeds == 1 else f"{curve.num_diverged} of {curve.num_seeds} "
        notes.append(f"{share}diverged")
    if not low <= curve.mean[-1] <= high:
        notes.append(f"ends at {curve.mean[-1]:.3g}{unit}")
    return f"{curve.label} ({', '.join(notes)})" if notes else curve.label


def _network_on(axes: Axes, network: Network, layout: NetworkLayout, inch: float) -> list[Line2D]:
    """Draw a network at a scale of `inch` per length 1, and return handles for the legend."""
    low, high = layout.corners
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.axis("off")
    for index, (centre, radius) in enumerate(zip(layout.centres.tolist(), layout.radii, strict=True)):
        fill = FILLS[index % len(FILLS)]
        axes.add_patch(Circle(centre, radius, facecolor=fill, alpha=0.25, edgecolor="none", zorder=0))
    font_size = min(12.0, 20 * inch)
    for agent, (x, y) in enumerate(layout.places.tolist()):
        fill = FILLS[int(network.cluster_of[agent]) % len(FILLS) if layout.radii else 0]
        axes.add_patch(Circle((x, y), 0.3, facecolor=fill, edgecolor=RELIABLE, linewidth=1.1, zorder=2))
        if font_size >= 4:
            axes.text(x, y, str(agent), ha="center", va="center_baseline", fontsize=font_size, zorder=3)
    late = late_links(network)
    width = 0.8 if int(late.sum()) > 100 else 1.3
    solid = _links_on(axes, layout, network.links & ~late, "reliable link", RELIABLE, DASHES[0], 1.9)
    return solid + _links_on(axes, layout, late, late_label(network), LATE, (0.0, (4.0, 2.5)), width)


def _links_on(
    axes: Axes, layout: NetworkLayout, links: Bool[Tensor, "n n"], label: str, colour: str, dashes: Dashes, width: float
) -> list[Line2D]:
    """Draw links, and return a handle for the legend if there are any."""
    pairs = links.triu().nonzero().tolist()
    if not pairs:
        return []
    segments = [layout.places[pair] for pair in pairs]
    lines = LineCollection(segments, colors=colour, linestyles=[dashes], linewidths=width, label=label, zorder=1)
    axes.add_collection(lines)
    return [Line2D([], [], color=colour, linestyle=dashes, linewidth=width, label=f"{label} ({len(pairs)})")]


@styled
def draw_ranking(runs: Sequence[LabelledRun]) -> Figure:
    """Draw the final accuracies of each label: a dot per seed, a bar at the mean, a cross if the run ended early."""
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
    axes.set_xlabel("final test accuracy in %, mean over agents")
    axes.set_title(" · ".join(conditions(runs)[:2]))
    note: dict[str, Any] = {"ha": "right", "va": "bottom", "color": GREY, "fontsize": 9}
    axes.text(1, 0, "dot: seed, bar: mean ", transform=axes.transAxes, **note)
    return figure


def _accuracy(run: LabelledRun) -> float:
    return 100 * statistics.fmean(run.history[-1]["accuracy"])


def _name(run: LabelledRun) -> str:
    """Return the label with its learning rate."""
    rate = run.summary.get("lr")
    return run.label.replace("/", " ") if rate is None else f"{run.label.replace('/', ' ')}   lr {rate:g}"
