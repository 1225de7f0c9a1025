"""`gossamer train --engine processes`: launch the agents of a run and show how far they are."""

import statistics
import sys
from typing import Any

from rich.progress import Progress, TaskID

from gossamer.cli.display import make_progress
from gossamer.cli.interrupt import Interrupt
from gossamer.cli.train_asked import Asked
from gossamer.run.folder import RunFolder
from gossamer.run.plan import make_plan
from gossamer.runtime.launch.job import Watcher
from gossamer.runtime.launch.launch_settings import Processes
from gossamer.train.loggers import logged
from gossamer.train.processes.launched_training import check, train


class _Bar(Watcher):
    """A progress bar as far as the slowest agent, and a line for each agent that dies."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress, self._bar = progress, bar

    def event(self, text: str) -> None:
        """Say it above the bar."""
        print(f"gossamer: {text}", file=sys.stderr)

    def status(self, rows: list[dict[str, Any]]) -> None:
        """Move the bar."""
        steps = [int(row.get("step") or 0) for row in rows]
        right = [row["accuracy"] for row in rows if isinstance(row.get("accuracy"), float)]
        note = f"{100 * statistics.fmean(right):.1f} %" if right else ""
        self._progress.update(self._bar, completed=min(steps), note=note)


def train_in_processes(how: Processes, asked: Asked, time_limit: float | None) -> tuple[dict[str, Any], RunFolder, int]:
    """Run the agents to their end; return the summary, the folder, and how many steps there are."""
    if asked.resume is not None:
        folder, settings = asked.open_folder()
        made = make_plan(settings)
    else:
        made = make_plan(asked.settings())
        check(made, how)
        folder = asked.make_folder(made.settings, made.network)
        how.write(folder.path)
    with make_progress() as progress, Interrupt(time_limit) as interrupt, logged(folder, made.settings, []):
        bar = progress.add_task(made.algorithm.name, total=made.steps, note="")
        summary = train(made, folder, how, watcher=_Bar(progress, bar), stop=interrupt)
    return summary, folder, made.steps
