"""The work of `gossamer train`: a new or a resumed run, in this process or as many, and its summary."""

import dataclasses
import shlex
import statistics
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress, TaskID

from gossamer.algorithms.options import read_options
from gossamer.cli.display import make_progress, print_json, print_lines, step_callback
from gossamer.cli.interrupt import STOPPED, Interrupt
from gossamer.engine.make_training import make_training
from gossamer.engine.training import Training
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder, safe_name, unused_folder
from gossamer.run.merge_settings import merge_settings, with_file
from gossamer.run.plan import make_plan
from gossamer.run.process_settings import ProcessSettings, read_processes
from gossamer.run.settings import Settings
from gossamer.run.summary import Summary
from gossamer.runtime.launch.job import Watcher
from gossamer.train.loggers import check_log, logged
from gossamer.train.processes import launched_training

_PROCESSES = tuple(field.name for field in dataclasses.fields(ProcessSettings))


@dataclass(frozen=True)
class TrainRequest:
    """The command line of one run: flags, settings file, preset, and the folder to create or to resume."""

    config: Path | None
    preset: str | None
    out: Path | None
    resume: Path | None
    given: dict[str, Any]  # the flags that the user set

    def settings(self) -> Settings:
        """Return the settings of a new run: flags override the file, which overrides the preset."""
        settings = merge_settings(with_file(self.config, self.given), self.preset)
        check_log(settings.log)
        return settings

    def make_folder(self, settings: Settings, network: Network) -> RunFolder:
        """Make the folder of a new run."""
        name = safe_name(f"{settings.algorithm}-{settings.network}-delay{settings.delay}-seed{settings.seed}")
        return RunFolder.create(self.out or unused_folder(Path("runs"), name), settings, network)

    def open_folder(self) -> tuple[RunFolder, Settings]:
        """Open the folder of the run to resume; its own settings apply."""
        if self.config is not None or self.preset is not None or self.out is not None or self.given:
            raise _too_much(next(iter(self.given), "CONFIG, --preset or --out"))
        assert self.resume is not None
        folder, settings = RunFolder.open(self.resume)
        check_log(settings.log)
        return folder, settings

    def take_processes(self) -> ProcessSettings | None:
        """Remove the process flags from `given` and return them; None means the simulator."""
        flags = {name: self.given.pop(name) for name in _PROCESSES if name in self.given}
        if self.resume is not None:
            if flags:
                raise _too_much(next(iter(flags)))
            return read_processes(self.resume)
        how = ProcessSettings(**read_options(ProcessSettings, "processes", flags))
        if how.engine == "processes":
            return how
        others = [name for name in flags if name != "engine"]
        if others:
            raise UserError(f"--{others[0].replace('_', '-')} needs one process per agent; add --engine processes")
        return None


def run_training(request: TrainRequest, time_limit: float | None, *, json: bool) -> None:
    """Train as requested, and print the summary."""
    interrupt = Interrupt(time_limit)
    how = request.take_processes()
    if how is not None:
        summary, folder, steps = _run_processes(how, request, interrupt)
        _end(summary, folder, steps, json=json)
        return
    training, folder = _begin(request) if request.resume is None else _resume(request)
    if not json:
        print_lines(training.notes)
    summary = _finished(training, folder) or _run(training, folder, interrupt)
    _end(summary, folder, training.length, json=json)


def _too_much(extra: str) -> UserError:
    return UserError(f"--resume uses the settings of the run, but got {extra}; leave that out, or start a new run")


def _end(summary: Summary, folder: RunFolder, steps: int, *, json: bool) -> None:
    """Print the summary of a run, and exit with its status."""
    status = summary["status"]
    if json:
        print_json({**summary})
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
        print(f"gossamer: {status}; the metrics so far are in {folder.path}", file=sys.stderr)
        raise typer.Exit(1)


def _begin(request: TrainRequest) -> tuple[Training, RunFolder]:
    training = make_training(request.settings())
    return training, request.make_folder(training.settings, training.network)


def _resume(request: TrainRequest) -> tuple[Training, RunFolder]:
    folder, settings = request.open_folder()
    path, training = folder.path, make_training(settings)
    if folder.never_saved:
        warnings.warn(f"'{path}' has no checkpoint yet; starting again from step 0", RuntimeWarning, stacklevel=2)
        folder.keep_rows(0)
    else:
        training.resume(folder)
    return training, folder


def _finished(training: Training, folder: RunFolder) -> Summary | None:
    """Return the summary if the run has finished already, with a note to the user; else None. Saves nothing."""
    if folder.read_summary().get("status") != "finished" or training.progress < training.length:
        return None
    print(f"gossamer: the run in {folder.path} has already finished; this is its summary", file=sys.stderr)
    return {**training.run().summary, "run_dir": str(folder.path)}


def _run(training: Training, folder: RunFolder, interrupt: Interrupt) -> Summary:
    with make_progress() as progress, interrupt:
        bar = progress.add_task(training.algorithm.name, total=training.length, completed=training.progress, note="")
        with logged(folder, training.settings, training.history):
            return training.run(folder, step_callback(progress, bar), interrupt).summary


class _Bar(Watcher):
    """A progress bar that follows the slowest agent, and a line for each agent that dies."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress, self._bar = progress, bar

    def event(self, text: str) -> None:
        print(f"gossamer: {text}", file=sys.stderr)

    def status(self, rows: list[dict[str, Any]]) -> None:
        steps = [int(row.get("step") or 0) for row in rows]
        accuracies = [row["accuracy"] for row in rows if isinstance(row.get("accuracy"), float)]
        note = f"{100 * statistics.fmean(accuracies):.1f} %" if accuracies else ""
        self._progress.update(self._bar, completed=min(steps), note=note)


def _run_processes(how: ProcessSettings, request: TrainRequest, interrupt: Interrupt) -> tuple[Summary, RunFolder, int]:
    """Run all agents to the end; return the summary, the folder and the number of steps."""
    if request.resume is not None:
        folder, settings = request.open_folder()
        plan = make_plan(settings)
    else:
        plan = make_plan(request.settings())
        launched_training.check(plan, how)
        folder = request.make_folder(plan.settings, plan.network)
        how.write(folder.path)
    with make_progress() as progress, interrupt, logged(folder, plan.settings, []):
        bar = progress.add_task(plan.algorithm.name, total=plan.steps, note="")
        summary = launched_training.train(plan, folder, how, watcher=_Bar(progress, bar), stop=interrupt)
    return summary, folder, plan.steps


def _print_summary(summary: Summary) -> None:
    predict = summary["predict_fraction"]
    lines = {
        "algorithm": f"{summary['algorithm']} on {summary['network']}, delay {summary['delay']}",
        "accuracy": f"{100 * summary['accuracy_mean']:.2f} % ± {100 * summary['accuracy_std']:.2f} over "
        f"{summary['agents']} agents{_averaged(summary)}"
        + ("" if summary["evaluated_step"] == summary["iterations"] else f" (at step {summary['evaluated_step']})"),
        "spread": "-"
        if summary["consensus_distance"] is None
        else f"{summary['consensus_distance']:.4f} (mean distance from the average model)",
        "predicts": "-" if predict is None else f"{100 * predict:.1f} % of the steps with late messages",
        "sent": f"{summary['bytes_sent'] / 1e6:.1f} MB in {summary['iterations']} iterations",
        **_simulated(summary),
        "time": f"{summary['seconds']:.1f} s",
        "folder": summary["run_dir"],
    }
    if summary["clusters_discovered"]:
        sizes = "+".join(str(len(members)) for members in summary["clusters"])
        lines["clusters"] = f"{sizes} and tau {summary['tau_discovered']}, discovered from message ages"
    print_lines(lines)


def _simulated(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines on simulated time and on the target, if there are any."""
    lines = {}
    if "sim_seconds" in summary:
        each = summary["iterations_per_agent"]
        lines["simulated"] = (
            f"{summary['sim_seconds']:.4g} s, {min(each)} to {max(each)} iterations an agent, computing "
            f"{100 * summary['goodput']:.0f} % of the time"
        )
    if summary["target"] is not None:
        took = [] if summary["seconds_to_target"] is None else [f"{summary['seconds_to_target']:.4g} s"]
        if summary["steps_to_target"] is not None:
            took += [f"{summary['steps_to_target']} steps", f"{summary['bytes_to_target'] / 1e6:.1f} MB"]
        lines[f"to {summary['target']}"] = ", ".join(took) or "not reached"
    return lines


def _averaged(summary: Summary) -> str:
    average = summary["accuracy_average_model"]
    return "" if average is None else f", averaged model {100 * average:.2f} %"
