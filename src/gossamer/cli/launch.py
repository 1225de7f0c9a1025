"""`gossamer launch`: a training script as many agents, each a process of its own."""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.algorithms.options import describe_options, read_options
from gossamer.cli.display import print_json
from gossamer.cli.flags import make_flag
from gossamer.cli.interrupt import INTERRUPTED, Interrupt
from gossamer.cli.launch_job import Launch, make_launch
from gossamer.cli.launch_view import View
from gossamer.errors import UserError
from gossamer.runtime.age_trace import merge_traces
from gossamer.runtime.environment import FIELDS, Run
from gossamer.runtime.launch.job import Report, torchrun_command
from gossamer.runtime.launch.processes import Launcher
from gossamer.runtime.launch.ray_cluster import run_on_ray
from gossamer.runtime.launch.ray_connection import Resources
from gossamer.train.processes.launch_status import Told, how_it_ended
from gossamer.train.processes.samples import told_of

# Set by the launcher for each agent.
_OWN = ("rank", "folder", "record", "restarts", "launcher")
_RUN_FLAGS = tuple(name for name in FIELDS if name not in _OWN)
_RAY_FLAGS = tuple(describe_options(Resources))
_DEFAULTS = {"agents": "as many as the network has", "run": "a new one"}  # here, in place of a lone agent's
_NETWORK = ("agents", "network", "clusters", "delay", "loss", "mixing", "lazy", "clip_weights", "startup")


def _takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for every field of `Run` and `Resources` that a user sets, in place of `given`."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        given = {name: values.pop(name) for name in (*_RUN_FLAGS, *_RAY_FLAGS)}
        command(**values, given={name: value for name, value in given.items() if value is not None})

    signature = inspect.signature(command)
    own = [parameter for name, parameter in signature.parameters.items() if name != "given"]
    fields, ray = describe_options(Run), describe_options(Resources)
    for name, default in _DEFAULTS.items():
        fields[name] |= {"default": default}
    flags = [make_flag(name, fields[name], "Network" if name in _NETWORK else "Agents") for name in _RUN_FLAGS]
    flags += [make_flag(name, ray[name], "Ray") for name in _RAY_FLAGS]
    wrapper.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *flags]}
    del wrapper.__wrapped__  # or inspect would look through to the command's own signature
    return wrapper


@_takes_run
def launch(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script, which calls gossamer.join().")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Passed on to the script.")] = None,
    *,
    ranks: Annotated[
        str | None, typer.Option(help="Start only these agents, such as 0-3; start the others elsewhere.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="Restarts of an agent that dies.")] = 3,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for logs (default: a new one under runs/).")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Write the ages of all messages to this .csv file.")] = None,
    torchrun: Annotated[bool, typer.Option("--torchrun", help="Let torchrun start the agents, one each.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Let Ray start the agents, as actors.")] = False,
    logs: Annotated[
        str | None,
        typer.Option(metavar="RANK|all|none", help="Agents whose output to show (default: 0, or a live table)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    given: dict[str, Any],
) -> None:
    """Run a training script as many agents: processes of this machine, under torchrun, or on a Ray cluster.

    An agent that dies is restarted while the others continue. Ctrl+C ends all of them. With several machines,
    run the same command on each with its own --address and --ranks, and the same --book, --key-file and --run.

    Example: gossamer launch --network clusters:3,5 --algorithm pc-asgd/theta=pv train.py --epochs 5
    """
    if torchrun and ray:
        raise UserError("--torchrun and --ray cannot both start the agents; choose one")
    resources = _resources({name: given.pop(name) for name in _RAY_FLAGS if name in given}, ray, ranks)
    if record is not None and (record.suffix != ".csv" or record.exists()):
        raise UserError(f"cannot record to '{record}'; give the name of a .csv file that does not exist yet")
    made = make_launch(
        script, arguments or [], given, ranks=ranks, out=out_dir, record=record is not None, max_restarts=max_restarts
    )
    view = View(logs, made.job.run.agents, json=json)
    made.prepare(view.event)
    try:
        report = _run(made, view, resources, torchrun=torchrun)
        rows = 0 if record is None else merge_traces(made.job.folder, record)
    finally:
        made.clean()
    if json:
        print_json(_document(made, report, record))
    elif record is not None:
        print(f"{rows} ages are in {record}; gossamer train --delay trace:{record} replays them")
    _end(made, report, quiet=json)


def _resources(given: dict[str, Any], ray: bool, ranks: str | None) -> Resources | None:
    """Return each agent's resources on Ray; None without Ray."""
    if not ray and given:
        raise UserError(f"--{next(iter(given)).replace('_', '-')} is for agents on Ray; add --ray")
    if ray and ranks is not None:
        raise UserError(f"--ranks {ranks} is for machines without a cluster; Ray places all agents, so leave it out")
    return Resources(**read_options(Resources, "Ray", given)) if ray else None


def _run(made: Launch, view: View, resources: Resources | None, *, torchrun: bool) -> Report:
    told = told_of(made.job, view)
    with Interrupt() as interrupt, view.shown():
        if resources is not None:
            report = run_on_ray(made.job, told, resources, interrupt)
        elif torchrun:
            report = Launcher(made.job, told, command=torchrun_command, restarts=0).run(interrupt)
        else:
            report = Launcher(made.job, told).run(interrupt)
    if isinstance(told, Told):
        told.end(how_it_ended(report))
    return report


def _document(made: Launch, report: Report, record: Path | None) -> dict[str, Any]:
    run = made.job.run
    return {
        "run": run.run,
        "network": run.network,
        "algorithm": run.algorithm,
        "agents": [
            {"rank": one.rank, "exit": one.exit, "restarts": one.restarts, "status": one.status}
            for one in report.outcomes
        ],
        "failed": [one.rank for one in report.failed],
        "interrupted": report.interrupted,
        "seconds": report.seconds,
        "record": None if record is None else str(record),
        "run_dir": str(made.job.folder),
    }


def _end(made: Launch, report: Report, *, quiet: bool) -> None:
    """Print one line about the outcome, and exit with its status."""
    folder, count = made.job.folder, len(report.outcomes)
    if report.interrupted:
        print(f"gossamer: interrupted; the logs are in {folder}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if report.hopeless:
        print(f"gossamer: {report.hopeless}", file=sys.stderr)
        raise typer.Exit(1)
    if report.failed:
        who = ", ".join(str(one.rank) for one in report.failed)
        log = folder / f"agent-{report.failed[0].rank}.log"
        what = f"agent{'s' if len(report.failed) > 1 else ''} {who} of {count} failed"
        print(f"gossamer: {what}; see {log}", file=sys.stderr)
        raise typer.Exit(1)
    if not quiet:
        print(f"{count} agents ended well after {report.seconds:.1f} s; their logs are in {folder}")
