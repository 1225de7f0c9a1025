"""The work of `gossamer launch`: the job of the flags, its agents, and how it ended."""

import contextlib
import dataclasses
import json as json_module
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from gossamer.algorithms import algorithm, algorithm_names, parse_algorithm
from gossamer.algorithms.options import read_options
from gossamer.cli.display import print_json
from gossamer.cli.interrupt import TERMINATED, Interrupt
from gossamer.cli.launch_view import LaunchView
from gossamer.errors import UserError, read_whole
from gossamer.network import network as make_network
from gossamer.run.folder import safe_name, unused_folder
from gossamer.run.machine import exit_soon
from gossamer.runtime.age_trace import merge_traces
from gossamer.runtime.book.addresses import is_loopback, split_endpoint
from gossamer.runtime.book.keys import read_key, write_key
from gossamer.runtime.compression import parse_codec
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import LaunchJob, LaunchReport, torchrun_command
from gossamer.runtime.launch.launcher import HURRY, Launcher
from gossamer.runtime.launch.ray_cluster import RayResources, run_on_ray
from gossamer.runtime.schedulers import LOOPBACK, to_run_id
from gossamer.runtime.timing_record import merge_timings
from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.state.checkpoint import write_text
from gossamer.train.processes.launch_status import StatusRecorder, how_it_ended, with_recorder

NOTE = "launch.json"  # in the folder: which run it belongs to


@dataclass(frozen=True)
class LaunchRequest:
    """The command line of one launch: the script with its arguments, what is started here, and the flags of the run."""

    script: Path
    arguments: list[str]
    ranks: str | None
    max_restarts: int
    out: Path | None
    record: Path | None
    given: dict[str, Any]
    ray: dict[str, Any]  # of `given`, the flags of Ray


def run_launch(
    request: LaunchRequest, *, logs: str | None, torchrun: bool, ray: bool, preload: bool, json: bool
) -> None:
    """Run the agents, then print and exit as the outcome says."""
    if torchrun and ray:
        raise UserError("--torchrun and --ray cannot both start the agents; choose one")
    record = request.record
    resources = _resources(request.ray, ray, request.ranks)
    if record is not None and (record.suffix != ".csv" or record.exists()):
        raise UserError(f"cannot record to '{record}'; give the name of a .csv file that does not exist yet")
    made = make_launch(
        request.script,
        request.arguments,
        request.given,
        ranks=request.ranks,
        out=request.out,
        record=record is not None,
        max_restarts=request.max_restarts,
    )
    view = LaunchView(logs, made.job.run.agents, json=json)
    made.prepare(view.event)
    try:
        report, status = _run(made, view, resources, torchrun=torchrun, preload=preload)
        rows = 0 if record is None else _merge(made.job, record)
    finally:
        made.clean()
    if json:
        print_json(_document(made, report, record))
    elif record is not None:
        print(f"{rows} ages are in {record}; gossamer train --delay trace:{record} replays them in steps")
        folder = made.job.folder
        print(f"the times are in {folder}; gossamer train --testbed run:{folder} replays them in seconds")
    exit_soon()
    _end(made, report, status, quiet=json)


def _resources(given: dict[str, Any], ray: bool, ranks: str | None) -> RayResources | None:
    """Return each agent's resources on Ray; None without Ray."""
    if not ray and given:
        raise UserError(f"--{next(iter(given)).replace('_', '-')} is for agents on Ray; add --ray")
    if ray and ranks is not None:
        raise UserError(f"--ranks {ranks} is for machines without a cluster; Ray places all agents, so leave it out")
    return RayResources(**read_options(RayResources, "Ray", given)) if ray else None


@dataclass(frozen=True)
class Launch:
    """A job, with its folder and key."""

    job: LaunchJob
    own_key: bool  # made for this run alone

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Make the folder and, where one is missing, the key."""
        folder, run = self.job.folder, self.job.run
        key = None if run.key_file is None else Path(run.key_file)
        there = key is not None and (key.exists() or 0 not in self.job.ranks)  # the machine with agent 0 makes it
        if key is not None and there:
            read_key(key)  # refused before anything is written
        folder.mkdir(parents=True, exist_ok=True)
        note = {"run": run.run, "script": str(self.job.script), "arguments": list(self.job.arguments)}
        values = {name: value for name, value in dataclasses.asdict(run).items() if name not in ("rank", "host")}
        write_text(folder / NOTE, json_module.dumps({**note, "settings": values}, indent=2) + "\n")
        if key is None or there:
            return
        write_key(key)
        if not self.own_key:
            tell(f"made the key file {key}; every machine of the run needs a copy")

    def clean(self) -> None:
        """Remove a key that was made for this run alone."""
        if self.own_key and self.job.run.key_file is not None:
            Path(self.job.run.key_file).unlink(missing_ok=True)


def make_launch(
    script: Path,
    arguments: list[str],
    given: dict[str, Any],
    *,
    ranks: str | None,
    out: Path | None,
    record: bool,
    max_restarts: int,
) -> Launch:
    """Check all flags, and return the launch."""
    if not script.is_file():
        raise UserError(f"there is no script '{script}'; give a Python file, and its own flags after it")
    if max_restarts < 0:
        raise UserError(f"max-restarts must be 0 or more, got {max_restarts}")
    values = read_options(Run, "a run", given)
    values["agents"] = values.get("agents") or _agents(values)
    chosen = parse_ranks(ranks, values["agents"])
    _check_shared(ranks, chosen, values)
    values.setdefault("run", to_run_id(f"{script.stem[:30]}-{secrets.token_hex(4)}"))
    folder = out or unused_folder(Path("runs"), safe_name(f"launch-{script.stem}"))
    _check_folder(folder, values["run"])
    own_key = "key_file" not in values and not is_loopback(values.get("address", LOOPBACK))
    if "key_file" in values or own_key:
        values["key_file"] = str(Path(values.get("key_file", folder / "key")).resolve())
    run = Run(**values, record=record)
    _check_parts(run)
    serves = run.book is None or (0 in chosen and _is_ours_to_serve(run))  # two parts may start at the same time
    job = LaunchJob(
        run=run,
        ranks=chosen,
        script=script,
        arguments=tuple(arguments),
        folder=folder,
        max_restarts=max_restarts,
        serves_book=serves,
        book_port=split_endpoint(run.book)[1] if run.book else 0,
    )
    return Launch(job, own_key)


def _agents(values: dict[str, Any]) -> int:
    if "network" not in values:
        raise UserError("the number of agents is missing; give --agents 4 or --network clusters:3,5")
    return make_network(values["network"]).num_agents


def parse_ranks(text: str | None, agents: int) -> tuple[int, ...]:
    """Read '0-3,6' as the agents 0, 1, 2, 3 and 6; None means all of them."""
    if text is None:
        return tuple(range(agents))
    chosen: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first, last = read_whole("each of --ranks", low), read_whole("each of --ranks", high if dash else low)
        if not 0 <= first <= last < agents:
            raise UserError(f"--ranks {text} must lie between 0 and {agents - 1}; write them like 0-{agents - 1}")
        chosen |= set(range(first, last + 1))
    return tuple(sorted(chosen))


def _check_shared(ranks: str | None, chosen: tuple[int, ...], values: dict[str, Any]) -> None:
    """Refuse a part of a run that the other parts could not find."""
    missing = [name for name in ("book", "run") if name not in values]
    if not is_loopback(values.get("address", LOOPBACK)) and "key_file" not in values:
        missing.append("key_file")
    if len(chosen) < values["agents"] and missing:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise UserError(f"--ranks {ranks} starts a part of the run; give {flags} as well, the same for every part")


def _check_folder(folder: Path, run: str) -> None:
    """Refuse a folder with something else in it; another part of the same run may be there."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json_module.loads((folder / NOTE).read_text(encoding="utf-8"))["run"] == run:
            return
    raise UserError(f"'{folder}' already exists; choose another --out, or continue its run with --run and its name")


def _check_parts(run: Run) -> None:
    """Parse every text once, so that a mistake is reported here and not by each agent."""
    run.make_network()
    parse_codec(run.compress)
    if run.faults is not None:
        parse_faults(run.faults, run.agents)
    if run.algorithm.split("/")[0] in algorithm_names():  # or the script registers it
        name, options = parse_algorithm(run.algorithm)
        algorithm(name, **options)


def _is_ours_to_serve(run: Run) -> bool:
    """Say whether the book is at this machine's address and not served yet."""
    assert run.book is not None
    host, port = split_endpoint(run.book)
    if host != run.address:
        return False
    try:
        with socket.create_connection((host, port), timeout=1):
            return False
    except OSError:
        return True


def _run(
    made: Launch, view: LaunchView, resources: RayResources | None, *, torchrun: bool, preload: bool
) -> tuple[LaunchReport, int]:
    """Run the agents; return the report, and the status to exit with if a signal has ended the run."""
    watcher = with_recorder(made.job, view)
    with Interrupt() as interrupt, view.shown():

        def stop() -> str | None:
            return HURRY if interrupt.status == TERMINATED else interrupt()

        if resources is not None:
            report = run_on_ray(made.job, watcher, resources, stop)
        elif torchrun:
            report = Launcher(made.job, watcher, command=torchrun_command, restarts=0).run(stop)
        else:
            report = Launcher(made.job, watcher, preload=preload).run(stop)
    if isinstance(watcher, StatusRecorder):
        watcher.end(how_it_ended(report))
    return report, interrupt.status


def _merge(job: LaunchJob, record: Path) -> int:
    """Join what the agents have recorded; return how many ages there are."""
    merge_timings(job.folder, job.run.agents, job.run)
    return merge_traces(job.folder, record)


def _document(made: Launch, report: LaunchReport, record: Path | None) -> dict[str, Any]:
    run = made.job.run
    return {
        "run": run.run,
        "network": run.network,
        "algorithm": run.algorithm,
        "agents": [dataclasses.asdict(one) for one in report.outcomes],
        "failed": [one.rank for one in report.failed],
        "interrupted": report.interrupted,
        "seconds": report.seconds,
        "record": None if record is None else str(record),
        "run_dir": str(made.job.folder),
    }


def _end(made: Launch, report: LaunchReport, status: int, *, quiet: bool) -> None:
    """Print one line about the outcome, and exit with its status."""
    folder, count = made.job.folder, len(report.outcomes)
    if report.interrupted:
        print(f"gossamer: interrupted; the logs are in {folder}", file=sys.stderr)
        raise typer.Exit(status)
    if report.hopeless:
        print(f"gossamer: {report.hopeless}", file=sys.stderr)
        raise typer.Exit(1)
    if report.failed:
        ranks = ", ".join(str(one.rank) for one in report.failed)
        log = folder / f"agent-{report.failed[0].rank}.log"
        what = f"agent{'s' if len(report.failed) > 1 else ''} {ranks} of {count} failed"
        print(f"gossamer: {what}; see {log}", file=sys.stderr)
        raise typer.Exit(1)
    if not quiet:
        print(f"{count} agents finished after {report.seconds:.1f} s; their logs are in {folder}")
