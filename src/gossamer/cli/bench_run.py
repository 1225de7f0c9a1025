"""The work of `gossamer bench`: run the cases, store their numbers and print them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.table import Table

from gossamer.bench import Request, choose_cases, load_all, save, to_markdown
from gossamer.bench.cases import Case, run_case
from gossamer.bench.results import make_record, to_facts, to_text_table
from gossamer.cli.display import err, make_progress, print_json, print_table
from gossamer.cli.interrupt import INTERRUPTED
from gossamer.state.checkpoint import write_text


def run_bench(request: Request, cases: str | None, out_dir: Path, *, json: bool) -> None:
    """Measure these cases, or the usual ones of the device, and print what was found."""
    chosen = choose_cases(cases, request)
    out_dir.mkdir(parents=True, exist_ok=True)
    load_all(out_dir)  # report a file that cannot be read now, not after an hour
    records, interrupted = _measure(request, chosen, out_dir)
    if json:
        print_json({"cases": records, "interrupted": interrupted, "results_dir": str(out_dir)})
    else:
        for record in records:
            _print_record(record)
    if interrupted:
        print(f"gossamer: interrupted; the results so far are in {out_dir}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if not json:
        print(f"RESULTS.md and the figures of this device are in {out_dir}")


def _measure(request: Request, chosen: list[Case], folder: Path) -> tuple[list[dict[str, Any]], bool]:
    """Run the cases and save after each; return the records and whether Ctrl+C ended the run."""
    records: list[dict[str, Any]] = []
    for number, one in enumerate(chosen, start=1):
        try:
            with _telling(request, f"{one.name} ({number} of {len(chosen)})") as told:
                measured = run_case(one, told)
        except KeyboardInterrupt:
            return records, True
        record = make_record(request, one, measured)
        if any({"ms", "seconds", "peak", "us_agent"} & set(row) for row in measured.rows):
            records.append(record)
            save(folder, request.device, record)
            write_text(folder / "RESULTS.md", to_markdown(load_all(folder)))
        if measured.interrupted:
            return records, True
    return records, False


@contextmanager
def _telling(request: Request, title: str) -> Iterator[Request]:
    """Show the present case on standard error: a moving line on a terminal, elsewhere one line per case."""
    if not err.is_terminal:
        print(f"gossamer: measuring {title}", file=sys.stderr)
        yield request
        return
    with make_progress() as progress:
        bar = progress.add_task(title, total=None, note="")
        yield request.saying(lambda text: progress.update(bar, advance=1, note=text))


def _print_record(record: dict[str, Any]) -> None:
    headings, rows = to_text_table(record)
    title = f"{record['title']}, {record['environment']['device']}\n{record['about']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    print_table(table)
    for fact in to_facts(record):
        print(fact)
    print()
