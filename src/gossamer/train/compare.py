"""Compares algorithms on one task and network, over several seeds."""

import dataclasses
import itertools
import json
import math
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms import algorithm_class, parse_algorithm
from gossamer.algorithms.options import describe_options
from gossamer.algorithms.plugins import load_plugins
from gossamer.engine.training import OnStep, Training
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder, safe_name, to_json
from gossamer.run.merge_settings import merge_settings
from gossamer.run.metric_rows import LabelledRun, mean
from gossamer.run.settings import SETTING_NAMES, Settings
from gossamer.tasks import Task
from gossamer.train.loggers import check_log, logged

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


def check_all(entries: list[Entry], *, task: Task | None = None, network: Network | None = None) -> None:
    """Build every run once, so that a mistake in the last run is reported before the first run starts."""
    for entry in entries:
        Training(entry.settings, task=task, network=network)


def run_all(
    entries: list[Entry],
    seeds: list[int],
    folder: Path | None,
    on_run: Callable[[Entry, int, int], OnStep | None],
    *,
    task: Task | None = None,
    network: Network | None = None,
) -> Iterator[tuple[LabelledRun, Network]]:
    """Run every algorithm with every seed. With a folder, write the runs into folder/runs.

    `on_run(entry, seed, steps)` returns the step callback. A given task or network replaces that of the settings.
    """
    for entry, seed in itertools.product(entries, seeds):
        training = Training(dataclasses.replace(entry.settings, seed=seed), task=task, network=network)
        if folder is None:
            result = training.run(None, on_run(entry, seed, training.steps))
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
            result = training.run(run_folder, on_run(entry, seed, training.steps))
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
    lines = [
        f"# {document['task']} with {document['model']}, {document['network']}, delay {document['delay']}",
        "",
        f"{document['epochs']} epochs, {seeds}: mean ± standard deviation over seeds of the agents' mean accuracy on",
        f"{data}. *Averaged model*: accuracy of the averaged model. *Spread*: mean distance of the agents from it.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * (len(HEADINGS) - 1)}",
    ]
    for row in sorted(document["results"], key=lambda row: -row["accuracy_mean"]):
        lines.append(f"| {' | '.join(cells_of(row))} |")
    return "\n".join(lines) + "\n"


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
