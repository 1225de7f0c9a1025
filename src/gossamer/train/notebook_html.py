"""Small pieces of HTML for notebooks. No scripts, and no text colours: they work in light and dark themes."""

import math
from collections.abc import Sequence
from html import escape

BLUE = "#3b82c4"  # visible on white and on black
_CELL = "text-align:{};padding:2px 10px 2px 0;white-space:nowrap;background:none"


def section(*parts: str) -> str:
    """Return pieces of HTML, one below the other."""
    return f'<div style="font-size:13px;overflow-x:auto">{"".join(parts)}</div>'


def line(text: str) -> str:
    """Return a line of text."""
    return f'<div style="padding:2px 0">{escape(text)}</div>'


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], curves: Sequence[str] | None = None) -> str:
    """Return a table with its first column aligned left. `curves` holds one HTML picture per row."""
    sides = ["left", *("right" for _ in headings[1:])]
    head = "".join(
        f'<th style="{_CELL.format(side)}">{escape(heading)}</th>'
        for heading, side in zip(headings, sides, strict=True)
    )
    body = []
    for index, row in enumerate(rows):
        cells = "".join(
            f'<td style="{_CELL.format(side)}">{escape(str(cell))}</td>' for cell, side in zip(row, sides, strict=True)
        )
        picture = f'<td style="{_CELL.format("left")}">{curves[index]}</td>' if curves else ""
        body.append(f"<tr>{cells}{picture}</tr>")
    last = "<th></th>" if curves else ""
    style = "border-collapse:collapse;border:none"
    return f'<table style="{style}"><thead><tr>{head}{last}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def sparkline(values: Sequence[float], label: str, width: int = 120, height: int = 24) -> str:
    """Draw numbers as a small line. Non-finite numbers are left out."""
    known = [(place, value) for place, value in enumerate(values) if math.isfinite(value)]
    start = f'<svg width="{width}" height="{height}" role="img" aria-label="{escape(label)}">'
    if len(known) < 2:
        return f"{start}</svg>"
    low, high = min(value for _, value in known), max(value for _, value in known)
    across, up = (width - 4) / known[-1][0], (height - 4) / ((high - low) or 1.0)
    points = " ".join(f"{2 + across * place:.1f},{height - 2 - up * (value - low):.1f}" for place, value in known)
    return f'{start}<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/></svg>'


def bar(share: float, width: int = 240) -> str:
    """Draw a progress bar; `share` is between 0 and 1."""
    done = max(0.0, min(1.0, share)) * width
    return (
        f'<svg width="{width}" height="10" role="img" aria-label="{100 * share:.0f} %">'
        f'<rect width="{width}" height="10" rx="3" fill="currentColor" opacity="0.15"/>'
        f'<rect width="{done:.0f}" height="10" rx="3" fill="{BLUE}"/></svg>'
    )
