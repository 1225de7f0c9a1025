"""The table of a comparison as Markdown, for a report or a page of documentation."""

import math
from typing import Any

HEADINGS = ("algorithm", "lr", "accuracy %", "averaged model %", "loss", "spread", "MB sent")


def to_markdown(document: dict[str, Any]) -> str:
    """Return what `results.json` holds as a page: the setting, and a row an algorithm, the best first."""
    seeds = f"{document['seeds']} seed{'s' if document['seeds'] > 1 else ''}"
    data = "held-out training data" if document.get("validation") else "test data"
    lines = [
        f"# {document['task']} with {document['model']}, {document['network']}, delay {document['delay']}",
        "",
        f"{document['epochs']} epochs, {seeds}: mean ± standard deviation over seeds of the agents' mean accuracy on",
        f"{data}. *Averaged model*: that of the mean of all agents. *Spread*: mean distance from it.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * (len(HEADINGS) - 1)}",
    ]
    for row in sorted(document["results"], key=lambda row: -row["accuracy_mean"]):
        lines.append(f"| {' | '.join(cells_of(row))} |")
    return "\n".join(lines) + "\n"


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return what stands below HEADINGS for one algorithm."""
    diverged = f" ({row['diverged']} of {len(row['seeds'])} diverged)" if row["diverged"] else ""
    return (
        row["label"].replace("/", " "),
        f"{row['lr']:g}",
        f"{100 * row['accuracy_mean']:.1f} ± {100 * row['accuracy_std']:.1f}{diverged}",
        f"{100 * row['accuracy_average_model']:.1f}",
        _finite(row["loss_mean"], 3),
        _finite(row["consensus_distance"], 2),
        f"{row['bytes_sent'] / 1e6:.0f}",
    )


def _finite(value: float | None, digits: int) -> str:
    """Return a number, or a dash for what is none: in a file that is null."""
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else "-"
