"""The folder to watch: the given one or the newest, written by `gossamer train` or `gossamer launch`."""

import json
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.report.read_runs import FolderError, MetricsRow, RunRecord, check_folder, read_run
from gossamer.run.agent_folder import read_rows
from gossamer.run.status import STATUS_FILE, read_status
from gossamer.runtime.environment import FIELDS, Run

NOTE = "launch.json"  # launch writes it before it starts the agents


def read_launch(path: Path) -> RunRecord:
    """Read a folder written by launch."""
    try:
        note = json.loads((path / NOTE).read_text(encoding="utf-8"))
        told = {name: value for name, value in note["settings"].items() if name in FIELDS}
        script = Path(str(note["script"]))
        # Only the network is needed here, so settings of the links are replaced.
        run = Run(**{**told, "key_file": None, "address": "127.0.0.1", "book": None, "rank": 0})
        network = run.make_network()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"'{path}' cannot be shown: {NOTE} is damaged ({error}); launch again") from None
    except UserError as error:
        raise FolderError(f"'{path}' cannot be shown: {error}") from None
    values = {
        "task": script.name,
        "model": "a script",
        "network": run.network,
        "delay": run.delay,
        "algorithm": run.algorithm,
        "seed": run.seed,
    }
    rows = [whole_row(row, run.agents) for row in read_rows(path / "metrics.jsonl")]
    return RunRecord(path, values, None, network, rows, {}, read_status(path) or {}, None)


def whole_row(row: MetricsRow, agents: int) -> MetricsRow:
    """Return a sample as a row of metrics, with the newest training loss as the test loss."""
    nothing = [None] * agents
    loss = row.get("train_loss") or nothing
    return {**row, "epoch": None, "accuracy": row.get("accuracy") or nothing, "loss": loss}


def explained(model: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the page with the words of a launch, without what only train knows."""
    charts = [
        {**chart, "title": "Training loss", "about": "Newest batch, mean over the agents"}
        if chart["key"] == "loss"
        else chart
        for chart in model["charts"]
    ]
    note = f"your own script; {NOTE} has its settings"
    facts = [fact for fact in model["header"]["facts"] if fact["value"] != "-"]
    return {
        **model,
        "header": {**model["header"], "facts": facts},
        "charts": [chart for chart in charts if chart["curves"]],
        "settings": [{**setting, "command": None, "note": note} for setting in model["settings"]],
        "runs": [_as_sampled(run) for run in model["runs"]],
        "configuration": [row for row in model["configuration"] if set(row["values"]) - {"-", ""}],
    }


def _as_sampled(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run without what `whole_row` filled in: an accuracy that was never reported, and the test loss."""
    told = {
        name: any(value is not None for one in of_agents for value in one) for name, of_agents in run["agents"].items()
    }
    agents = {name: values for name, values in run["agents"].items() if name != "loss" and told[name]}
    best = run["best"] if "accuracy" in agents else None
    return {**run, "best": best, "agents": agents}


RUNS = Path("runs")  # where train and launch make their folders
KINDS = ("config.toml", NOTE)  # every run folder has one of these
SIGNS = (STATUS_FILE, "metrics.jsonl", *KINDS)  # files whose times show when a run last wrote


def newest_run(place: Path = RUNS) -> Path:
    """Return the run folder below `place` that was written to last."""
    folders = {file.parent for kind in KINDS for depth in ("*", "*/runs/*") for file in place.glob(f"{depth}/{kind}")}
    if not folders:
        raise UserError(f"there is no run in '{place}'; start one with gossamer train, or name a folder")
    return max(sorted(folders), key=_last_sign)


def _last_sign(folder: Path) -> float:
    return max((path.stat().st_mtime for name in SIGNS if (path := folder / name).exists()), default=0.0)


def read_any(path: Path) -> RunRecord:
    """Read a run of train or launch, which may have just begun; raise UserError for any other folder."""
    check_folder(path, "launch")
    if (path / "config.toml").is_file():
        return read_run(path, may_be_empty=True)
    if (path / NOTE).is_file():
        return read_launch(path)
    what = "is not a run folder: it has neither config.toml nor " + NOTE if any(path.iterdir()) else "is empty"
    raise UserError(f"'{path}' {what}; give one that train or launch wrote")
