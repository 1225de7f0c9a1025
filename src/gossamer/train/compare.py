"""`gm.compare` and `gossamer compare`: several algorithms on one task and network, over several seeds."""

import dataclasses
import itertools
import json
import math
import re
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.algorithms import algorithm_class, parse_algorithm
from gossamer.algorithms.options import describe_options
from gossamer.algorithms.plugins import load_plugins
from gossamer.engine.make_training import make_training
from gossamer.engine.training import OnStep, Training
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder, safe_name
from gossamer.run.merge_settings import merge_settings
from gossamer.run.metric_rows import LabelledRun, accuracy_curve, conditions, mean
from gossamer.run.settings import SETTING_NAMES, Settings
from gossamer.run.strict_json import to_json
from gossamer.tasks import Task
from gossamer.testbed import Testbed
from gossamer.train.loggers import check_log, logged
from gossamer.train.notebook_html import line, section, sparkline, table
from gossamer.train.progress import showing
from gossamer.train.simulate import names_of, take_testbed
from gossamer.train.target_columns import time_columns, time_values, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS = ("algorithm", "lr", "accuracy %", "averaged model %", "loss", "spread", "MB sent")


@dataclass(frozen=True)
class Entry:
    """One algorithm of a comparison: its text, such as 'pc-asgd/theta=pv', and its settings."""

    label: str
    settings: Settings


def split_algorithms(text: str) -> list[str]:
    """Split 'sync,pc-asgd/theta=linear:0,0.5,100' at those commas that are followed by a name."""
    return [part.strip() for part in re.split(r",\s*(?=[A-Za-z])", text) if part.strip()]


def plan(algorithms: list[str], given: dict[str, Any], preset: str | None = None) -> list[Entry]:
    """Return the settings of each algorithm. The options in its text override `given`, which overrides the preset."""
    if not algorithms:
        raise UserError("no algorithm is given; use for example --algorithms sync,d-asgd,pc-asgd")
    repeated = {text for text in algorithms if algorithms.count(text) > 1}
    if repeated:
        raise UserError(f"'{min(repeated)}' is named twice; name each algorithm once, options may differ")
    load_plugins(given.get("plugin"))  # plugins may define some of the algorithms
    options = {name: value for name, value in given.items() if name not in SETTING_NAMES and name != "options"}
    settings = {name: value for name, value in given.items() if name in SETTING_NAMES}
    used: set[str] = set()
    entries = []
    for text in algorithms:
        known = describe_options(algorithm_class(parse_algorithm(text)[0]))
        shared = {name: value for name, value in options.items() if name in known}
        used |= set(shared)
        entries.append(Entry(text, merge_settings({**settings, **shared, "algorithm": text}, preset)))
    unused = sorted(set(options) - used)
    check_log(entries[0].settings.log)
    if unused:
        raise UserError(f"none of {', '.join(algorithms)} has the option '{unused[0]}'; leave it out")
    return entries


def check_all(
    entries: list[Entry],
    *,
    task: Task | None = None,
    network: Network | None = None,
    testbed: Testbed | None = None,
) -> None:
    """Build every run once, so that a mistake in the last run is reported before the first run starts."""
    for entry in entries:
        make_training(entry.settings, task=task, network=network, testbed=testbed)


def run_all(
    entries: list[Entry],
    seeds: list[int],
    folder: Path | None,
    on_run: Callable[[Entry, int, int], OnStep | None],
    *,
    task: Task | None = None,
    network: Network | None = None,
    testbed: Testbed | None = None,
) -> Iterator[tuple[LabelledRun, Network]]:
    """Run every algorithm with every seed. With a folder, write the runs into folder/runs.

    `on_run(entry, seed, steps)` returns the step callback. A given task or network replaces that of the settings.
    """
    for entry, seed in itertools.product(entries, seeds):
        training = make_training(
            dataclasses.replace(entry.settings, seed=seed), task=task, network=network, testbed=testbed
        )
        if folder is None:
            result = training.run(None, on_run(entry, seed, training.length))
            yield LabelledRun(entry.label, seed, result.summary, result.history), training.network
            continue
        path = folder / "runs" / f"{safe_name(entry.label)}-seed{seed}"
        finished = _finished(path, training)
        if finished is not None:
            yield LabelledRun(entry.label, seed, *finished), training.network
            continue
        shutil.rmtree(path, ignore_errors=True)  # left by an interrupted comparison, which this one continues
        run_folder = RunFolder.create(path, training.settings, training.network)
        with logged(run_folder, training.settings, []):
            result = training.run(run_folder, on_run(entry, seed, training.length))
        yield LabelledRun(entry.label, seed, result.summary, result.history), training.network


def _finished(path: Path, training: Training) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return summary and history of a run that finished before with the same settings; None if there is none."""
    if not path.exists():
        return None
    try:
        folder, settings = RunFolder.open(path)
        summary = folder.read_summary()
        rows = folder.read_rows()
    except (UserError, OSError, ValueError):
        return None
    complete = summary.get("status") == "finished" and settings.digest() == training.settings.digest()
    return (summary, rows) if complete and rows else None


def summarise(runs: list[LabelledRun]) -> list[dict[str, Any]]:
    """Return one row per algorithm: means and standard deviations over seeds."""
    rows = []
    for label in dict.fromkeys(run.label for run in runs):
        summaries = [run.summary for run in runs if run.label == label]
        accuracies = [summary["accuracy_mean"] for summary in summaries]
        rows.append(
            {
                "algorithm": summaries[0]["algorithm"],
                "label": label,
                "options": summaries[0]["options"],
                "lr": summaries[0]["lr"],
                "accuracy_mean": statistics.fmean(accuracies),
                "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
                "accuracy_per_seed": accuracies,
                "accuracy_average_model": statistics.fmean(s["accuracy_average_model"] for s in summaries),
                "loss_mean": statistics.fmean(s["loss_mean"] for s in summaries),
                "consensus_distance": statistics.fmean(s["consensus_distance"] for s in summaries),
                "predict_fraction": mean(s["predict_fraction"] for s in summaries),
                "message_age": mean(s["message_age"] for s in summaries),
                "bytes_sent": summaries[0]["bytes_sent"],
                "seconds": statistics.fmean(s["seconds"] for s in summaries),
                **time_values(summaries),
                "diverged": sum(s["status"] != "finished" for s in summaries),
                "seeds": [run.seed for run in runs if run.label == label],
            }
        )
    return rows


def write_results(folder: Path, document: dict[str, Any]) -> None:
    """Write the comparison to results.json, and its table to results.md."""
    text = json.dumps(json.loads(to_json(document)), indent=2, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    (folder / "results.md").write_text(to_markdown(document), encoding="utf-8")


def to_markdown(document: dict[str, Any]) -> str:
    """Return the content of `results.json` as a page: the settings, and one row per algorithm, the best first."""
    seeds = f"{document['seeds']} seed{'s' if document['seeds'] > 1 else ''}"
    data = "held-out training data" if document.get("validation") else "test data"
    further = time_columns(document["results"])
    length = (
        f"{document['epochs']} epochs"
        if document.get("seconds") is None
        else f"{document['seconds']:g} simulated seconds"
    )
    lines = [
        f"# {document['task']} with {document['model']}, {document['network']}, delay {document['delay']}",
        "",
        f"{length}, {seeds}: mean ± standard deviation over seeds of the agents' mean accuracy on",
        f"{data}. *Averaged model*: accuracy of the averaged model. *Spread*: mean distance of the agents from it.",
        "",
        f"| {' | '.join([*HEADINGS, *(heading for heading, _ in further)])} |",
        f"|---|{'---:|' * (len(HEADINGS) + len(further) - 1)}",
    ]
    for row in sorted(document["results"], key=lambda row: -row["accuracy_mean"]):
        lines.append(f"| {' | '.join([*cells_of(row), *(cell(row) for _, cell in further)])} |")
    said = verdict(document["results"])
    return "\n".join([*lines, *(["", *said] if said else [])]) + "\n"


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the table cells of one algorithm, in the order of HEADINGS."""
    diverged = f" ({row['diverged']} of {len(row['seeds'])} diverged)" if row["diverged"] else ""
    return (
        row["label"].replace("/", " "),
        f"{row['lr']:g}",
        f"{100 * row['accuracy_mean']:.1f} ± {100 * row['accuracy_std']:.1f}{diverged}",
        f"{100 * row['accuracy_average_model']:.1f}",
        _finite(row["loss_mean"], 3),
        _finite(row["consensus_distance"], 2),
        f"{row['bytes_sent'] / 1e6:.0f}",
    )


def _finite(value: float | None, digits: int) -> str:
    """Return the number as text, or a dash if it is not finite or null."""
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else "-"


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
        further = time_columns(self.rows)
        headings = (*HEADINGS, *(heading for heading, _ in further))
        rows = [headings, *((*cells_of(row), *(cell(row) for _, cell in further)) for row in self._best_first())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(["; ".join(conditions(self.runs)), *lines, *verdict(self.rows)])

    def _repr_html_(self) -> str:
        rows = self._best_first()
        first = {run.label: run for run in reversed(self.runs)}
        curves = [sparkline(accuracy_curve(first[row["label"]]), "accuracy over the run") for row in rows]
        further = time_columns(rows)
        headings = (*HEADINGS, *(heading for heading, _ in further))
        cells = [(*cells_of(row), *(cell(row) for _, cell in further)) for row in rows]
        about = "; ".join([*conditions(self.runs), *verdict(rows)])
        return section(line(about), table(headings, cells, curves))


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
    settings, testbed = take_testbed(settings)
    entries = plan(texts, {**names_of(task, network, settings), **settings})
    folder = _new_folder(out, entries[0].settings.log)
    own_task = task if isinstance(task, Task) else None
    own_network = network if isinstance(network, Network) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # each run warns when it starts
        check_all(entries, task=own_task, network=own_network, testbed=testbed)
    first = entries[0].settings.seed
    runs: list[LabelledRun] = []
    shown_network: Network | None = None
    with showing(progress, len(entries) * seeds) as begin:

        def on_run(entry: Entry, seed: int, steps: int) -> OnStep | None:
            return begin(f"{entry.label}, seed {seed}", steps)

        numbers = list(range(first, first + seeds))
        own = {"task": own_task, "network": own_network, "testbed": testbed}
        for run, met_network in run_all(entries, numbers, folder, on_run, **own):  # type: ignore[arg-type]
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
