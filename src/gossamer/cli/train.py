"""`gossamer train`: one run."""

import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gossamer.cli.display import make_progress, out, print_json, step_callback
from gossamer.cli.flags import takes_settings
from gossamer.cli.interrupt import STOPPED, Interrupt
from gossamer.cli.train_asked import Asked
from gossamer.cli.train_processes import train_in_processes
from gossamer.engine.training import Training
from gossamer.errors import UserError
from gossamer.run.folder import RunFolder
from gossamer.runtime.launch.launch_settings import Processes
from gossamer.train.loggers import logged


@takes_settings(also=Processes, panel="Processes")
def train(
    config: Annotated[Path | None, typer.Argument(help="TOML file of settings; flags win over it.")] = None,
    *,
    preset: Annotated[
        str | None, typer.Option(help="Readings of the paper set together: default, paper or public-code.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder, bit for bit.")] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save and end after this time of training; --resume goes on."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    given: dict[str, Any],
) -> None:
    """Train one model with all agents of a network: in the simulator, or with --engine processes as a process each.

    Writes config.toml, metrics.jsonl, summary.json and checkpoint.npz into a folder, and prints the summary. Ctrl+C,
    SIGTERM and --time-limit finish the iteration, save, and print the command that goes on.

    Example: gossamer train --algorithm pc-asgd --theta pv --network clusters:3,5 --delay 20 --epochs 5 --lr 0.05
    """
    if time_limit is not None and not time_limit > 0:
        raise UserError(f"time limit must be more than 0 seconds, got {time_limit:g}; use for example 3600")
    asked = Asked(config, preset, out_dir, resume, given)
    how = asked.take_processes()
    if how is not None:
        summary, folder, steps = train_in_processes(how, asked, time_limit)
        _end(summary, folder, steps, json=json)
        return
    training, folder = _begin(asked) if resume is None else _resume(asked)
    if not json:
        print_lines(training.notes)
    summary = _finished(training, folder) or _run(training, folder, time_limit)
    _end(summary, folder, training.steps, json=json)


def _end(summary: dict[str, Any], folder: RunFolder, steps: int, *, json: bool) -> None:
    """Print what came of a run, and leave with the status that goes with it."""
    status = summary["status"]
    if json:
        print_json(summary)
    else:
        _print_summary(summary)
    if status in STOPPED:
        what = "stopped" if status == "interrupted" else f"{status} reached"
        print(
            f"gossamer: {what} at step {summary['iterations']} of {steps}; continue with: "
            f"gossamer train --resume {shlex.quote(str(folder.path))}",
            file=sys.stderr,
        )
    elif status != "finished":
        print(f"gossamer: {status}; what was recorded is in {folder.path}", file=sys.stderr)
        raise typer.Exit(1)


def _begin(asked: Asked) -> tuple[Training, RunFolder]:
    training = Training(asked.settings())
    return training, asked.make_folder(training.settings, training.network)


def _resume(asked: Asked) -> tuple[Training, RunFolder]:
    folder, settings = asked.open_folder()
    path, training = folder.path, Training(settings)
    if folder.never_saved:
        warnings.warn(f"'{path}' was never saved; training it from its first step", RuntimeWarning, stacklevel=2)
        folder.keep_rows(0)
    else:
        training.resume(folder)
    return training, folder


def _finished(training: Training, folder: RunFolder) -> dict[str, Any] | None:
    """Return the summary of a run that has nothing left to do, after saying so; nothing is saved once more."""
    if folder.read_summary().get("status") != "finished" or training.simulation.t < training.steps:
        return None
    print(f"gossamer: the run in {folder.path} has finished already; this is its summary", file=sys.stderr)
    return {**training.run().summary, "run_dir": str(folder.path)}


def _run(training: Training, folder: RunFolder, time_limit: float | None) -> dict[str, Any]:
    with make_progress() as progress, Interrupt(time_limit) as interrupt:
        bar = progress.add_task(training.algorithm.name, total=training.steps, completed=training.simulation.t, note="")
        with logged(folder, training.settings, training.history):
            return training.run(folder, step_callback(progress, bar), interrupt).summary


def _print_summary(summary: dict[str, Any]) -> None:
    predict = summary["predict_fraction"]
    lines = {
        "algorithm": f"{summary['algorithm']} on {summary['network']}, delay {summary['delay']}",
        "accuracy": f"{100 * summary['accuracy_mean']:.2f} % ± {100 * summary['accuracy_std']:.2f} over "
        f"{summary['agents']} agents{_averaged(summary)}"
        + ("" if summary["evaluated_step"] == summary["iterations"] else f" (at step {summary['evaluated_step']})"),
        "disagreement": "-"
        if summary["consensus_distance"] is None
        else f"{summary['consensus_distance']:.4f} (mean distance from the average model)",
        "predicts": "-" if predict is None else f"{100 * predict:.1f} % of the steps with late messages",
        "sent": f"{summary['bytes_sent'] / 1e6:.1f} MB in {summary['iterations']} iterations",
        "time": f"{summary['seconds']:.1f} s",
        "folder": summary["run_dir"],
    }
    if summary["clusters_discovered"]:
        sizes = "+".join(str(len(members)) for members in summary["clusters"])
        lines["clusters"] = f"{sizes} and tau {summary['tau_discovered']}, discovered from message ages"
    print_lines(lines)


def _averaged(summary: dict[str, Any]) -> str:
    average = summary["accuracy_average_model"]
    return "" if average is None else f", averaged model {100 * average:.2f} %"


def print_lines(lines: dict[str, Any]) -> None:
    """Print values with their names before them."""
    for name, value in lines.items():
        out.print(f"[bold]{name:>12}[/bold]  {escape(str(value))}", soft_wrap=True, highlight=False)
