"""`gossamer compare` and `gossamer demo`: several algorithms side by side."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.algorithms import algorithm_names
from gossamer.algorithms.plugins import load_plugins
from gossamer.cli.display import comparison_table, make_progress, print_json, print_table
from gossamer.cli.flags import Algorithms, Config, Json, Preset, ReportFolder, takes_settings
from gossamer.cli.interrupt import INTERRUPTED
from gossamer.engine.training import OnStep
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.run.folder import make_folder, unused_folder
from gossamer.run.merge_settings import with_file
from gossamer.run.metric_rows import LabelledRun
from gossamer.train.compare import Entry, check_all, plan, run_all, split_algorithms, summarise, write_results
from gossamer.train.progress import Bars
from gossamer.train.tune import with_tuned_rates

FAMILY = "sync,d-asgd,p-asgd,c-asgd,pc-asgd/theta=pv,pc-asgd/theta=0.3,pc-asgd/theta=auto,dm-asgd"
DEMO = {
    "network": "paper-1",
    "delay": "20",
    "task": "digits",
    "lr": "0.1",
    "epochs": "100",
    "eval_every": "60",
    "execution": "stacked",  # not auto: the table must be the same on every machine
}


@takes_settings("algorithm")
def compare(
    config: Config = None,
    *,
    algorithms: Algorithms = FAMILY,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the first one is --seed.")] = 3,
    preset: Preset = None,
    out_dir: ReportFolder = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Take each algorithm's learning rate from this file, written by gossamer tune.")
    ] = None,
    plots: Annotated[bool, typer.Option(help="Draw the plots.")] = True,
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Compare algorithms on one task and network over several seeds.

    Prints a table of means and standard deviations over seeds. Writes results.json, every run and the plots into a
    report folder.

    Example: gossamer compare --algorithms sync,d-asgd,pc-asgd/theta=pv,dm-asgd --seeds 3 --lr 0.1 --epochs 100
    """
    values = with_file(config, given)
    values.pop("algorithm", None)
    if tuned is not None and "lr" in given:
        raise UserError(f"--lr {given['lr']} conflicts with the learning rates of '{tuned}'; leave one out")
    _check_seeds(seeds)
    entries = entries_of(algorithms, values, preset)
    if tuned is not None:
        entries = with_tuned_rates(entries, tuned)
    _compare(entries, seeds, out_dir, plots=plots, json=json, tuned=tuned is not None)


def demo(
    out_dir: ReportFolder = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 3,
    json: Json = False,
) -> None:
    """Compare algorithms on the paper's 8 agents and the digits data. `make demo` runs this.

    Example: gossamer demo --seeds 1
    """
    _check_seeds(seeds)
    entries = entries_of(FAMILY, dict(DEMO), None)
    _compare(entries, seeds, out_dir or unused_folder(Path("reports"), "demo"), plots=True, json=json)


def _check_seeds(seeds: int) -> None:
    if seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}")


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


def _compare(
    entries: list[Entry], seeds: int, out_dir: Path | None, *, plots: bool, json: bool, tuned: bool = False
) -> None:
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
        "results": rows,
        "report_dir": str(folder),
    }
    write_results(folder, document)
    drawn = _draw(folder, runs, network) if plots else 0
    if json:
        print_json(document)
        return
    title = (
        f"{document['task']}, {document['network']}, delay {document['delay']}, {seeds} seed{'s' if seeds > 1 else ''}"
        f"{', on held-out training data' if document['validation'] else ''}"
    )
    print_table(comparison_table(rows, title, tuned=tuned))
    print(f"{f'{drawn} plots, ' if drawn else ''}results.json, results.md and all runs are in {folder}")


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
