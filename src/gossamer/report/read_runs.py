"""Reads run folders: finished runs, runs in progress, and one line about each folder that is not readable."""

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
from gossamer.report.agent_spells import AgentTimeline, read_timeline
from gossamer.run.plan import NETWORK_SETTINGS, make_network
from gossamer.run.process_settings import ProcessSettings, read_processes
from gossamer.run.settings import Settings, make_settings, read_settings
from gossamer.run.status import RUNNING, read_status

RUN_FILES = ("config.toml", "metrics.jsonl", "summary.json")
DEPTH = 3  # levels of folders to search: compare writes OUT/runs/NAME
NEEDED = ("task", "network", "algorithm", "seed")  # keys of every config.toml of a run
SILENCE = 60.0  # seconds without a status, after which a run counts as killed
PER_AGENT = (
    *("accuracy", "loss", "consensus", "predict", "train_loss", "message_age", "bytes_sent", "seconds"),
    *("iterations", "computing", "waiting", "down"),  # on a testbed
)

MetricsRow = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The content of a run folder: settings, network, a row per evaluation, and the end if it has ended."""

    path: Path
    values: dict[str, Any]  # config.toml with its options on one level
    settings: Settings | None  # None if they name something that exists only in the program that ran
    network: Network
    rows: list[MetricsRow]
    summary: dict[str, Any]  # empty before the end
    live: dict[str, Any]  # status.json, empty without one
    processes: ProcessSettings | None  # None for a run of the simulator
    timeline: AgentTimeline | None = None  # of a run on a testbed, at its end

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def network_name(self) -> str:
        """The network that the user named. On a testbed the settings may name the run's own file with expected ages."""
        named = self.summary.get("network") if self.values.get("testbed") is not None else None
        return str(named or self.values["network"])

    @property
    def status(self) -> str:
        """How the run ended, or "running", or "unfinished"."""
        if self.live.get("status") == RUNNING and time.time() - self.live.get("time", 0.0) < SILENCE:
            return RUNNING  # a resumed run may have a summary of its first part
        return str(self.summary.get("status") or "unfinished")


class FolderError(UserError):
    """A folder that cannot be shown; the message names it."""


def find_runs(path: Path) -> list[Path]:
    """Return the run folders of a path: itself, or all below it, sorted by name."""
    check_folder(path, "compare")
    found = _below(path, DEPTH)
    if not found:
        what = "holds no run" if any(path.iterdir()) else "is empty"
        raise FolderError(f"'{path}' {what}; give a folder that train or compare wrote")
    return found


def check_folder(path: Path, other: str) -> None:
    """Raise FolderError unless this is a folder; the message says that train and `other` write such folders."""
    if not path.exists():
        raise FolderError(f"there is no '{path}'; give a folder that train or {other} wrote")
    if not path.is_dir():
        raise FolderError(f"'{path}' is a file; give the run folder that contains it")


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
    """Read all runs of the paths; return them, and one line about each folder that cannot be shown.

    If there is no run, the first of those lines is the error. `on_run(done, of)` is called after every run.
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
    """Read one run; it may be in progress, without a summary and with a half-written last row.

    A run without a row is an error unless it may be empty.
    """
    if not (path / "config.toml").is_file():
        raise FolderError(f"'{path}' is not a run folder: it has no config.toml; give one that train or compare wrote")
    try:
        values = read_settings(path / "config.toml")
        if not all(name in values for name in NEEDED):
            missing = next(name for name in NEEDED if name not in values)
            raise UserError(f"its config.toml has no '{missing}'; give one that train or compare wrote")
        summary, live = _summary(path / "summary.json"), read_status(path) or {}
        if str(values.get("testbed", "")).endswith(".toml"):  # each run has a copy: its name tells testbeds apart
            values["testbed"] = Path(values["testbed"]).name
        network = _network(values, summary)
        rows = _rows(path / "metrics.jsonl", network.num_agents)
        processes, timeline = read_processes(path), read_timeline(path, network.num_agents)
    except UserError as error:
        raise FolderError(f"'{path}' cannot be shown: {error}") from None
    if not rows and not may_be_empty:
        raise FolderError(f"'{path}' cannot be shown: it has no evaluation yet; wait for the first one, or train anew")
    network = _in_steps(network, values, rows)
    return RunRecord(path, values, _settings(values), network, rows, summary, live, processes, timeline)


def _settings(values: dict[str, Any]) -> Settings | None:
    try:
        return make_settings(values)
    except UserError:
        return None


def _network(values: dict[str, Any], summary: dict[str, Any]) -> Network:
    """Make the network of the run, with the clusters that the run discovered."""
    names = ("network", "clusters", "delay", *NETWORK_SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run has printed it
        network = make_network(make_settings({name: values[name] for name in names if name in values}))
    found = summary.get("clusters")
    if found and network.clusters is None:
        return network.with_clusters(tuple(tuple(members) for members in found))
    return network


def _in_steps(network: Network, values: dict[str, Any], rows: list[MetricsRow]) -> Network:
    """Return the network; a delay in epochs is converted to steps."""
    last = rows[-1] if rows else {}
    if values.get("delay_unit") != "epoch" or not last.get("epoch"):
        return network
    return network.changed(delay=Scaled(network.delay, round(last["step"] / last["epoch"])))


def _summary(path: Path) -> dict[str, Any]:
    """Return the summary, which is empty before the end of the run."""
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
    """Return the rows in order; of two rows for one step and time the later one counts."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} cannot be read ({error}); train anew into another folder") from None
    lines = text.splitlines()
    rows: dict[tuple[int, float], MetricsRow] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # half-written: the run is in progress or was killed
                break
            row = None
        if not is_row(row, num_agents):
            raise UserError(f"{path.name} is damaged in line {number}; train anew into another folder")
        rows[mark_of(row)] = row
    return [rows[mark] for mark in sorted(rows)]


def mark_of(row: MetricsRow) -> tuple[int, float]:
    """Return what identifies a row: its step, and on a testbed, where it may be evaluated twice, its time."""
    return row["step"], row.get("sim_seconds") or 0.0


def is_row(row: Any, num_agents: int) -> bool:
    """Say whether this is a row of a run: a step, and for each agent a number or null."""
    if not isinstance(row, dict) or not isinstance(row.get("step"), int) or not _is_number_or_null(row.get("epoch")):
        return False
    if not isinstance(row.get("accuracy"), list) or not _is_number_or_null(row.get("sim_seconds")):
        return False

    def fits(value: Any) -> bool:
        return is_list(value, num_agents, _is_number_or_null)

    held = [row.get(name) for name in PER_AGENT]
    known = all(fits(value) if isinstance(value, list) else _is_number_or_null(value) for value in held)
    return known and (row.get("ages") is None or is_list(row["ages"], num_agents, fits))


def is_list(value: Any, length: int, fits: Callable[[Any], bool] = lambda _: True) -> bool:
    """Say whether this is a list of this length whose members all fit."""
    return isinstance(value, list) and len(value) == length and all(map(fits, value))


def is_number(value: Any) -> bool:
    """Say whether this is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number_or_null(value: Any) -> bool:
    return value is None or is_number(value)
