"""The progress of a run: a widget in a notebook, a bar on a terminal (standard error), or nothing.

The widget is plain HTML, updated through an IPython display handle. It needs no script and no further package.
"""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gossamer.errors import UserError
from gossamer.train.notebook_html import bar, line, section, sparkline

if TYPE_CHECKING:
    from gossamer.engine.training import OnStep  # imports torch, which --help does not need

PAUSE = 0.25  # least seconds between two updates of the widget
err = Console(stderr=True)


Begin = Callable[[str, int], "OnStep | None"]  # begins a run of so many steps; returns the callback for its steps


@contextlib.contextmanager
def showing(wanted: bool | str, runs: int = 1) -> Iterator[Begin]:
    """Show progress of one or more runs: True everywhere, "auto" in a notebook only, False nowhere."""
    if wanted not in (True, False, "auto"):
        raise UserError(f"progress must be True, False or 'auto', got '{wanted}'")
    if wanted and in_notebook():
        widget = Widget(runs)
        try:
            yield widget.begin
        finally:
            widget.close()
    elif wanted is True:
        with make_progress() as bars:
            yield Bars(bars, runs).begin
    else:
        yield lambda label, steps: None


def in_notebook() -> bool:
    """Return whether this is a notebook kernel. IPython on a terminal is not one."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def both(*callbacks: "OnStep | None") -> "OnStep | None":
    """Return one callback that calls all given ones; None if there are none."""
    present = [callback for callback in callbacks if callback is not None]
    if len(present) < 2:
        return present[0] if present else None

    def on_step(step: int, row: dict[str, Any] | None) -> None:
        for callback in present:
            callback(step, row)

    return on_step


class Widget:
    """A progress bar, the time left, the newest accuracy and loss, and the accuracy curve so far."""

    def __init__(self, runs: int) -> None:
        from IPython.display import HTML, display

        self._html, self._runs, self._number = HTML, runs, 0
        self._label, self._steps, self._step = "", 0, 0
        self._begun = self._drawn = time.monotonic()
        self._newest: dict[str, Any] | None = None
        self._accuracy: list[float] = []
        self._handle = display(HTML(""), display_id=True)

    def begin(self, label: str, steps: int) -> "OnStep":
        """Start the display of a new run."""
        self._number += 1
        self._label, self._steps, self._step = label, steps, 0
        self._begun, self._newest, self._accuracy = time.monotonic(), None, []
        self._draw()
        return self._on_step

    def _on_step(self, step: int, row: dict[str, Any] | None) -> None:
        self._step = step
        if row is not None:
            self._newest = row
            self._accuracy.append(statistics.fmean(row["accuracy"]))
        if time.monotonic() - self._drawn >= PAUSE:
            self._draw()

    def close(self) -> None:
        """Show the final state, without the time left."""
        self._draw(ended=True)

    def _draw(self, *, ended: bool = False) -> None:
        self._drawn = time.monotonic()
        share = self._step / self._steps if self._steps else 0.0
        self._handle.update(
            self._html(section(line(self._text(ended)), bar(share), sparkline(self._accuracy, "accuracy so far")))
        )

    def _text(self, ended: bool) -> str:
        which = f"run {self._number} of {self._runs}: " if self._runs > 1 else ""
        words = [f"{which}{self._label}, step {self._step} of {self._steps}"]
        if self._newest is not None:
            loss = [value for value in self._newest["loss"] if value is not None]
            words.append(f"accuracy {100 * self._accuracy[-1]:.1f} %, loss {statistics.fmean(loss):.3f}")
        taken = self._drawn - self._begun
        if self._step and self._step < self._steps and not ended:
            words.append(f"{taken * (self._steps - self._step) / self._step:.0f} s left")
        return ", ".join(words)


def make_progress() -> Progress:
    """Return progress bars with a note beside each."""
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
    """Return a callback that advances a bar and shows the newest accuracy beside it."""

    def on_step(step: int, row: dict[str, Any] | None) -> None:
        progress.update(bar, completed=step)
        if row is not None:
            progress.update(bar, note=f"accuracy {100 * statistics.fmean(row['accuracy']):.1f} %")

    return on_step


class Bars:
    """A bar for the current run, and one for all runs if there are several."""

    def __init__(self, progress: Progress, runs: int) -> None:
        self._progress, self._begun = progress, 0
        self._whole = progress.add_task("all runs", total=runs, note="") if runs > 1 else None
        self._bar = progress.add_task("", total=None, note="")

    def begin(self, label: str, steps: int) -> "OnStep":
        """Restart the bar for a new run."""
        if self._whole is not None:
            self._progress.update(self._whole, completed=self._begun)
        self._begun += 1
        self._progress.reset(self._bar, description=label, total=steps, note="")
        return step_callback(self._progress, self._bar)
