"""Makes one run and returns its record. A run that is stopped is saved and continues later.

A run in progress has no folder: the messages in flight of a deep net are gigabytes, too many to write every few
epochs. It is saved when it is stopped, and every 15 minutes.
"""

import dataclasses
import datetime
import functools
import itertools
import math
import platform
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.engine.make_training import make_training
from gossamer.engine.training import OnStep, Stop, Trained, Training
from gossamer.errors import StabilityWarning, UserError
from gossamer.paper.cells import command_of, key_of
from gossamer.paper.store import Record
from gossamer.run.folder import RunFolder
from gossamer.run.machine import device_name, free_memory, synchronise
from gossamer.run.plan import make_plan
from gossamer.run.settings import Settings
from gossamer.tasks import make_task
from gossamer.train.progress import both
from gossamer.train.tune import NEVER
from gossamer.version import __version__

SAVE_AFTER = 900.0  # seconds of a run
DIGITS = 5

_task = functools.lru_cache(maxsize=2)(make_task)  # reading and checking images takes as long as some short runs


class Stopped(Exception):
    """The run was told to stop, and is saved; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Job:
    """A run to make: settings with seed and device, number of evaluations, and whether to time its epochs."""

    settings: Settings
    scale: str
    evaluations: int
    timed: bool = False

    @property
    def key(self) -> str:
        """The name of its experiment."""
        return key_of(self.settings)

    @property
    def name(self) -> str:
        """The experiment and the seed."""
        return f"{self.key}-seed{self.settings.seed}"

    @property
    def folder_name(self) -> str:
        """The folder of the run when it is stopped."""
        return f"{self.name}-{self.settings.device.replace(':', '-')}"


def make_run(job: Job, folder: Path, on_begin: Callable[[int], OnStep | None], stop: Stop) -> Record:
    """Make a run, or continue one that was saved in the folder; `on_begin(steps)` returns the step callback."""
    path = folder / job.folder_name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # here a rule that diverges is a result
        training = _begin(job, path)
    ends: list[float] = []  # the time at the end of each epoch

    def note(step: int, row: dict[str, Any] | None) -> None:
        if step % training.steps_per_epoch == 0:
            synchronise(job.settings.device)
            ends.append(time.perf_counter())

    on_step = both(note if job.timed else None, on_begin(training.steps))
    result = _run_with_saves(job, training, path, on_step, stop)
    record = to_record(job, training, result)
    if job.timed:
        # Without the first epoch, which warms up, and the last, which ends with an evaluation.
        record["epoch_seconds"] = [round(end - begin, 6) for begin, end in itertools.pairwise(ends[:-1])]
    shutil.rmtree(path, ignore_errors=True)
    del training, result
    free_memory(job.settings.device)  # a GPU holds one run at a time
    return record


def _begin(job: Job, path: Path) -> Training:
    settings = job.settings
    task = _task(settings.task, settings.model, settings.data_dir)
    if path.exists() and not job.timed:
        try:
            folder, saved = RunFolder.open(path)
            training = make_training(saved, task=task)
            training.resume(folder)
            return training
        except UserError as error:
            warnings.warn(
                f"cannot continue the run saved in '{path}', so it starts again: {error}", RuntimeWarning, stacklevel=4
            )
    shutil.rmtree(path, ignore_errors=True)
    steps = make_plan(settings, task=task).steps
    every = NEVER if job.timed or not job.evaluations else math.ceil(steps / job.evaluations)
    return make_training(dataclasses.replace(settings, eval_every=every), task=task)


def _run_with_saves(job: Job, training: Training, path: Path, on_step: OnStep | None, stop: Stop) -> Trained:
    """Run to the end. A stop saves the run and raises Stopped; a long run is also saved in between."""
    while True:
        save_at = time.monotonic() + SAVE_AFTER

        def stop_or_save(save_at: float = save_at) -> str | bool | None:
            return stop() or ("save" if time.monotonic() >= save_at else None)

        result = training.run(on_step=on_step, stop=stop_or_save, first_row=job.evaluations > 0)
        status = result.summary["status"]
        if status not in ("save", "interrupted", "time limit"):
            return result
        _save(training, result, path)
        if status != "save":
            raise Stopped(status)


def _save(training: Training, result: Trained, path: Path) -> None:
    """Write a new folder beside the old one, so that there is always a complete one."""
    fresh = path.with_name(f"{path.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    folder = RunFolder.create(fresh, training.settings, training.network)
    for row in result.history:
        folder.append(row)
    folder.save(training.state_dict())
    folder.write_summary(result.summary)
    shutil.rmtree(path, ignore_errors=True)
    fresh.rename(path)


def to_record(job: Job, training: Training, result: Trained) -> Record:
    """Return what is stored of a run."""
    summary, settings = result.summary, job.settings
    clusters = summary["clusters"]
    rows = result.history if job.evaluations else result.history[-1:]  # a stop may have left one in between
    average = summary["accuracy_average_model"]
    assert average is not None  # the simulator always has all models
    return {
        "key": job.key,
        "seed": settings.seed,
        "scale": job.scale,
        "settings": settings.identity("experiment"),
        "accuracy": round(summary["accuracy_mean"], DIGITS),
        "accuracy_per_cluster": _by_cluster(summary["accuracy_per_agent"], clusters),
        "accuracy_best": round(max(statistics.fmean(row["accuracy"]) for row in rows), DIGITS),
        "accuracy_average_model": round(average, DIGITS),
        "loss": summary["loss_mean"],
        "consensus": summary["consensus_distance"],
        "predict": summary["predict_fraction"],
        "status": summary["status"],
        "agents": summary["agents"],
        "parameters": summary["parameters"],
        "iterations": summary["iterations"],
        "bytes_sent": summary["bytes_sent"],
        "seconds": round(summary["seconds"], 2),
        "history": _history(rows, clusters),
        "device": device_name(settings.device),
        "precision": training.settings.precision,
        "versions": {"gossamer": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": command_of(settings),
    }


def _history(rows: list[dict[str, Any]], clusters: list[list[int]]) -> dict[str, list[Any]]:
    """Return columns in place of rows, means in place of agents, and few digits."""
    return {
        "epoch": [round(row["epoch"], 2) for row in rows],
        "accuracy": [round(statistics.fmean(row["accuracy"]), DIGITS) for row in rows],
        "spread": [round(statistics.pstdev(row["accuracy"]), DIGITS) for row in rows],
        "predict": [_by_cluster(row["predict"], clusters) if row["predict"] else None for row in rows],
    }


def _by_cluster(values: list[float | None], clusters: list[list[int]]) -> list[float | None]:
    """Return the mean over each cluster's members that have a value."""
    groups = ([values[member] for member in members] for members in clusters or [list(range(len(values)))])
    known = [[value for value in group if value is not None] for group in groups]
    return [round(statistics.fmean(group), DIGITS) if group else None for group in known]
