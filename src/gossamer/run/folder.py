"""A run on disk: config.toml, metrics.jsonl, summary.json, checkpoints, and copies of the files it was made from."""

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.algorithms.plugins import is_file, load_plugins, split_plugins
from gossamer.errors import UserError
from gossamer.network import Network, PerLink, Scaled, Trace
from gossamer.run.settings import Settings, make_settings, read_settings
from gossamer.shapes import Tensor
from gossamer.state.checkpoint import Checkpoints, tells_of_a_full_disk, write_text


def to_json(value: Any) -> str:
    """Write one line of strict JSON; a number that is not finite becomes null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:  # looking at every number first would take ten times as long as writing them
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class RunFolder:
    """One run's folder. `create` refuses to touch what exists; `open` reads it back to go on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoints = Checkpoints(path)
        self.checkpoint_path = self._checkpoints.newest
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # told of each row, once it is written

    @classmethod
    def create(cls, path: Path, settings: Settings, network: Network) -> "RunFolder":
        """Make the folder and write a config.toml from which the run can be repeated."""
        if path.is_file():
            raise UserError(f"'{path}' already exists and is a file; choose another --out")
        if path.exists() and any(path.iterdir()):
            raise UserError(f"'{path}' already exists; choose another --out, or continue it with --resume {path}")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create '{path}' ({error.strerror}); choose another --out") from None
        write_text(path / "metrics.jsonl", "")
        # Last, as it makes this a run folder: one that is killed here can be resumed from then on.
        write_text(path / "config.toml", _self_contained(path, settings, network).to_toml())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", Settings]:
        """Read the settings of a run that was begun before, and load its plugins, to go on with it."""
        if not (path / "config.toml").is_file():
            raise UserError(f"'{path}' is not a run folder: it has no config.toml; give one that train wrote")
        values = read_settings(path / "config.toml")
        load_plugins(values.get("plugin"))
        return cls(path), make_settings(values)

    def append(self, row: dict[str, Any]) -> None:
        """Add one line of metrics."""
        with tells_of_a_full_disk(self.path), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(to_json(row) + "\n")
        for listener in self.listeners:
            listener(row)

    def read_rows(self) -> list[dict[str, Any]]:
        """Return the lines of metrics as they are."""
        lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def keep_rows(self, count: int) -> list[dict[str, Any]]:
        """Drop the lines written after the checkpoint was taken, and return the others."""
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
        """Write the summary over the one of an earlier part of the same run."""
        write_text(self.path / "summary.json", json.dumps(_finite(dict(summary)), indent=2, ensure_ascii=False) + "\n")

    def read_summary(self) -> dict[str, Any]:
        """Return the summary of an earlier part of the run, or nothing when there is none that can be read."""
        try:
            summary = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return summary if isinstance(summary, dict) else {}

    @property
    def never_saved(self) -> bool:
        """Whether the run ended, by a kill or a crash, before its first checkpoint."""
        # A run that ended in order has a summary: then its checkpoint was taken away, and is missed.
        return not self._checkpoints.exist() and not (self.path / "summary.json").exists()

    def save(self, state: dict[str, Tensor]) -> None:
        """Write the checkpoint, after the metrics that it counts: it must not outlive them when the power fails."""
        with tells_of_a_full_disk(self.path), (self.path / "metrics.jsonl").open("ab") as file:
            os.fsync(file.fileno())
        self._checkpoints.save(state)

    def load(self) -> dict[str, Tensor]:
        """Read the newest checkpoint that is valid."""
        return self._checkpoints.load()


def _self_contained(path: Path, settings: Settings, network: Network) -> Settings:
    """Copy graphs, delay matrices and traces into the folder, so that nothing outside it is needed."""
    changes: dict[str, Any] = {}
    delay = network.delay.base if isinstance(network.delay, Scaled) else network.delay
    if network.spec == "custom" or network.spec.startswith("file:") or isinstance(delay, PerLink):
        document = dataclasses.replace(network, delay=delay).to_json()
        write_text(path / "network.json", json.dumps(document) + "\n")
        changes |= {"network": "file:network.json"}
    if isinstance(delay, PerLink):
        changes |= {"delay": None}
    elif isinstance(delay, Trace):
        write_text(path / "trace.csv", delay.to_csv())
        changes |= {"delay": "trace:trace.csv"}
    if settings.plugin is not None:
        changes |= {"plugin": ",".join(_copied(path, plugin) for plugin in split_plugins(settings.plugin))}
    return dataclasses.replace(settings, **changes)


def _copied(path: Path, plugin: str) -> str:
    """Copy a file of rules into the folder, as it was when the run began; a module stays where it is installed."""
    if not is_file(plugin):
        return plugin
    copy = Path("plugins") / Path(plugin).name
    (path / copy).parent.mkdir(exist_ok=True)
    write_text(path / copy, Path(plugin).read_text(encoding="utf-8"))
    return copy.as_posix()


def safe_name(text: str) -> str:
    """Return text as a file name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-")


def unused_folder(parent: Path, name: str) -> Path:
    """Return parent/name, or parent/name-2, -3, … when that exists: nothing is ever overwritten."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path
