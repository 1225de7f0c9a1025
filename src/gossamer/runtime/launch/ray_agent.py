"""Ray's actors: a script as one agent, in the actor's own process, with its GPUs."""

import contextlib
import os
import runpy
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.run.agent_folder import log_path
from gossamer.runtime.book.addresses import is_loopback
from gossamer.runtime.environment import VARIABLES
from gossamer.runtime.launch.job import LaunchJob


@dataclass(frozen=True)
class AgentPlace:
    """The process and machine of an agent."""

    pid: int
    node: str  # Ray's name of the machine
    restarts: int


class RestartCounter:
    """An actor that counts restarts: Ray restarts a dead actor without telling it how often."""

    def __init__(self) -> None:
        self._places: dict[int, AgentPlace] = {}

    def arrive(self, rank: int, pid: int, node: str) -> int:
        """Note that an agent has started; return its restarts so far."""
        before = self._places.get(rank)
        restarts = 0 if before is None else before.restarts + 1
        self._places[rank] = AgentPlace(pid, node, restarts)
        return restarts

    def places(self) -> dict[int, AgentPlace]:
        """Return where all agents are."""
        return dict(self._places)


class RayAgent:
    """An actor that runs the script once. On failure the process exits, and Ray restarts the actor."""

    def __init__(self, job: LaunchJob, rank: int, counter: str, key: str | None) -> None:
        """Report to the restart counter, which is found by its name."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        places: Any = ray.get_actor(counter)
        restarts: Any = ray.get(places.arrive.remote(rank, os.getpid(), node))
        self._job, self._rank, self._restarts = job, rank, restarts
        self._address, self._key = ray.util.get_node_ip_address(), key

    def run(self) -> int:
        """Run the script as the main program and return 0; on failure the process exits."""
        self._prepare()
        script = str(self._job.script)
        sys.argv = [script, *self._job.arguments]
        sys.path.insert(0, str(self._job.script.parent))
        status = run_script(script)
        sys.stdout.flush()
        sys.stderr.flush()
        if status:
            os._exit(status)
        return 0

    def _prepare(self) -> None:
        """Set the environment, and send all output to the agent's log."""
        folder = self._job.folder
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(log_path(folder, self._rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        for name, number in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False))
        for name in VARIABLES:  # of a run that the launcher is part of
            os.environ.pop(name, None)
        os.environ.update(self._job.agent(self._rank, self._restarts).to_environment())
        if not is_loopback(self._job.run.address):  # which is the driver's
            os.environ["GOSSAMER_ADDRESS"] = self._address
        if self._key is not None:
            write_if_missing(Path(os.environ["GOSSAMER_KEY_FILE"]), self._key)


def run_script(script: str) -> int:
    """Run a script as the main program; return Python's exit status."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        print(leave.code, file=sys.stderr)
        return 1
    except BaseException:  # KeyboardInterrupt as well: print the traceback, then exit
        traceback.print_exc()
        return 1
    return 0


def write_if_missing(path: Path, text: str) -> None:
    """Write the run's key on a machine without it, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(text)
