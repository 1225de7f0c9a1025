"""A network as a picture in HTML, for notebooks: no script, and no colours of its own for text."""

from html import escape

from gossamer.network.network import Network
from gossamer.report.network_layout import Layout, late_label, late_links, lay_out, network_title
from gossamer.shapes import Bool, Tensor

# Paul Tol's "light" scheme: colour-blind-safe, and pale enough for black numbers.
FILLS = ("#77AADD", "#EE8866", "#EEDD88", "#44BB99", "#FFAABB", "#99DDFF", "#BBCC33", "#DDDDDD")
LATE = "#D55E00"
WIDTH, HEIGHT = 420.0, 300.0  # pixels at most
MOST_LINKS = 4000  # of which each is drawn; more would be a blot, and megabytes in the notebook


def to_html(network: Network) -> str:
    """Return a picture, reliable links solid and late ones dashed, above a line of text."""
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
        if scale >= 12:  # or nobody could read it
            parts.append(
                f'<text x="{x:.2f}" y="{-y + 0.1:.2f}" font-size="0.3" text-anchor="middle" fill="#000">{agent}</text>'
            )
    return "".join([*parts, "</svg>"])


def _lines(layout: Layout, links: Bool[Tensor, "n n"], look: str) -> list[str]:
    places = layout.places.tolist()
    lines = []
    for i, k in links.triu().nonzero().tolist():
        (x1, y1), (x2, y2) = places[i], places[k]
        lines.append(f'<line x1="{x1:.2f}" y1="{-y1:.2f}" x2="{x2:.2f}" y2="{-y2:.2f}" {look}/>')
    return lines
