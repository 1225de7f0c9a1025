"""`gossamer compare` and `gossamer demo`: several algorithms side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli.flags import Algorithms, Config, Json, Preset, ReportFolder, takes_settings
from gossamer.errors import UserError

FAMILY = "sync,d-asgd,p-asgd,c-asgd,pc-asgd/theta=pv,pc-asgd/theta=0.3,pc-asgd/theta=auto,dm-asgd"
DEMO = {
    "network": "paper-1",
    "delay": "20",
    "task": "digits",
    "lr": "0.1",
    "epochs": "100",
    "eval_every": "60",
    "execution": "stacked",  # not auto: the table must be the same on every machine
}


@takes_settings("algorithm")
def compare(
    config: Config = None,
    *,
    algorithms: Algorithms = FAMILY,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the first one is --seed.")] = 3,
    preset: Preset = None,
    out_dir: ReportFolder = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Take each algorithm's learning rate from this file, written by gossamer tune.")
    ] = None,
    plots: Annotated[bool, typer.Option(help="Draw the plots.")] = True,
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Compare algorithms on one task and network over several seeds.

    Prints a table of means and standard deviations over seeds. Writes results.json, every run and the plots into a
    report folder.

    Example: gossamer compare --algorithms sync,d-asgd,pc-asgd/theta=pv,dm-asgd --seeds 3 --lr 0.1 --epochs 100
    """
    from gossamer.cli.comparison_runs import entries_of, run_comparison  # imports torch, which --help does not need
    from gossamer.run.merge_settings import with_file
    from gossamer.train.tune import with_tuned_rates

    values = with_file(config, given)
    values.pop("algorithm", None)
    if tuned is not None and "lr" in given:
        raise UserError(f"--lr {given['lr']} conflicts with the learning rates of '{tuned}'; leave one out")
    _check_seeds(seeds)
    entries = entries_of(algorithms, values, preset)
    if tuned is not None:
        entries = with_tuned_rates(entries, tuned)
    run_comparison(entries, seeds, out_dir, plots=plots, json=json, tuned=tuned is not None)


def demo(
    out_dir: ReportFolder = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 3,
    json: Json = False,
) -> None:
    """Compare algorithms on the paper's 8 agents and the digits data. `make demo` runs this.

    Example: gossamer demo --seeds 1
    """
    from gossamer.cli.comparison_runs import entries_of, run_comparison
    from gossamer.run.folder import unused_folder

    _check_seeds(seeds)
    entries = entries_of(FAMILY, dict(DEMO), None)
    run_comparison(entries, seeds, out_dir or unused_folder(Path("reports"), "demo"), plots=True, json=json)


def _check_seeds(seeds: int) -> None:
    if seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}")
