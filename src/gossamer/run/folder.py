"""A run on disk: config.toml, metrics.jsonl, summary.json, checkpoints, and copies of its input files."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.algorithms.plugins import is_file, load_plugins, split_plugins
from gossamer.errors import UserError
from gossamer.network import Fixed, Network, PerLink, Scaled, Trace
from gossamer.run.settings import Settings, make_settings, read_settings
from gossamer.run.strict_json import finite, to_json
from gossamer.shapes import Tensor
from gossamer.state.checkpoint import Checkpoints, tells_of_a_full_disk, write_text
from gossamer.testbed.testbed import CUSTOM


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; empty if it is missing, unreadable or something else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class RunFolder:
    """The folder of one run. `create` refuses an existing run; `open` reads one in order to resume it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoints = Checkpoints(path)
        self.checkpoint_path = self._checkpoints.newest
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # called with each row after it is written

    @classmethod
    def create(cls, path: Path, settings: Settings, network: Network) -> "RunFolder":
        """Make the folder and write a config.toml that repeats the run."""
        if path.is_file():
            raise UserError(f"'{path}' already exists and is a file; choose another --out")
        if path.exists() and any(path.iterdir()):
            raise UserError(f"'{path}' already exists; choose another --out, or continue it with --resume {path}")
        if settings.testbed == CUSTOM:
            raise UserError(
                "a testbed made of numbers in Python cannot be stored in a run folder; write it as a .toml file, or "
                "leave out= away"
            )
        make_folder(path)
        write_text(path / "metrics.jsonl", "")
        # Written last: config.toml makes this a run folder. From here on, a killed run can be resumed.
        write_text(path / "config.toml", _self_contained(path, settings, network).to_toml())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", Settings]:
        """Open an existing run to resume it: read its settings and load its plugins."""
        if not (path / "config.toml").is_file():
            raise UserError(f"'{path}' is not a run folder: it has no config.toml; give one that train wrote")
        values = read_settings(path / "config.toml")
        load_plugins(values.get("plugin"))
        return cls(path), make_settings(values)

    def append(self, row: dict[str, Any]) -> None:
        """Add one row to metrics.jsonl."""
        with tells_of_a_full_disk(self.path), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(to_json(row) + "\n")
        for listener in self.listeners:
            listener(row)

    def read_rows(self) -> list[dict[str, Any]]:
        """Return all rows of metrics.jsonl."""
        lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def keep_rows(self, count: int) -> list[dict[str, Any]]:
        """Keep the first `count` rows and return them. Later rows were written after the checkpoint."""
        path = self.path / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines[:count]]
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read '{path}' ({error}); train anew into another folder") from None
        if len(rows) < count:
            raise UserError(f"'{path}' has {len(lines)} lines but the checkpoint counts {count}; train anew")
        write_text(path, "".join(line + "\n" for line in lines[:count]))
        return rows

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json. It replaces the summary of an earlier part of the same run."""
        write_text(self.path / "summary.json", json.dumps(finite(dict(summary)), indent=2, ensure_ascii=False) + "\n")

    def read_summary(self) -> dict[str, Any]:
        """Return the summary of an earlier part of the run; empty if it is missing or unreadable."""
        return read_object(self.path / "summary.json")

    @property
    def never_saved(self) -> bool:
        """Whether the run was killed or crashed before its first checkpoint."""
        # A run with a summary has saved a checkpoint. If it is missing, it was deleted: resuming must report that.
        return not self._checkpoints.exist() and not (self.path / "summary.json").exists()

    def save(self, state: dict[str, Tensor]) -> None:
        """Write a checkpoint, but first sync the metrics: after a power cut it must not count lost rows."""
        with tells_of_a_full_disk(self.path), (self.path / "metrics.jsonl").open("ab") as file:
            os.fsync(file.fileno())
        self._checkpoints.save(state)

    def load(self) -> dict[str, Tensor]:
        """Read the newest valid checkpoint."""
        return self._checkpoints.load()


def _self_contained(path: Path, settings: Settings, network: Network) -> Settings:
    """Copy graphs, delay matrices, traces and schedules into the folder, so that the run needs no other files."""
    changes: dict[str, Any] = {}
    delay = network.delay.base if isinstance(network.delay, Scaled) else network.delay
    if settings.testbed is not None:
        delay = Fixed(0)  # that of the network is the testbed's
        changes |= {"testbed": _copied_testbed(path, settings.testbed)}
    if network.spec == "custom" or network.spec.startswith("file:") or isinstance(delay, PerLink):
        document = network.changed(delay=delay).to_json()
        write_text(path / "network.json", json.dumps(document) + "\n")
        changes |= {"network": "file:network.json"}
    if isinstance(delay, PerLink):
        changes |= {"delay": None}
    elif isinstance(delay, Trace):
        write_text(path / "trace.csv", delay.to_csv())
        changes |= {"delay": "trace:trace.csv"}
    if network.schedule is not None:
        changes |= {"graph_schedule": network.schedule.copied_to(path)}
    if settings.plugin is not None:
        changes |= {"plugin": ",".join(_copied(path, plugin) for plugin in split_plugins(settings.plugin))}
    return dataclasses.replace(settings, **changes)


def _copied_testbed(path: Path, text: str) -> str:
    """Copy a testbed's file into the folder."""
    if not text.endswith(".toml"):
        return text
    name = "testbed.toml" if Path(text).name == "config.toml" else Path(text).name
    write_text(path / name, Path(text).read_text(encoding="utf-8"))
    return name


def _copied(path: Path, plugin: str) -> str:
    """Copy a plugin file into the folder, as it is at the start of the run. An installed module is not copied."""
    if not is_file(plugin):
        return plugin
    copy = Path("plugins") / Path(plugin).name
    (path / copy).parent.mkdir(exist_ok=True)
    write_text(path / copy, Path(plugin).read_text(encoding="utf-8"))
    return copy.as_posix()


def make_folder(path: Path, flag: str = "--out") -> None:
    """Make a folder, or say why not and which flag names another."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create '{path}' ({error.strerror}); choose another {flag}") from None


def safe_name(text: str) -> str:
    """Return the text with every character replaced that is unsafe in a file name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-")


def unused_folder(parent: Path, name: str) -> Path:
    """Return parent/name, or parent/name-2, -3, … if that exists: no folder is ever overwritten."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path
