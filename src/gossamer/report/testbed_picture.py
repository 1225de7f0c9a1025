"""The picture of a testbed: agents, and links coloured by the time that a message takes."""

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from gossamer.report.network_picture import FILLS, MOST_LINKS, NetworkLayout, lay_out_groups
from gossamer.report.plots import Picture
from gossamer.report.style import DPI, GREY, RELIABLE, styled
from gossamer.testbed.units import show_seconds

COLOURS = "viridis_r"  # dark is slow


@styled
def draw_testbed(document: dict[str, Any]) -> Figure:
    """Draw a testbed from its description; agents of one place stand together. A link has its slower direction."""
    groups = _groups(document)
    layout = lay_out_groups(list(groups.values()), document["agents"])
    times = _slower(document["links"])
    width, height = layout.size
    inch = min(6.2 / width, 5.2 / height, 1.1)
    figure = Picture(figsize=(7.4, inch * height + 1.1), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    low, high = layout.corners
    axes.set(xlim=(low[0], high[0]), ylim=(low[1] - 0.4, high[1]), aspect="equal")
    axes.axis("off")
    fills = {agent: FILLS[number % len(FILLS)] for number, members in enumerate(groups.values()) for agent in members}
    size = min(12.0, 20 * inch)
    for agent, (x, y) in enumerate(layout.places.tolist()):
        axes.add_patch(Circle((x, y), 0.3, facecolor=fills[agent], edgecolor=RELIABLE, linewidth=1.0, zorder=2))
        if size >= 4:
            axes.text(x, y, str(agent), ha="center", va="center_baseline", fontsize=size, zorder=3)
    for name, (x, y), radius in zip(groups, layout.centres.tolist(), layout.radii, strict=False):
        outwards = radius if y > layout.centres[:, 1].mean() else -radius
        axes.text(x, y + outwards, name, ha="center", va="center", fontsize=10, color=GREY, zorder=3)
    if 0 < len(times) <= MOST_LINKS:
        _draw_links(figure, axes, layout, times)
    figure.suptitle(f"{document['testbed']}: messages of {document['message_bytes'] / 1e6:g} MB", fontsize=12)
    return figure


def _groups(document: dict[str, Any]) -> dict[str, list[int]]:
    places = document["places"] or [""] * document["agents"]
    groups: dict[str, list[int]] = {}
    for agent, place in enumerate(places):
        groups.setdefault(place, []).append(agent)
    return groups


def _slower(links: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
    times: dict[tuple[int, int], float] = {}
    for link in links:
        pair = (min(link["from"], link["to"]), max(link["from"], link["to"]))
        times[pair] = max(link["transfer_seconds"], times.get(pair, 0.0))
    return times


def _draw_links(figure: Figure, axes: Any, layout: NetworkLayout, times: dict[tuple[int, int], float]) -> None:
    order = sorted(times, key=lambda pair: times[pair])  # slow ones on top
    values = np.array([times[pair] for pair in order])
    low, high = float(values.min()), float(values.max())
    spread = LogNorm if low > 0 and high > 10 * low else Normalize
    norm = spread(low, high if high > low else low + 1e-9)
    lines = LineCollection(
        [layout.places[list(pair)] for pair in order], array=values, cmap=COLOURS, norm=norm, zorder=1
    )
    lines.set_linewidth(0.8 if len(order) > 100 else 1.6)
    axes.add_collection(lines)
    ends = [low, high] if high > low else [low]
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=axes, shrink=0.7, ticks=[*ends], label="transfer time")
    bar.ax.minorticks_off()
    bar.ax.set_yticklabels([show_seconds(end) for end in ends])
