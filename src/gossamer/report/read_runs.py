"""Run folders as records: finished runs, runs that still go on, and one line about what is neither."""

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.network import Network, Scaled
from gossamer.run.plan import NETWORK_SETTINGS, make_network
from gossamer.run.settings import Settings, make_settings, read_settings
from gossamer.run.status import RUNNING, read_status
from gossamer.runtime.launch.launch_settings import ProcessSettings, read_processes

RUN_FILES = ("config.toml", "metrics.jsonl", "summary.json")
DEPTH = 3  # folders below the one that was named: compare writes OUT/runs/NAME
NEEDED = ("task", "network", "algorithm", "seed")  # which every config.toml of a run has
SILENCE = 60.0  # seconds: a run that has said nothing for so long was killed
PER_AGENT = ("accuracy", "loss", "consensus", "predict", "train_loss", "message_age", "bytes_sent", "seconds")

MetricsRow = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What a run folder says: its settings, its network, a row an evaluation, and how it ended if it has."""

    path: Path
    values: dict[str, Any]  # config.toml, its options laid flat
    settings: Settings | None  # None when they name what only the Python that made the run knows
    network: Network
    rows: list[MetricsRow]
    summary: dict[str, Any]  # empty before the end
    live: dict[str, Any]  # status.json, empty without one
    processes: ProcessSettings | None  # None for a run of the simulator

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def status(self) -> str:
        """How the run ended, or that it has not."""
        if self.live.get("status") == RUNNING and time.time() - self.live.get("time", 0.0) < SILENCE:
            return RUNNING  # again, where there is a summary of an earlier part
        return str(self.summary.get("status") or "unfinished")


class FolderError(UserError):
    """A folder that cannot be shown; the message names it."""


def find_runs(path: Path) -> list[Path]:
    """Return the run folders that a path stands for: itself, or all below it, in the order of their names."""
    if not path.exists():
        raise FolderError(f"there is no '{path}'; give a folder that train or compare wrote")
    if not path.is_dir():
        raise FolderError(f"'{path}' is a file; give the run folder that it lies in")
    found = _below(path, DEPTH)
    if not found:
        what = "holds no run" if any(path.iterdir()) else "is empty"
        raise FolderError(f"'{path}' {what}; give a folder that train or compare wrote")
    return found


def _below(path: Path, depth: int) -> list[Path]:
    if any((path / name).is_file() for name in RUN_FILES):
        return [path]
    if not depth:
        return []
    try:
        inside = sorted(Path(entry.path) for entry in os.scandir(path) if entry.is_dir())
    except OSError as error:
        raise FolderError(f"cannot read '{path}' ({error.strerror}); check its permissions") from None
    return [run for folder in inside for run in _below(folder, depth - 1)]


def read_runs(
    paths: Sequence[Path], on_run: Callable[[int, int], None] = lambda done, of: None
) -> tuple[list[RunRecord], list[str]]:
    """Read all runs that the paths stand for; what cannot be shown is left out, and told in a line each.

    When nothing is left, the first of those lines is the error. `on_run(done, of)` hears of every run.
    """
    folders: list[Path] = []
    troubles: list[str] = []
    for path in paths:
        try:
            folders += find_runs(path)
        except FolderError as error:
            troubles.append(str(error))
    folders = list({folder.resolve(): folder for folder in folders}.values())
    records = []
    for done, folder in enumerate(folders, start=1):
        try:
            records.append(read_run(folder))
        except FolderError as error:
            troubles.append(str(error))
        on_run(done, len(folders))
    if not records:
        more = f" (and {len(troubles) - 1} more that cannot be shown)" if len(troubles) > 1 else ""
        raise UserError(f"{troubles[0]}{more}")
    return records, troubles


def read_run(path: Path, *, may_be_empty: bool = False) -> RunRecord:
    """Read one run; it may still be going on, so that its summary is missing and its last row half-written.

    A run without a row is an error unless it may be empty, as one that has just begun is.
    """
    if not (path / "config.toml").is_file():
        raise FolderError(f"'{path}' is not a run folder: it has no config.toml; give one that train or compare wrote")
    try:
        values = read_settings(path / "config.toml")
        if not all(name in values for name in NEEDED):
            missing = next(name for name in NEEDED if name not in values)
            raise UserError(f"its config.toml has no '{missing}'; give one that train or compare wrote")
        summary, live = _summary(path / "summary.json"), read_status(path) or {}
        network = _network(values, summary)
        rows = _rows(path / "metrics.jsonl", network.num_agents)
        processes = read_processes(path)
    except UserError as error:
        raise FolderError(f"'{path}' cannot be shown: {error}") from None
    if not rows and not may_be_empty:
        raise FolderError(f"'{path}' cannot be shown: it has no evaluation yet; wait for the first one, or train anew")
    return RunRecord(path, values, _settings(values), _in_steps(network, values, rows), rows, summary, live, processes)


def _settings(values: dict[str, Any]) -> Settings | None:
    try:
        return make_settings(values)
    except UserError:
        return None


def _network(values: dict[str, Any], summary: dict[str, Any]) -> Network:
    """Make the network anew, with the clusters that the run has discovered."""
    names = ("network", "clusters", "delay", *NETWORK_SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run has said it
        network = make_network(make_settings({name: values[name] for name in names if name in values}))
    found = summary.get("clusters")
    if found and network.clusters is None:
        return network.with_clusters(tuple(tuple(members) for members in found))
    return network


def _in_steps(network: Network, values: dict[str, Any], rows: list[MetricsRow]) -> Network:
    """Return the network with a delay that counts epochs, where it does so."""
    last = rows[-1] if rows else {}
    if values.get("delay_unit") != "epoch" or not last.get("epoch"):
        return network
    return dataclasses.replace(network, delay=Scaled(network.delay, round(last["step"] / last["epoch"])))


def _summary(path: Path) -> dict[str, Any]:
    """Return the summary, or nothing before the end of the run."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict):
        raise UserError(f"{path.name} is damaged; train anew into another folder")
    return document


def _rows(path: Path, num_agents: int) -> list[MetricsRow]:
    """Return the rows in the order of their steps; of two for one step the later one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} cannot be read ({error}); train anew into another folder") from None
    lines = text.splitlines()
    rows: dict[int, MetricsRow] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # half-written: the run goes on, or was killed
                break
            row = None
        if not is_row(row, num_agents):
            raise UserError(f"{path.name} is damaged in line {number}; train anew into another folder")
        rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def is_row(row: Any, num_agents: int) -> bool:
    """Say whether this is what a run writes: a step, and for each agent a number or null."""
    if not isinstance(row, dict) or not isinstance(row.get("step"), int) or not _is_number(row.get("epoch")):
        return False
    if not isinstance(row.get("accuracy"), list):
        return False
    held = [row.get(name) for name in PER_AGENT]
    known = all(_is_list(value, num_agents) if isinstance(value, list) else _is_number(value) for value in held)
    return known and (row.get("ages") is None or _is_table(row["ages"], num_agents))


def _is_table(rows: Any, size: int) -> bool:
    return isinstance(rows, list) and len(rows) == size and all(_is_list(row, size) for row in rows)


def _is_list(values: Any, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(map(_is_number, values))


def _is_number(value: Any) -> bool:
    """Say whether this is a number, or null in its place."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
