"""The picture of a network: the layout, the captions, and the picture as HTML for notebooks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from gossamer.network.network import Network
from gossamer.network.scaled_delay import Scaled
from gossamer.run.metric_rows import short
from gossamer.shapes import Bool, Tensor

Points = NDArray[np.float64]  # [n, 2]; neighbouring agents are about 1 apart


@dataclass(frozen=True, eq=False)
class NetworkLayout:
    """A place for each agent, and a circle around each cluster; no circles without real clusters."""

    places: Points
    centres: Points
    radii: tuple[float, ...]

    @property
    def corners(self) -> tuple[Points, Points]:
        """The lower left and the upper right corner, with a margin."""
        reach = np.array(self.radii)[:, None]
        low = np.concatenate([self.places - 0.4, self.centres - reach])
        high = np.concatenate([self.places + 0.4, self.centres + reach])
        return low.min(axis=0) - 0.05, high.max(axis=0) + 0.05

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        low, high = self.corners
        return float(high[0] - low[0]), float(high[1] - low[1])

    def upright(self) -> "NetworkLayout":
        """Return the layout, rotated by a quarter turn if it is clearly wider than high."""
        if self.size[0] <= 1.1 * self.size[1]:
            return self
        return NetworkLayout(_turned(self.places), _turned(self.centres), self.radii)


def lay_out(network: Network) -> NetworkLayout:
    """Place the agents of each cluster on a circle of their own; without clusters see `_without_clusters`."""
    clusters = network.clusters or ()
    if not 1 < len(clusters) < network.num_agents:
        return NetworkLayout(_without_clusters(network), np.zeros((0, 2)), ())
    return lay_out_groups(clusters, network.num_agents)


def lay_out_groups(clusters: Sequence[Sequence[int]], num_agents: int) -> NetworkLayout:
    """Place the agents of each group on a circle of their own, and the groups on one; a single group on one circle."""
    if not 1 < len(clusters) < num_agents:
        return NetworkLayout(
            1.2 * _circle(num_agents, math.pi if num_agents == 2 else math.pi / 2), np.zeros((0, 2)), ()
        )
    radii = tuple(_radius(len(members)) + 0.55 for members in clusters)
    # The widest pair of adjacent clusters sets all distances.
    apart = max(radii[index - 1] + radii[index] for index in range(len(radii))) + 0.8
    half_turn = math.pi / len(clusters) if len(clusters) % 2 == 0 else 0.0
    centres = apart * _circle(len(clusters), math.pi / 2 + half_turn)
    places = np.zeros((num_agents, 2))
    for members, centre in zip(clusters, centres, strict=True):
        # A gap faces the centre, so links to the outer agents pass between the inner ones. An even number of agents
        # would stand in line with the centre, so their circle is rotated a little.
        count = len(members)
        inwards = math.atan2(-centre[1], -centre[0])
        twist = 0.13 if count % 2 == 0 else 0.0
        places[list(members)] = centre + _circle(count, inwards + math.pi / count + twist)
    return NetworkLayout(places, centres, radii)


def late_links(network: Network) -> Bool[Tensor, "n n"]:
    """Return the links on which a message can be late or lost, in either direction."""
    lossy = network.links & ~network.spared & (network.loss > 0)
    late = (network.late_links & (network.delay.largest > 0)) | lossy
    return late | late.T


def late_label(network: Network) -> str:
    """Return the caption of the late links."""
    delay = network.delay.spec()
    unit = "epochs" if isinstance(network.delay, Scaled) else "steps"
    delay = f"{delay} {unit}" if delay.isdecimal() else short(delay)
    return f"late link, delay {delay}{f', {network.loss:.0%} lost' if network.loss else ''}"


def network_title(network: Network) -> str:
    """Return the caption of a network: its agents and clusters."""
    agents = "1 agent" if network.num_agents == 1 else f"{network.num_agents} agents"
    sizes = [str(len(members)) for members in network.clusters or ()]
    if 1 < len(sizes) < network.num_agents:
        agents += f", clusters {'+'.join(sizes)}" if len(sizes) < 7 else f", {len(sizes)} clusters"
    return f"{short(network.spec)}: {agents}"


def _without_clusters(network: Network) -> Points:
    """Return a curved grid for a torus, a hub and a circle for a star, and otherwise a circle."""
    num_agents, (kind, _, size) = network.num_agents, network.spec.partition(":")
    if kind == "torus":
        rows, columns = (int(number) for number in size.split("x"))
        row, column = np.divmod(np.arange(num_agents), columns)
        # Rows and columns are curved, so the link that closes one does not hide the others.
        x = column + 0.5 * (2 * row / (rows - 1) - 1) ** 2
        y = -row + 0.5 * (2 * column / (columns - 1) - 1) ** 2
        return 1.2 * np.stack([x, y], axis=1)
    if kind == "star" and num_agents > 3:
        leaves = _circle(num_agents - 1) * max(1.0, 1.5 / _radius(num_agents - 1))
        return np.concatenate([np.zeros((1, 2)), leaves])
    return 1.2 * _circle(num_agents, math.pi if num_agents == 2 else math.pi / 2)


def _radius(count: int) -> float:
    """Return the radius of the circle on which `count` points are 1 apart."""
    return 0.0 if count == 1 else 0.5 / math.sin(math.pi / count)


def _circle(count: int, start: float = math.pi / 2) -> Points:
    """Return points on a circle, 1 apart, clockwise from an angle."""
    angles = start - 2 * math.pi * np.arange(count) / count
    return _radius(count) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _turned(points: Points) -> Points:
    return np.stack([points[:, 1], -points[:, 0]], axis=1)


# Paul Tol's "light" scheme: colour-blind-safe, and pale enough for black numbers.
FILLS = ("#77AADD", "#EE8866", "#EEDD88", "#44BB99", "#FFAABB", "#99DDFF", "#BBCC33", "#DDDDDD")
LATE = "#D55E00"
WIDTH, HEIGHT = 420.0, 300.0  # largest size in pixels
MOST_LINKS = 4000  # a network with more links has no picture: it would be unreadable and take megabytes


def to_html(network: Network) -> str:
    """Return a picture, reliable links solid and late links dashed, above a line of text."""
    late = late_links(network)
    count = int(late.triu().sum())
    words = [network_title(network), f"{network.num_links - count} reliable links"]
    words += [late_label(network).replace("late link", f"{count} late links", 1)] if count else []
    picture = _svg(network, late) if network.num_links <= MOST_LINKS else ""
    return f'<div style="font-size:13px">{picture}<div style="padding:2px 0">{escape("; ".join(words))}</div></div>'


def _svg(network: Network, late: Bool[Tensor, "n n"]) -> str:
    layout = lay_out(network)
    (left, low), (width, height) = layout.corners[0].tolist(), layout.size
    scale = min(WIDTH / width, HEIGHT / height, 60.0)
    parts = [
        f'<svg width="{scale * width:.0f}" height="{scale * height:.0f}" role="img" '
        f'aria-label="{escape(network_title(network))}" '
        f'viewBox="{left:.2f} {-low - height:.2f} {width:.2f} {height:.2f}">'
    ]
    for index, ((x, y), radius) in enumerate(zip(layout.centres.tolist(), layout.radii, strict=True)):
        fill = FILLS[index % len(FILLS)]
        parts.append(f'<circle cx="{x:.2f}" cy="{-y:.2f}" r="{radius:.2f}" fill="{fill}" opacity="0.25"/>')
    parts += _lines(layout, network.links & ~late, 'stroke="currentColor" stroke-width="0.045"')
    parts += _lines(layout, late, f'stroke="{LATE}" stroke-width="0.03" stroke-dasharray="0.16 0.1"')
    for agent, (x, y) in enumerate(layout.places.tolist()):
        fill = FILLS[int(network.cluster_of[agent]) % len(FILLS) if layout.radii else 0]
        parts.append(f'<circle cx="{x:.2f}" cy="{-y:.2f}" r="0.3" fill="{fill}" stroke="#333" stroke-width="0.03"/>')
        if scale >= 12:  # smaller numbers are unreadable
            parts.append(
                f'<text x="{x:.2f}" y="{-y + 0.1:.2f}" font-size="0.3" text-anchor="middle" fill="#000">{agent}</text>'
            )
    return "".join([*parts, "</svg>"])


def _lines(layout: NetworkLayout, links: Bool[Tensor, "n n"], look: str) -> list[str]:
    places = layout.places.tolist()
    lines = []
    for i, k in links.triu().nonzero().tolist():
        (x1, y1), (x2, y2) = places[i], places[k]
        lines.append(f'<line x1="{x1:.2f}" y1="{-y1:.2f}" x2="{x2:.2f}" y2="{-y2:.2f}" {look}/>')
    return lines
