"""From the flags of `gossamer launch` to a job: everything is checked before the first process is started."""

import contextlib
import dataclasses
import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms import algorithm, algorithm_names, parse_algorithm
from gossamer.algorithms.options import read_options
from gossamer.errors import UserError, read_whole
from gossamer.network import network as make_network
from gossamer.run.folder import safe_name, unused_folder
from gossamer.runtime.compression import parse_codec
from gossamer.runtime.directory.addresses import is_loopback, split
from gossamer.runtime.directory.keys import read_key, write_key
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import Job
from gossamer.runtime.launch.schedulers import LOOPBACK, to_run_id
from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.state.checkpoint import write_text

NOTE = "launch.json"  # in the folder: which run it belongs to


@dataclass(frozen=True)
class Launch:
    """A job, with its folder and key."""

    job: Job
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
        write_text(folder / NOTE, json.dumps({**note, "settings": values}, indent=2) + "\n")
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
    job = Job(
        run=run,
        ranks=chosen,
        script=script,
        arguments=tuple(arguments),
        folder=folder,
        max_restarts=max_restarts,
        serves_book=serves,
        book_port=split(run.book)[1] if run.book else 0,
    )
    return Launch(job, own_key)


def _agents(values: dict[str, Any]) -> int:
    if "network" not in values:
        raise UserError("nothing says how many agents to start; give --agents 4 or --network clusters:3,5")
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
        if json.loads((folder / NOTE).read_text(encoding="utf-8"))["run"] == run:
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
    host, port = split(run.book)
    if host != run.address:
        return False
    try:
        with socket.create_connection((host, port), timeout=1):
            return False
    except OSError:
        return True
