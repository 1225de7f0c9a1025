"""A run of Weights & Biases; WANDB_MODE=offline keeps it on disk, for `wandb sync`."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from gossamer.run.folder import RunFolder, read_object
from gossamer.run.settings import Settings
from gossamer.state.checkpoint import write_text
from gossamer.train.loggers.logged_values import MOST_AGENTS, flatten, plain_settings

PROJECT = "gossamer"  # the default; WANDB_PROJECT overrides it


class WandbLogger:
    """Logs to a run named like its folder. RUN/wandb.json keeps its id, so that a resumed run continues it."""

    def __init__(self, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        quiet = os.environ.get("WANDB_MODE", "online") != "online"  # online, wandb prints the address of the run
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.path.name,
            id=_id_of(folder.path / "wandb.json"),
            resume="allow",
            dir=str(folder.path),
            config=plain_settings(settings),
            settings=wandb.Settings(silent=quiet, console="off"),
        )

    def on_row(self, row: dict[str, Any]) -> None:
        """Log the numbers of one evaluation at its step."""
        few = len(row["accuracy"]) <= MOST_AGENTS
        values = {"/".join(name): number for name, number in flatten(row, agents=few).items()}
        self._run.log(values, step=int(row["step"]))

    def close(self, summary: dict[str, Any] | None) -> None:
        """Add the summary, and wait until everything is uploaded."""
        for name, value in (summary or {}).items():
            if isinstance(value, str | int | float):
                self._run.summary[name] = value
        self._run.finish(exit_code=0 if summary is not None else 1)


def _id_of(path: Path) -> str:
    """Return the stored id, or store and return a new one."""
    kept = read_object(path).get("id") or secrets.token_hex(4)
    write_text(path, json.dumps({"id": kept}) + "\n")
    return str(kept)
