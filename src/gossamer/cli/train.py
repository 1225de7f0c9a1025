"""`gossamer train`: one run, in the simulator or with one process per agent."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli.flags import Config, Json, Preset, takes_settings


@takes_settings(also="processes", panel="Processes")
def train(
    config: Config = None,
    *,
    preset: Preset = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run in this folder, with bit-identical results.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save and stop after this training time; --resume continues."),
    ] = None,
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Train one model with all agents of a network, in the simulator or with one process per agent.

    Writes config.toml, metrics.jsonl, summary.json and checkpoint.npz into a new folder and prints the summary. Ctrl+C,
    SIGTERM and --time-limit finish the step, save the run, and print the command that continues it.

    Example: gossamer train --algorithm pc-asgd --theta pv --network clusters:3,5 --delay 20 --epochs 5 --lr 0.05
    """
    from gossamer.cli.training_run import TrainRequest, run_training  # imports torch, which --help does not need

    run_training(TrainRequest(config, preset, out_dir, resume, given), time_limit, json=json)
