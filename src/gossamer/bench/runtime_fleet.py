"""The agent processes of `gossamer bench runtime`; they leave nothing behind."""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gossamer
from gossamer.errors import UserError
from gossamer.run.agent_folder import last_words, log_path
from gossamer.runtime.launch.child_processes import dies_with
from gossamer.runtime.launch.job import without_run
from gossamer.runtime.transport.shared_memory import remove_leftovers

PATIENCE = 300.0  # seconds beyond the limit of a command, after which an agent counts as hanging
WORKER = "gossamer.bench.runtime_worker"


def process_environment(threads: int | None = 1) -> dict[str, str]:
    """Return the environment of a process: so many threads, and the same copy of this package."""
    here, paths = str(Path(gossamer.__file__).parents[1]), os.environ.get("PYTHONPATH")
    path = here if not paths else os.pathsep.join([here, paths])
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return {**without_run(os.environ), "PYTHONPATH": path, **own}


class Fleet:
    """Agent processes on this machine, one thread each."""

    def __init__(self, agents: int) -> None:
        self.agents = agents
        self.ranks = tuple(range(agents))
        self._folder = tempfile.TemporaryDirectory(prefix="gossamer-bench-")
        self._name = f"bench-{os.getpid()}-{secrets.token_hex(3)}"
        self._runs: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def folder(self) -> Path:
        """A folder that is deleted with the fleet."""
        return Path(self._folder.name)

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    def new_run(self) -> str:
        """Return the name of a new run of these agents."""
        self._runs.append(f"{self._name}-{len(self._runs)}")
        return self._runs[-1]

    def __enter__(self) -> "Fleet":
        try:
            for rank in self.ranks:
                self._start(rank)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, rank: int) -> None:
        with log_path(self.folder, rank).open("wb") as log:
            process = subprocess.Popen(
                dies_with(os.getpid(), [sys.executable, "-m", WORKER, str(rank), str(self.agents)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=process_environment(),
                start_new_session=True,  # Ctrl+C is for the parent process
            )
        self._processes.append(process)

    def tell(self, *, ranks: Sequence[int] | None = None, **command: Any) -> list[dict[str, Any]]:
        """Send a command to the agents of these ranks (None: all) and return their answers."""
        told = self.ranks if ranks is None else ranks
        line = json.dumps(command).encode() + b"\n"
        for rank in told:
            pipe = self._processes[rank].stdin
            assert pipe is not None
            try:
                pipe.write(line)
            except BrokenPipeError:
                raise self._failure(rank) from None
        deadline = time.monotonic() + command.get("limit", 0.0) + PATIENCE
        answers = [self._answer(rank, deadline) for rank in told]
        for answer in answers:
            if "error" in answer:
                raise UserError(answer["error"])
        return answers

    def _answer(self, rank: int, deadline: float) -> dict[str, Any]:
        """Wait for one line from an agent."""
        pipe = self._processes[rank].stdout
        assert pipe is not None
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise RuntimeError(f"agent {rank} of the benchmark does not answer; this is a bug")
        line = pipe.readline()
        if not line.endswith(b"\n"):
            raise self._failure(rank)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, rank: int) -> RuntimeError:
        words = last_words(log_path(self.folder, rank))
        return RuntimeError(f"agent {rank} of the benchmark has ended ({words})")

    def stop(self, rank: int) -> None:
        """Stop an agent completely, as if its machine hung."""
        self._processes[rank].send_signal(signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        """Continue a stopped agent."""
        self._processes[rank].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill all processes and remove their shared memory; a second Ctrl+C takes effect afterwards."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
            for run in self._runs:
                remove_leftovers(run)
            self._folder.cleanup()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
