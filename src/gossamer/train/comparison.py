"""`gm.compare`: several algorithms on one task and network from Python, as `gossamer compare` runs them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.engine.training import OnStep
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.run.metric_rows import LabelledRun, accuracy_curve, conditions
from gossamer.tasks import Task
from gossamer.train.compare import HEADINGS, Entry, cells_of, check_all, plan, run_all, split_algorithms, summarise
from gossamer.train.notebook_html import line, section, sparkline, table
from gossamer.train.progress import showing
from gossamer.train.simulate import names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The runs of a comparison. A notebook shows them as a table, the best first.

    Attributes:
        rows: one per algorithm, with means and standard deviations over seeds, as in results.json.
        runs: every run, with its summary and its history.
        network: the network, with its clusters and its delay in steps.
    """

    rows: list[dict[str, Any]]
    runs: list[LabelledRun]
    network: Network

    def plot(self) -> "Figure":
        """Draw accuracy, loss, spread and predict share, one line per algorithm."""
        from gossamer.report.plots import draw_quantities  # slow import: matplotlib

        return draw_quantities(self.runs)

    def _best_first(self) -> list[dict[str, Any]]:
        return sorted(self.rows, key=lambda row: -row["accuracy_mean"])

    def __repr__(self) -> str:
        rows = [HEADINGS, *(cells_of(row) for row in self._best_first())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(["; ".join(conditions(self.runs)), *lines])

    def _repr_html_(self) -> str:
        rows = self._best_first()
        first = {run.label: run for run in reversed(self.runs)}
        curves = [sparkline(accuracy_curve(first[row["label"]]), "accuracy over the run") for row in rows]
        return section(line("; ".join(conditions(self.runs))), table(HEADINGS, [cells_of(row) for row in rows], curves))


def compare(
    algorithms: str | Sequence[str],
    task: str | Task = "digits",
    network: str | Network = "paper-1",
    *,
    seeds: int = 1,
    out: str | Path | None = None,
    progress: bool | str = "auto",
    **settings: Any,
) -> Comparison:
    """Run several algorithms with several seeds in the simulator, and compare them.

    Args:
        algorithms: texts such as "pc-asgd/theta=pv", as a list or comma-separated.
        task: a name such as "digits", or a `gm.Task` of your own.
        network: a text such as "clusters:3,5", or an object from `gm.network`.
        seeds: the number of seeds; the first one is `seed`.
        out: a new folder; each run gets its own folder under out/runs.
        progress: True shows a progress bar; "auto" shows one in a notebook only.
        **settings: any setting of `gossamer compare`, such as lr=0.05 or epochs=5, and options of the algorithms.
    """
    if seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}")
    texts = split_algorithms(algorithms) if isinstance(algorithms, str) else list(algorithms)
    entries = plan(texts, {**names_of(task, network, settings), **settings})
    folder = _new_folder(out, entries[0].settings.log)
    own_task = task if isinstance(task, Task) else None
    own_network = network if isinstance(network, Network) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # each run warns when it starts
        check_all(entries, task=own_task, network=own_network)
    first = entries[0].settings.seed
    runs: list[LabelledRun] = []
    shown_network: Network | None = None
    with showing(progress, len(entries) * seeds) as begin:

        def on_run(entry: Entry, seed: int, steps: int) -> OnStep | None:
            return begin(f"{entry.label}, seed {seed}", steps)

        numbers = list(range(first, first + seeds))
        for run, met_network in run_all(entries, numbers, folder, on_run, task=own_task, network=own_network):
            runs.append(run)
            if shown_network is None or (met_network.clusters is not None and shown_network.clusters is None):
                shown_network = met_network
    assert shown_network is not None
    return Comparison(summarise(runs), runs, shown_network)


def _new_folder(out: str | Path | None, log: str | None) -> Path | None:
    """Return the folder for the runs, or None. Refuse one that is not empty, and `log` without a folder."""
    if out is None:
        if log:
            raise UserError(f"log='{log}' needs a folder for its files; give one with out=")
        return None
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"'{folder}' already exists; choose another out")
    return folder
