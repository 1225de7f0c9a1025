"""`gossamer report`: write runs as one HTML page that opens offline, and as figures for papers."""

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gossamer.cli.display import make_progress
from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.report.read_runs import RunRecord

DEFAULT = Path("report.html")


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs such as compare writes.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write; replaces an older report.")] = DEFAULT,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each chart as PNG and SVG into this folder.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show runs on one page: charts, the network, a table, message ages, every agent, configuration and commands.

    The page is one HTML file that opens offline. Runs that differ only in their seed become one curve with a band. A
    run that cannot be read is skipped with a warning.

    Example: gossamer report runs/pc-asgd-paper-1-delay20-seed0 --open
    """
    from gossamer.report.html_page import check_writable, write_page
    from gossamer.report.page_model import make_model
    from gossamer.report.read_runs import read_runs

    check_writable(out)
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UserError(f"'{figures}' is a file; give a folder for --figures")
    with make_progress() as progress:
        bar = progress.add_task("reading runs", note="")
        records, troubles = read_runs(runs, lambda done, of: progress.update(bar, completed=done, total=of))
    for trouble in troubles:
        print(f"gossamer: warning: left out: {trouble}", file=sys.stderr)
    drawn = _write_figures(figures, records) if figures is not None else 0
    write_page(out, make_model(records, troubles))
    print(f"{len(records)} run{'' if len(records) == 1 else 's'} in {out}")
    if drawn:
        print(f"{drawn} figures, each as PNG and SVG, in {figures}")
    if open_page and not webbrowser.open(out.resolve().as_uri()):
        print(f"gossamer: no browser to open; open {out} yourself", file=sys.stderr)


def _write_figures(folder: Path, records: "list[RunRecord]") -> int:
    from gossamer.report.print_figures import write_figures  # matplotlib is slow to import

    return len(write_figures(folder, records)) // 2
