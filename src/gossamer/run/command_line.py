"""The command that repeats a run."""

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from gossamer.run.plan import make_network
from gossamer.run.process_settings import ProcessSettings
from gossamer.run.settings import SETTING_NAMES, Settings

# Part of the command even with their default values.
_ALWAYS = ("algorithm", "network", "delay", "task", "model", "lr", "epochs", "batch", "seed")


def train_command(values: Mapping[str, Any]) -> str:
    """Return `gossamer train` with a flag for each value."""
    words = ["gossamer", "train"]
    for name, value in values.items():
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return shlex.join(words)


def repeat_command(settings: Settings, processes: ProcessSettings | None = None) -> str:
    """Return the command that repeats a run: the main settings, and all others that differ from the defaults."""
    if settings.clusters is not None and _has_clusters_of_its_own(settings):
        settings = dataclasses.replace(settings, clusters=None)
    values = {name: getattr(settings, name) for name in (*_ALWAYS, *SETTING_NAMES)}
    told = {
        name: value
        for name, value in values.items()
        if value is not None and (name in _ALWAYS or value != getattr(Settings, name))
    }
    how = vars(processes) if processes is not None else {}
    changed = {
        name: value for name, value in how.items() if value != getattr(ProcessSettings, name) and name != "record"
    }
    return train_command({**told, **settings.changed_options(), **changed})


def _has_clusters_of_its_own(settings: Settings) -> bool:
    plain = dataclasses.replace(settings, clusters=None)
    return make_network(plain).clusters == make_network(settings).clusters
