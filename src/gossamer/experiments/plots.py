"""Pictures for reports: curves over the iterations, the network, and both side by side.

Figures are made without pyplot, so no window opens and the caller's backend and open figures stay as they are.
"""

import functools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray

from gossamer.errors import UserError, unknown_name
from gossamer.experiments.runs import Curve, Run, check_drawable, conditions, fold, has_predict, short
from gossamer.network import Network, PerLink, Scaled
from gossamer.shapes import Bool, Tensor

DPI = 150

# Okabe and Ito's colour-blind-safe colours without yellow, which is too pale for a line. Dashes and markers
# repeat at other intervals than colours, so that no two of the first 280 labels look the same.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2)))
MARKERS = "osD^vPX*"
# Paul Tol's "light" scheme: colour-blind-safe, and pale enough for black numbers.
FILLS = ("#77AADD", "#EE8866", "#EEDD88", "#44BB99", "#FFAABB", "#99DDFF", "#BBCC33", "#DDDDDD")
RELIABLE, LATE, GREY = "#333333", "#D55E00", "#555555"

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "text.usetex": False,
}

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Quantity:
    """What a row of the history holds for each agent, and how it is drawn."""

    title: str
    factor: float = 1.0
    log: bool = False
    unit: str = ""


QUANTITIES = {
    "accuracy": Quantity("Test accuracy (%)", factor=100, unit=" %"),
    "loss": Quantity("Test loss", log=True),
    "consensus": Quantity("Distance from the average model", log=True),
    "predict": Quantity("Share of predicting (%)", factor=100, unit=" %"),
}


def _styled(draw: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Draw with STYLE and leave the caller's own style as it was."""

    @functools.wraps(draw)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


@_styled
def draw_curves(runs: Sequence[Run], quantity: str) -> Figure:
    """Draw a quantity of QUANTITIES over the iterations: a line for each label, a band for its seeds' range."""
    if quantity not in QUANTITIES:
        raise unknown_name("quantity", quantity, QUANTITIES)
    check_drawable(runs)
    if quantity == "predict" and not has_predict(runs):
        raise UserError("no run has a predict share; give a run of an algorithm that chooses, such as pc-asgd")
    figure = Figure(figsize=(8, 4.6), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    handles = _curves_on(axes, runs, quantity)
    axes.set_title(f"{QUANTITIES[quantity].title}, mean over agents")
    names = [textwrap.fill(str(handle.get_label()), 24) for handle in handles]
    legend = figure.legend(
        handles, names, loc="outside right upper", title=conditions(runs), handlelength=3.2, labelspacing=0.7
    )
    legend.set_alignment("left")
    legend.get_title().set(color=GREY, fontsize=9.5)
    return figure


@_styled
def draw_network(network: Network) -> Figure:
    """Draw agents as circles, the clusters apart, reliable links solid and late ones dashed."""
    figure = Figure(figsize=(6.4, 5.6), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    handles = _network_on(axes, network, inches=5.0)
    axes.set_title(_network_title(network))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


@_styled
def draw_overview(runs: Sequence[Run], network: Network) -> Figure:
    """Draw the network at the left, and accuracy, consensus distance and predict share at the right."""
    check_drawable(runs)
    figure = Figure(figsize=(12.4, 6.0), dpi=DPI, layout="constrained")
    rows = 2 if has_predict(runs) else 1
    grid = figure.add_gridspec(rows, 3, width_ratios=(1, 1.25, 1))
    net = figure.add_subplot(grid[:, 0])
    links = _network_on(net, network, inches=3.5)
    net.set_title(_network_title(network))
    if links:
        net.legend(handles=links, loc="upper center", bbox_to_anchor=(0.5, 0.0), handlelength=3.2)
    accuracy = figure.add_subplot(grid[:, 1])
    handles = _curves_on(accuracy, runs, "accuracy")
    for row, quantity in enumerate(("consensus", "predict")[:rows]):
        axes = figure.add_subplot(grid[row, 2])
        _curves_on(axes, runs, quantity)
        if row < rows - 1:
            axes.set_xlabel("")
    columns = min(4, len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2, columnspacing=2.5)
    title = " · ".join(conditions(runs).splitlines())
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, color=GREY)
    return figure


def write_plots(folder: Path, runs: Sequence[Run], network: Network) -> list[Path]:
    """Write accuracy, loss, consensus, predict, network and overview as PNG, and return the paths.

    predict.png is left out when no run has a predict share.
    """
    check_drawable(runs)
    figures = {name: draw_curves(runs, name) for name in QUANTITIES if name != "predict" or has_predict(runs)} | {
        "network": draw_network(network),
        "overview": draw_overview(runs, network),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=DPI, facecolor="white")
    return paths


def _curves_on(axes: Axes, runs: Sequence[Run], name: str) -> list[Line2D]:
    """Draw the curves, and return handles for a legend: one for each label, drawn or not."""
    quantity = QUANTITIES[name]
    curves = fold(runs, name, factor=quantity.factor, positive=quantity.log)
    drawn = [curve for curve in curves if len(curve.steps)]
    axes.set_title(quantity.title)
    axes.set_xlabel("iterations")
    if not drawn:
        axes.text(0.5, 0.5, "no value above zero\nto draw", transform=axes.transAxes, ha="center", color=GREY)
        axes.set(xticks=[], yticks=[])
        return [_line(curve, curve.label) for curve in curves]
    if quantity.log:
        axes.set_yscale("log")
    limits = _limits(name, drawn)
    axes.set_ylim(*limits)
    last = max(int(curve.steps[-1]) for curve in drawn)
    axes.set_xlim(-0.015 * last - 0.5, 1.015 * last + 0.5)
    handles = []
    for curve in drawn:
        line = _line(curve, _legend_label(curve, limits, quantity))
        line.set_markevery(_mark(curve, len(curves)))
        axes.add_line(line)
        axes.fill_between(curve.steps, curve.low, curve.high, color=line.get_color(), alpha=0.13, linewidth=0)
        for step, value in curve.ends:
            axes.plot(
                step,
                np.clip(value, *limits),
                "X",
                color=line.get_color(),
                markersize=10,
                zorder=5,
                clip_on=False,
            )
        handles.append(line)
    return handles


def _line(curve: Curve, label: str) -> Line2D:
    index = curve.order
    return Line2D(
        curve.steps,
        curve.mean,
        label=label,
        color=COLOURS[index % len(COLOURS)],
        linestyle=DASHES[index % len(DASHES)],
        marker=MARKERS[index % len(MARKERS)],
        markersize=5.5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linewidth=1.7,
    )


def _mark(curve: Curve, num_curves: int) -> list[int]:
    """Return the points that get a marker: about eight, at other iterations for each curve."""
    every = max(1, len(curve.steps) // 8)
    return list(range(curve.order * every // num_curves, len(curve.steps), every))


def _legend_label(curve: Curve, limits: tuple[float, float], quantity: Quantity) -> str:
    """Return the label, with what the axes do not show of the curve."""
    notes = []
    if curve.num_diverged:
        notes.append("diverged" if curve.num_seeds == 1 else f"{curve.num_diverged} of {curve.num_seeds} diverged")
    if not limits[0] <= curve.mean[-1] <= limits[1]:
        notes.append(f"ends at {curve.mean[-1]:.3g}{quantity.unit}")
    return f"{curve.label} ({', '.join(notes)})" if notes else curve.label


def _limits(name: str, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return limits of the y axis that show where most curves are, whatever the worst one does."""
    values = np.concatenate([curve.mean for curve in curves])
    if QUANTITIES[name].log:
        middle = float(np.median(values))
        return 0.8 * max(float(values.min()), 1e-4 * middle), 1.25 * min(float(values.max()), 1e3 * middle)
    if name == "predict":
        return -3.0, 103.0
    top, quarter = float(values.max()), float(np.quantile(values, 0.25))
    # Below half of the best accuracy there is nothing to compare; the legend says who ends there.
    bottom = min(max(quarter - 0.2 * (top - quarter), top / 2), top - 10)
    bottom = max(0.0, 5 * math.floor(bottom / 5))
    return bottom, min(top + 0.08 * (top - bottom), 100.5)


def _network_on(axes: Axes, network: Network, inches: float) -> list[Line2D]:
    """Draw a network on axes about this wide, and return handles for a legend."""
    places, halos = _layout(network)
    axes.set_aspect("equal")
    axes.axis("off")
    for index, (centre, radius) in enumerate(halos):
        fill = FILLS[index % len(FILLS)]
        axes.add_patch(Circle(tuple(centre), radius, facecolor=fill, alpha=0.25, edgecolor="none", zorder=0))
    late = _late(network)
    handles = []
    for links, label, colour, dashes, width in (
        (network.links & ~late, "reliable link", RELIABLE, "solid", 1.9),
        (late, _late_label(network), LATE, (0, (4, 2.5)), 0.8 if late.sum() > 60 else 1.2),
    ):
        pairs = links.triu().nonzero().tolist()
        if not pairs:
            continue
        style = {"linestyle": dashes, "linewidth": width}
        segments = [places[pair] for pair in pairs]
        axes.add_collection(LineCollection(segments, colors=colour, label=label, zorder=1, **style))
        handles.append(Line2D([], [], color=colour, label=f"{label} ({len(pairs)})", **style))
    low, high = places.min(axis=0) - 0.75, places.max(axis=0) + 0.75
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    size = min(10.0, 22 * inches / float((high - low).max()))
    for agent, place in enumerate(places):
        fill = FILLS[int(network.cluster_of[agent]) % len(FILLS) if halos else 0]
        axes.add_patch(Circle(tuple(place), 0.3, facecolor=fill, edgecolor=RELIABLE, linewidth=1.1, zorder=2))
        if size >= 4:
            axes.text(*place, str(agent), ha="center", va="center_baseline", fontsize=size, zorder=3)
    return handles


def _late(network: Network) -> Bool[Tensor, "n n"]:
    """Return the links on which a message can be late or lost, in either direction."""
    delay = network.delay.base if isinstance(network.delay, Scaled) else network.delay
    late = network.links & ~network.spared
    if isinstance(delay, PerLink):
        slow = network.links & (delay.matrix > 0)
        return slow | slow.T if network.loss == 0 else slow | slow.T | late
    return late if delay.largest > 0 or network.loss > 0 else late & False


def _late_label(network: Network) -> str:
    unit = " epochs" if isinstance(network.delay, Scaled) else " steps" if network.delay.spec().isdecimal() else ""
    lost = f", {network.loss:.0%} lost" if network.loss else ""
    return f"late link, delay {short(network.delay.spec())}{unit}{lost}"


def _network_title(network: Network) -> str:
    agents = "1 agent" if network.num_agents == 1 else f"{network.num_agents} agents"
    sizes = [str(len(members)) for members in network.clusters or ()]
    clusters = f" in clusters of {'+'.join(sizes)}" if 1 < len(sizes) < network.num_agents and len(sizes) < 7 else ""
    return f"{short(network.spec)}: {agents}{clusters}"


def _circle(count: int, start: float = math.pi / 2) -> NDArray[np.float64]:
    """Return points on a circle, clockwise from an angle, at a distance of 1 from one to the next."""
    if count == 1:
        return np.zeros((1, 2))
    angles = start - 2 * math.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) / (2 * math.sin(math.pi / count))


def _layout(network: Network) -> tuple[NDArray[np.float64], list[tuple[NDArray[np.float64], float]]]:
    """Return where each agent is drawn, and centre and radius of each cluster when there is more than one."""
    clusters, num_agents = network.clusters or (), network.num_agents
    if not 1 < len(clusters) < num_agents:
        return _plain_layout(network), []
    rings = [_circle(len(members)) for members in clusters]
    radii = [float(np.linalg.norm(ring[0])) + 0.55 for ring in rings]
    # The widest pair of neighbours sets the distance of all.
    apart = max(radii[index - 1] + radii[index] for index in range(len(radii))) + 0.7
    even = len(clusters) % 2 == 0
    centres = apart * _circle(len(clusters), math.pi / 2 + (math.pi / len(clusters) if even else 0))
    places = np.zeros((num_agents, 2))
    for members, ring, centre in zip(clusters, rings, centres, strict=True):
        places[list(members)] = ring + centre
    return places, list(zip(centres, radii, strict=True))


def _plain_layout(network: Network) -> NDArray[np.float64]:
    """Return a bent grid for a torus, the hub in the middle of a star, and otherwise a circle."""
    num_agents, (kind, _, size) = network.num_agents, network.spec.partition(":")
    if kind == "torus":
        rows, columns = (int(number) for number in size.split("x"))
        row, column = np.divmod(np.arange(num_agents), columns)
        # The ends of each row and column are lifted, so that the link that closes it hides no other.
        x = column + 0.5 * (2 * row / (rows - 1) - 1) ** 2
        y = -row + 0.5 * (2 * column / (columns - 1) - 1) ** 2
        return 1.2 * np.stack([x, y], axis=1)
    if kind == "star" and num_agents > 3:
        return np.concatenate([np.zeros((1, 2)), max(1.0, 8 / num_agents) * _circle(num_agents - 1)])
    return 1.2 * _circle(num_agents, math.pi if num_agents == 2 else math.pi / 2)
