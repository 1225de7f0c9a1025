"""Progress bars on a terminal. They go to standard error, disappear when done and stay silent off a terminal."""

import statistics
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from gossamer.engine.training import OnStep  # imports torch, which --help does not need

err = Console(stderr=True)


def make_progress() -> Progress:
    """Return bars with a note beside each."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


def step_callback(progress: Progress, bar: TaskID) -> "OnStep":
    """Return the function that moves a bar, with the newest accuracy beside it."""

    def on_step(step: int, row: dict[str, Any] | None) -> None:
        progress.update(bar, completed=step)
        if row is not None:
            progress.update(bar, note=f"accuracy {100 * statistics.fmean(row['accuracy']):.1f} %")

    return on_step


class Bars:
    """A bar for the present run, and one for all of them where there are several."""

    def __init__(self, progress: Progress, runs: int) -> None:
        self._progress, self._begun = progress, 0
        self._whole = progress.add_task("all runs", total=runs, note="") if runs > 1 else None
        self._bar = progress.add_task("", total=None, note="")

    def begin(self, label: str, steps: int) -> "OnStep":
        """Begin the bar anew."""
        if self._whole is not None:
            self._progress.update(self._whole, completed=self._begun)
        self._begun += 1
        self._progress.reset(self._bar, description=label, total=steps, note="")
        return step_callback(self._progress, self._bar)
