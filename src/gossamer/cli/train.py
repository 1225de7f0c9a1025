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
from gossamer.engine.folder import RunFolder
from gossamer.engine.settings import make_settings, read_settings
from gossamer.engine.training import Training
from gossamer.errors import UserError
from gossamer.experiments.compare import safe_name, unused_folder
from gossamer.experiments.presets import preset_values


@takes_settings()
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
    """Train one model with all agents of a network in the simulator.

    Writes config.toml, metrics.jsonl, summary.json and checkpoint.npz into a folder, and prints the summary. Ctrl+C,
    SIGTERM and --time-limit finish the iteration, save, and print the command that goes on.

    Example: gossamer train --algorithm pc-asgd --theta pv --network clusters:3,5 --delay 20 --epochs 5 --lr 0.05
    """
    if time_limit is not None and not time_limit > 0:
        raise UserError(f"time limit must be more than 0 seconds, got {time_limit:g}; use for example 3600")
    if resume is not None:
        training, folder = _resume(resume, config, preset, out_dir, given)
    else:
        training, folder = _begin(config, preset, out_dir, given)
    if not json:
        print_lines(training.notes)
    summary = _finished(training, folder) or _run(training, folder, time_limit)
    status = summary["status"]
    if json:
        print_json(summary)
    else:
        _print_summary(summary)
    if status in STOPPED:
        what = "stopped" if status == "interrupted" else f"{status} reached"
        print(
            f"gossamer: {what} at step {summary['iterations']} of {training.steps}; continue with: "
            f"gossamer train --resume {shlex.quote(str(folder.path))}",
            file=sys.stderr,
        )
    elif status != "finished":
        print(f"gossamer: {status}; what was recorded is in {folder.path}", file=sys.stderr)
        raise typer.Exit(1)


def _begin(
    config: Path | None, preset: str | None, out_dir: Path | None, given: dict[str, Any]
) -> tuple[Training, RunFolder]:
    values = {**(read_settings(config) if config else {}), **given}
    values.setdefault("algorithm", "pc-asgd")
    if preset is not None:
        values = {**preset_values(preset, str(values["algorithm"])), **values}
    training = Training(make_settings(values))
    settings = training.settings
    name = safe_name(f"{settings.algorithm}-{settings.network}-delay{settings.delay}-seed{settings.seed}")
    path = out_dir or unused_folder(Path("runs"), name)
    return training, RunFolder.create(path, settings, training.network)


def _resume(
    path: Path, config: Path | None, preset: str | None, out_dir: Path | None, given: dict[str, Any]
) -> tuple[Training, RunFolder]:
    if config is not None or preset is not None or out_dir is not None or given:
        extra = next(iter(given), "CONFIG, --preset or --out")
        raise UserError(f"--resume takes the run's own settings, got {extra} besides; leave that out, or train anew")
    folder, settings = RunFolder.open(path)
    training = Training(settings)
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
        return training.run(folder, step_callback(progress, bar), interrupt).summary


def _print_summary(summary: dict[str, Any]) -> None:
    predict = summary["predict_fraction"]
    lines = {
        "algorithm": f"{summary['algorithm']} on {summary['network']}, delay {summary['delay']}",
        "accuracy": f"{100 * summary['accuracy_mean']:.2f} % ± {100 * summary['accuracy_std']:.2f} over "
        f"{summary['agents']} agents, averaged model {100 * summary['accuracy_average_model']:.2f} %"
        + ("" if summary["evaluated_step"] == summary["iterations"] else f" (at step {summary['evaluated_step']})"),
        "disagreement": f"{summary['consensus_distance']:.4f} (mean distance from the average model)",
        "predicts": "-" if predict is None else f"{100 * predict:.1f} % of the steps with late messages",
        "sent": f"{summary['bytes_sent'] / 1e6:.1f} MB in {summary['iterations']} iterations",
        "time": f"{summary['seconds']:.1f} s",
        "folder": summary["run_dir"],
    }
    if summary["clusters_discovered"]:
        sizes = "+".join(str(len(members)) for members in summary["clusters"])
        lines["clusters"] = f"{sizes} and tau {summary['tau_discovered']}, discovered from message ages"
    print_lines(lines)


def print_lines(lines: dict[str, Any]) -> None:
    """Print values with their names before them."""
    for name, value in lines.items():
        out.print(f"[bold]{name:>12}[/bold]  {escape(str(value))}", soft_wrap=True, highlight=False)
