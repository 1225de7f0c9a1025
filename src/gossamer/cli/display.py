"""Progress bars, tables and JSON. Bars go to standard error, results to standard output."""

import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.run.strict_json import to_json
from gossamer.train.progress import err as err
from gossamer.train.progress import make_progress as make_progress
from gossamer.train.progress import step_callback as step_callback
from gossamer.train.target_columns import time_columns

WIDE = 110  # characters per line of a table in a file or a pipe
out = Console()


def print_json(document: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Print exactly one JSON document on standard output."""
    sys.stdout.write(to_json(document) + "\n")


def print_lines(lines: dict[str, Any]) -> None:
    """Print one line per value, with its name before it."""
    for name, value in lines.items():
        out.print(f"[bold]{name:>12}[/bold]  {escape(str(value))}", soft_wrap=True, highlight=False)


def print_table(table: Table) -> None:
    """Print a table with all its columns. On a narrow terminal its lines wrap."""
    Console(width=max(80, out.width) if out.is_terminal else WIDE).print(table)


def comparison_table(rows: list[dict[str, Any]], title: str, *, tuned: bool = False) -> Table:
    """Return the table of a comparison: one row per algorithm, mean and standard deviation over seeds.

    It fits 80 columns. 'average' is the accuracy of the averaged model, 'spread' the mean distance from that model.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("algorithm", overflow="fold", min_width=min(16, max(len(row["label"]) for row in rows)))
    if tuned:
        table.add_column("lr", justify="right", no_wrap=True)
    further = time_columns(rows)
    usual = ["accuracy %", "average", "loss", "spread", "predict", "MB", "s"]
    if further:  # so that it still fits; results.json has all
        usual = ["accuracy %", "spread", "MB"]
    for heading in (*usual, *(heading for heading, _ in further)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=10 if heading == "accuracy %" else None)
    best = max(row["accuracy_mean"] for row in rows)
    for row in rows:
        accuracy = f"{100 * row['accuracy_mean']:.1f} ± {100 * row['accuracy_std']:.1f}"
        if row["diverged"]:
            accuracy = f"{accuracy} [red]({row['diverged']} diverged)[/red]"
        elif row["accuracy_mean"] == best:
            accuracy = f"[bold]{accuracy}[/bold]"
        predict = row["predict_fraction"]
        cells = {
            "accuracy %": accuracy,
            "average": f"{100 * row['accuracy_average_model']:.1f}",
            "loss": f"{row['loss_mean']:.3f}",
            "spread": f"{row['consensus_distance']:.3f}",
            "predict": "-" if predict is None else f"{100 * predict:.0f} %",
            "MB": f"{row['bytes_sent'] / 1e6:.0f}",
            "s": f"{row['seconds']:.1f}",
        }
        table.add_row(
            row["label"].replace("/", " "),
            *([f"{row['lr']:g}"] if tuned else []),
            *(cells[heading] for heading in usual),
            *(cell(row) for _, cell in further),
        )
    return table
