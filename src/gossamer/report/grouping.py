"""Groups runs that differ only in their seed: the label of a group, its configuration, the command that repeats it."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.report.read_runs import RunRecord
from gossamer.run.command_line import repeat_command
from gossamer.run.metric_rows import short
from gossamer.run.process_settings import ProcessSettings
from gossamer.run.settings import SETTING_NAMES, identifying
from gossamer.tasks import TASKS

# After the algorithm and its options, these keys are the first to distinguish settings.
COMMON = ("network", "delay", "loss", "lr", "partition", "task", "model", "momentum", "batch", "epochs")
PROCESS_KEYS = tuple(
    field.name for field in dataclasses.fields(ProcessSettings) if field.name not in ("max_restarts", "record")
)


@dataclass
class RunGroup:
    """Runs with the same configuration except for the seed."""

    values: dict[str, Any]
    label: str = ""
    members: list[int] = field(default_factory=list)  # indices among all runs


def settings_of(runs: Sequence[RunRecord]) -> list[RunGroup]:
    """Group the runs in the order of their settings, and label each group by its differences."""
    found: dict[str, RunGroup] = {}
    for place, run in enumerate(runs):
        values = configuration(run)
        key = json.dumps(identifying(values, "seeds"), sort_keys=True)
        found.setdefault(key, RunGroup(values)).members.append(place)
    settings = list(found.values())
    telling = _telling(settings)
    for setting in settings:
        setting.label = _label(setting, settings, telling)
    return settings


def configuration(run: RunRecord) -> dict[str, Any]:
    """Return all settings and options of a run; a file is identified by its content."""
    known = {name: run.values.get(name) for name in SETTING_NAMES}
    options = {name: value for name, value in run.values.items() if name not in SETTING_NAMES}
    engine: dict[str, Any] = {"engine": "simulator"}
    if run.processes is not None:
        engine = {name: getattr(run.processes, name) for name in PROCESS_KEYS}
    known["network"] = run.network_name
    for name in ("network", "delay"):
        known[name] = _by_content(known[name])
    return {**known, **engine, **options}


def _by_content(spec: Any) -> Any:
    """Return 'file:network.json (1a2b3c)', with a hash of the content, for a specification that names a file."""
    kind, _, rest = str(spec).partition(":")
    if kind not in ("file", "trace", "matrix") or not Path(rest).is_file():
        return spec
    return f"{kind}:{Path(rest).name} ({hashlib.sha256(Path(rest).read_bytes()).hexdigest()[:6]})"


def _telling(settings: list[RunGroup]) -> list[str]:
    """Return the fewest keys that, with the algorithm, distinguish all settings."""
    keys = identifying(dict.fromkeys(name for setting in settings for name in setting.values), "seeds")
    options = [name for name in keys if name not in SETTING_NAMES and name not in PROCESS_KEYS]
    chosen: list[str] = []

    def distinct(names: list[str]) -> int:
        return len({json.dumps([setting.values.get(name) for name in names]) for setting in settings})

    for name in dict.fromkeys((*options, *COMMON, *keys)):
        if distinct(["algorithm", *chosen, name]) > distinct(["algorithm", *chosen]):
            chosen.append(name)
    return chosen


def _label(setting: RunGroup, settings: list[RunGroup], telling: list[str]) -> str:
    """Return the algorithm and the values that differ; an option counts only among runs of the same algorithm."""
    kin = [other for other in settings if other.values["algorithm"] == setting.values["algorithm"]]
    words = [str(setting.values["algorithm"])]
    for name in telling:
        among = settings if name in SETTING_NAMES or name in PROCESS_KEYS else kin
        if setting.values.get(name) is not None and len({text_of(other.values.get(name)) for other in among}) > 1:
            words.append(f"{name}={short(text_of(setting.values[name]))}")
    return " ".join(words)


def text_of(value: Any) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def configuration_table(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """Return a row for each key: its value in every setting, and whether the values differ."""
    rows = []
    keys = dict.fromkeys(name for setting in settings for name in setting.values)
    same = identifying(keys, "seeds")
    for name in keys:
        if name not in same:  # the seeds: list all values
            held = [list(dict.fromkeys(text_of(runs[k].values.get(name)) for k in s.members)) for s in settings]
            values = [", ".join(each) for each in held]
        else:
            values = [text_of(setting.values.get(name)) for setting in settings]
        rows.append({"key": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def commands_of(runs: Sequence[RunRecord], setting: RunGroup) -> dict[str, Any]:
    """Return the command that repeats the first run of a setting, or a note if there is none, and the other seeds."""
    first = runs[setting.members[0]]
    seeds = [runs[place].values["seed"] for place in setting.members[1:]]
    task = str(first.values["task"])
    if first.settings is None:
        what, command = f"algorithm '{first.values['algorithm']}'", None
    elif task.partition(":")[0] not in TASKS or first.values.get("model") == "custom":
        what, command = f"task '{task}'", None
    else:
        what, command = "", repeat_command(first.settings, first.processes)
    note = f"{what} was made in Python; call gm.simulate there with this configuration" if what else ""
    return {"command": command, "note": note, "other_seeds": seeds}
