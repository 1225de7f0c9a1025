"""Pictures of the simple functions: the agents' paths over the contours, gradients beside their bound, divergences."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from gossamer.paper.toy import Row
from gossamer.report.style import COLOURS, DASHES, DPI, GREY, line_style, save_picture, styled
from gossamer.theory.functions import FUNCTIONS, Function

FORM = "derived"
PATH_DELAY = 20  # whose trajectories are drawn, where there is such a run
CEILING = 1e8  # of the gradients of runs that diverge
GRID = 300  # points a side for contours
BOUND_DASHES = (0.0, (4.0, 2.0))


def write_toy_figures(results: Sequence[Row], folder: Path) -> list[Path]:
    """Write NAME.png and NAME-printed-step.png for each function, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in dict.fromkeys(row["function"] for row in results):
        rows = [row for row in results if row["function"] == name]
        for stem, figure in ((name, draw_scaled(rows)), (f"{name}-printed-step", draw_unscaled(rows))):
            paths.append(folder / f"{stem}.png")
            save_picture(figure, paths[-1])
    return paths


@styled
def draw_scaled(rows: Sequence[Row]) -> Figure:
    """Draw the scaled problem of one function: the agents' paths, and average gradients beside the bound."""
    scaled = [row for row in rows if row["scale"] != 1]
    figure = Figure(figsize=(11.4, 5.4), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    finished = [row for row in scaled if row["path"] is not None]
    if finished:
        _paths_on(left, min(finished, key=lambda row: abs(row["delay"] - PATH_DELAY)))
    handles = _averages_on(right, scaled)
    tight: dict[str, Any] = {"handlelength": 2.4, "columnspacing": 1.3, "fontsize": 10.5}
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), **tight)
    head = scaled[0]
    figure.suptitle(
        f"{head['function'].capitalize()} times {head['scale']:g}, learning rate {head['lr']:g}: three agents, "
        f"PC-ASGD with theta = {head['theta']:g}, mean over {head['seeds']} seeds",
        fontsize=12,
    )
    return figure


@styled
def draw_unscaled(rows: Sequence[Row]) -> Figure:
    """Draw the squared gradient at every step of the function as it is: a panel for each step size and lambda."""
    plain = [row for row in rows if row["scale"] == 1]
    settings = list(dict.fromkeys((row["lr"], row["lam"]) for row in plain))
    figure = Figure(figsize=(11.4, 5.2), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axes, (lr, lam) in zip(panels, settings, strict=True):
        shown = [row for row in plain if (row["lr"], row["lam"]) == (lr, lam)]
        for index, row in enumerate(shown):
            _fate_on(axes, row, index)
        limit = min(row["theorem_step_limit"] for row in shown)
        relation = "<" if lr < limit else ">"
        axes.set_title(f"eta = {lr:g} {relation} 1/gamma = {limit:.2g}\nlambda = {lam:g}")
        axes.set(yscale="log", xlabel="iterations t", xlim=(-0.2, 1.4 * row["steps"]))
        axes.set_xscale("symlog", linthresh=1)  # with the start at 0
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    low = min(value for row in plain for value in row["gradient_squared"])
    panels[0].set_ylim(low / 3, _cross_height(len(shown)))
    panels[0].set_yticks([tick for tick in 10.0 ** np.arange(-9, 9) if low / 3 < tick <= CEILING])
    panels[0].set_ylabel("$\\|\\nabla F(x_t)\\|^2$")
    handles = [_delay_line(row["delay"], index) for index, row in enumerate(shown)]
    handles.append(Line2D([], [], color=GREY, marker="X", markersize=9, linestyle="none", label="first diverged"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    name = plain[0]["function"].capitalize()
    figure.suptitle(f"{name} as it is: the printed step, and one that Theorem 2 allows", fontsize=12)
    return figure


def running_average(row: Row) -> np.ndarray:
    """Return the mean of the squared gradients of the first T states, for T from 1 on."""
    values = np.asarray(row["gradient_squared"][: row["steps"]])
    return np.asarray(np.cumsum(values) / np.arange(1, len(values) + 1))


def running_bound(row: Row) -> np.ndarray | None:
    """Return Theorem 2's bound on the same means, or None where there is none."""
    bound = row["bounds"][FORM]
    if bound["value"] is None:
        return None
    lasting = bound["value"] - bound["start"]
    return np.asarray(lasting + bound["start"] * row["steps"] / np.arange(1, row["steps"] + 1))


def _paths_on(axes: Axes, row: Row) -> None:
    """Draw the path of each agent, from a circle to a square, and a second time enlarged if it is short."""
    function = FUNCTIONS[row["function"]](row["scale"])
    path = np.asarray(row["path"])  # [steps + 1, n, 2]
    points = path.reshape(-1, 2)
    # The origin shows how Rosenbrock's valley bends towards the minimum.
    whole, near = _window(np.concatenate([points, [function.minimum.tolist(), (0.0, 0.0)]])), _window(points)
    _paths_in(axes, function, path, *whole)
    axes.plot(*function.minimum.tolist(), "*", color="white", markeredgecolor="black", markersize=15, zorder=4)
    axes.set(xlabel="$x_1$", ylabel="$x_2$", title=f"The agents' ways, delay {row['delay']}, seed 0 (star: minimum)")
    if row["function"] == "rosenbrock":
        inset = axes.inset_axes((0.36, 0.47, 0.4, 0.5))
        _paths_in(inset, function, path, *near)
        inset.set(xticks=[], yticks=[])
        inset.spines[:].set(visible=True)
        axes.indicate_inset_zoom(inset, edgecolor=GREY)
    handles = [Line2D([], [], **_agent_style(agent), label=f"agent {agent}") for agent in range(path.shape[1])]
    axes.legend(handles=handles, loc="lower left", frameon=True, framealpha=0.95)


def _paths_in(axes: Axes, function: Function, path: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Draw contours and paths between two corners."""
    _contours_on(axes, function, low, high)
    for agent in range(path.shape[1]):
        colour = COLOURS[agent]
        axes.plot(*path[:, agent].T, **_agent_style(agent))
        axes.plot(*path[0, agent], "o", color=colour, markersize=7, markeredgecolor="white")
        axes.plot(*path[-1, agent], "s", color=colour, markersize=7, markeredgecolor="white")
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.grid(visible=False)


def _agent_style(agent: int) -> dict[str, Any]:
    return {"color": COLOURS[agent], "linestyle": DASHES[agent], "linewidth": 1.6}


def _contours_on(axes: Axes, function: Function, low: np.ndarray, high: np.ndarray) -> None:
    """Shade the function in equal ratios of its value."""
    x, y = np.meshgrid(np.linspace(low[0], high[0], GRID), np.linspace(low[1], high[1], GRID))
    points = torch.from_numpy(np.stack([x, y], axis=-1))
    value = function.value(points).numpy()
    levels = np.geomspace(np.quantile(value, 0.005), value.max(), 14)
    axes.contour(x, y, value, levels=levels, colors="#BDBDBD", linewidths=0.8)


def _window(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a picture of these points, with a margin."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.12 * (high - low).max()
    return low - margin, high + margin


def _averages_on(axes: Axes, rows: Sequence[Row]) -> list[Line2D]:
    """Draw the running averages solid and their bounds dashed, a colour and a marker for each delay."""
    for index, row in enumerate(rows):
        average, bound = running_average(row), running_bound(row)
        every = max(1, row["steps"] // 8)
        style = _delay_style(index) | {"markevery": (index * every // len(rows), every)}
        axes.plot(np.arange(1, len(average) + 1), average, **style)
        if bound is not None:
            axes.plot(np.arange(1, len(bound) + 1), bound, linestyle=BOUND_DASHES, **style)
    largest = max((row["largest_gradient_squared"] or 0.0 for row in rows), default=0.0)
    if largest:
        axes.axhline(largest, color=GREY, linestyle=DASHES[2], linewidth=1.4)
    axes.set(yscale="log", xlabel="iterations T", title="Mean of $\\|\\nabla F(x_t)\\|^2$ over t ≤ T, and its bound")
    axes.yaxis.set_major_locator(LogLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    return [
        *(_delay_line(row["delay"], index) for index, row in enumerate(rows)),
        Line2D([], [], color=GREY, linestyle=BOUND_DASHES, label="Theorem 2, as derived"),
        Line2D([], [], color=GREY, linestyle=DASHES[2], label="largest seen"),
    ]


def _fate_on(axes: Axes, row: Row, index: int) -> None:
    """Draw one delay's squared gradients, cut at the ceiling, with a cross above where it first diverged."""
    values = np.asarray(row["gradient_squared"])
    # Markers at the same places of a logarithmic axis, at others for each delay.
    marks = np.unique((1.9 ** np.arange(1 + 0.15 * index, 12)).astype(int))
    style = _delay_style(index) | {"linewidth": 1.1, "markevery": marks[marks < len(values)].tolist()}
    axes.plot(np.arange(len(values)), values.clip(max=CEILING), **style)
    if row["status"] != "finished":
        at = min(step for step in row["diverged_at"] if step is not None)
        axes.plot(at, _cross_height(index), "X", color=COLOURS[index], markersize=9)
        share = row["status"].partition(" in ")[2]  # "1 of 3 seeds", where not all did
        text = f"delay {row['delay']}, step {at}{f', {share}' if share else ''}"
        note: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 9}
        axes.annotate(text, (at, _cross_height(index)), (-8, 0), color=COLOURS[index], **note)


def _cross_height(index: int) -> float:
    """Return where a delay's cross stands: above all curves, one below the other."""
    return float(CEILING * 10 ** (0.7 * index + 0.7))


def _delay_style(index: int) -> dict[str, Any]:
    return {name: value for name, value in line_style(index).items() if name != "linestyle"}


def _delay_line(delay: int, index: int) -> Line2D:
    return Line2D([], [], **_delay_style(index), label=f"delay {delay}")
