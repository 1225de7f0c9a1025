"""The work of `gossamer compare`: which algorithms, their runs with progress bars, the report folder."""

import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from gossamer.algorithms import algorithm_names
from gossamer.algorithms.plugins import load_plugins
from gossamer.cli.display import comparison_table, make_progress, print_json, print_table
from gossamer.cli.interrupt import INTERRUPTED
from gossamer.engine.training import OnStep
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.run.folder import make_folder, unused_folder
from gossamer.run.metric_rows import LabelledRun
from gossamer.train.compare import Entry, check_all, plan, run_all, split_algorithms, summarise, write_results
from gossamer.train.progress import Bars
from gossamer.train.target_columns import verdict


def entries_of(algorithms: str, values: dict[str, Any], preset: str | None) -> list[Entry]:
    """Return the algorithms asked for; `all` means every one that the network and the settings allow."""
    load_plugins(values.get("plugin"))  # `all` includes their rules
    names = split_algorithms(algorithms)
    everything = [*algorithm_names(), "pc-asgd/theta=pv"] if "all" in names else []
    named = [name for name in names if name != "all"]
    entries = plan([*(name for name in everything if name not in named), *named], values, preset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # each run warns when it starts
        check_all([entry for entry in entries if entry.label in named])
        possible = []
        for entry in entries:
            try:
                check_all([entry] if entry.label not in named else [])
                possible.append(entry)
            except UserError as error:
                print(f"gossamer: skipping {entry.label}: {error}", file=sys.stderr)
    return possible


def run_comparison(
    entries: list[Entry], seeds: int, out_dir: Path | None, *, plots: bool, json: bool, tuned: bool = False
) -> None:
    """Run all, write the report folder and print the table."""
    first = entries[0].settings.seed
    folder = _new_folder(out_dir)
    try:
        runs, network = _run_with_bars(entries, list(range(first, first + seeds)), folder)
    except KeyboardInterrupt:
        print(f"gossamer: interrupted; to continue, run the same command with --out {folder}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    rows = summarise(runs)
    document = {
        "network": runs[0].summary["network"],
        "delay": network.delay.as_json(),
        "task": runs[0].summary["task"],
        "model": runs[0].summary["model"],
        "epochs": runs[0].summary["epochs"],
        "seeds": seeds,
        "validation": entries[0].settings.validation,
        "testbed": entries[0].settings.testbed,
        "seconds": entries[0].settings.seconds or None,
        "results": rows,
        "report_dir": str(folder),
    }
    write_results(folder, document)
    drawn = _draw(folder, runs, network) if plots else 0
    if json:
        print_json(document)
        return
    title = (
        f"{document['task']}, {document['network']}, {_where(document)}, {seeds} seed{'s' if seeds > 1 else ''}"
        f"{', on held-out training data' if document['validation'] else ''}"
    )
    print_table(comparison_table(rows, title, tuned=tuned))
    for line in verdict(rows):
        print(line)
    print(f"{f'{drawn} plots, ' if drawn else ''}results.json, results.md and all runs are in {folder}")


def _where(document: dict[str, Any]) -> str:
    """Say on what the runs were: a testbed and simulated seconds, or a delay in steps."""
    if document["testbed"] is None:
        return f"delay {document['delay']}"
    return f"{document['testbed']}" + ("" if document["seconds"] is None else f", {document['seconds']:g} s")


def _draw(folder: Path, runs: list[LabelledRun], network: Network) -> int:
    from gossamer.report.plots import write_plots  # matplotlib is slow to import

    return len(write_plots(folder, runs, network))


def _new_folder(out_dir: Path | None) -> Path:
    """Make the report folder. It may hold the runs of an interrupted comparison."""
    folder = out_dir or unused_folder(Path("reports"), "compare")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if folder.exists() and (not folder.is_dir() or names - {"runs"}):
        raise UserError(f"'{folder}' already exists; choose another --out")
    make_folder(folder)
    return folder


def _run_with_bars(entries: list[Entry], seeds: list[int], folder: Path) -> tuple[list[LabelledRun], Network]:
    """Run all entries with two progress bars: one for all runs, one for the current run."""
    runs: list[LabelledRun] = []
    late_network: Network | None = None
    with make_progress() as progress:
        bars = Bars(progress, len(entries) * len(seeds))

        def on_run(entry: Entry, seed: int, steps: int) -> OnStep:
            return bars.begin(f"{entry.label} seed {seed}", steps)

        for run, network in run_all(entries, seeds, folder, on_run):
            runs.append(run)
            late_network = network if late_network is None or network.clusters is not None else late_network
            if run.summary["status"] != "finished":
                line = f"gossamer: {run.label} seed {run.seed}: {run.summary['status']}"
                progress.console.print(line, soft_wrap=True, markup=False, highlight=False)
    assert late_network is not None
    return runs, late_network
