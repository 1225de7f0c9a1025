"""`gossamer launch`: run a training script as many agents, one process each."""

import functools
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli.descriptions import read_descriptions
from gossamer.cli.flags import Json, make_flag, with_flags

_DEFAULTS = {"agents": "as many as the network has", "run": "a new one"}  # in place of a lone agent's
_NETWORK = ("agents", "network", "clusters", "delay", "loss", "mixing", "lazy", "clip_weights", "startup")


def _launch_flags() -> list[inspect.Parameter]:
    """Return a flag for every setting of the agents and of Ray that a user gives."""
    fields, ray = read_descriptions()["launch"], read_descriptions()["ray"]
    flags = [
        make_flag(name, about | ({"default": _DEFAULTS[name]} if name in _DEFAULTS else {}), _panel(name))
        for name, about in fields.items()
    ]
    return [*flags, *(make_flag(name, about, "Ray") for name, about in ray.items())]


def _panel(name: str) -> str:
    return "Network" if name in _NETWORK else "Agents"


@functools.partial(with_flags, flags=_launch_flags())
def launch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script, which calls gossamer.join().")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Passed on to the script.")] = None,
    *,
    ranks: Annotated[
        str | None, typer.Option(help="Start only these agents, such as 0-3; other machines start the rest.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="How often an agent that dies is restarted.")] = 3,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the logs (default: a new one under runs/).")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Write the ages of all messages to this .csv file, and their times into the folder."),
    ] = None,
    preload: Annotated[
        bool,
        typer.Option("--preload/--no-preload", help="Import torch once and fork the agents, which starts them sooner."),
    ] = True,
    torchrun: Annotated[bool, typer.Option("--torchrun", help="Start each agent with torchrun.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Start the agents as Ray actors.")] = False,
    logs: Annotated[
        str | None,
        typer.Option(metavar="RANK|all|none", help="Show the output of these agents (default: 0, or a live table)."),
    ] = None,
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Run a training script as many agents, one process each: on this machine, under torchrun, or on a Ray cluster.

    An agent that dies is restarted while the others continue. Ctrl+C ends all agents. On several machines, run the
    same command on each with its own --address and --ranks, and the same --book, --key-file and --run.

    Example: gossamer launch --network clusters:3,5 --algorithm pc-asgd/theta=pv train.py --epochs 5
    """
    from gossamer.cli.launch_run import LaunchRequest, run_launch  # imports torch, which --help does not need

    for_ray = {name: given.pop(name) for name in read_descriptions()["ray"] if name in given}
    request = LaunchRequest(script, arguments or [], ranks, max_restarts, out_dir, record, given, for_ray)
    run_launch(request, logs=logs, torchrun=torchrun, ray=ray, preload=preload, json=json)
