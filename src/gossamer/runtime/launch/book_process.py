"""The launcher's side of the address book: the process that serves it, and the statuses that agents post in it."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.run.agent_folder import last_words
from gossamer.runtime.book.address_book import Book
from gossamer.runtime.book.addresses import split_endpoint
from gossamer.runtime.book.keys import read_key
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.child_processes import send_signal
from gossamer.runtime.launch.job import LaunchJob, without_run
from gossamer.runtime.launch.preload import ForkedProcess, ForkServer, start_process

PATIENCE = 60.0  # seconds for the book to print its endpoint: it imports torch, perhaps from a slow disk
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
NO_AGENT = -1  # the rank of a launcher, which posts nothing
LAST_LOOK = 1.0  # seconds for an agent's last post to arrive

Command = Callable[[str, int], list[str]]


def book_command(address: str, port: int) -> list[str]:
    """Return the command that serves a book and prints its endpoint."""
    return [sys.executable, "-m", "gossamer.runtime.book", address, str(port)]


class BookProcess:
    """Serves the run's book until `stop`."""

    def __init__(self, job: LaunchJob, command: Command = book_command) -> None:
        self._job, self._command = job, command
        self._log = job.folder / "book.log"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._server: ForkServer | None = None
        self._port = job.book_port
        self._pause, self._again = FIRST_PAUSE, 0.0

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    def start(self, stop: Callable[[], object] = lambda: None, server: ForkServer | None = None) -> str:
        """Start it, from the fork server if there is one, and return its endpoint; `stop` ends the wait early."""
        self._server = server
        pipe, end = os.pipe()
        self._spawn(end)
        os.close(end)
        deadline, line = time.monotonic() + PATIENCE, b""
        with open(pipe, "rb", buffering=0), selectors.DefaultSelector() as selector:  # noqa: PTH123
            selector.register(pipe, selectors.EVENT_READ)
            while not line.endswith(b"\n") and time.monotonic() < deadline and not stop():
                if selector.select(timeout=0.1):
                    chunk = os.read(pipe, 1024)
                    if not chunk:
                        break
                    line += chunk
        if stop():
            return ""
        if not line.endswith(b"\n"):
            self.stop()
            where = f"{self._job.run.address}:{self._port}"
            raise UserError(f"cannot start the address book at {where} ({last_words(self._log)}); see {self._log}")
        endpoint = line.decode("utf-8", "replace").strip()
        self._port = split_endpoint(endpoint)[1]
        return endpoint

    def look(self) -> bool:
        """Restart the book if it died; return whether it was restarted just now."""
        if self._process is None or self._process.poll() is None:
            return False
        now = time.monotonic()
        if self._again == 0.0:
            self._again = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if now < self._again:
            return False
        self._again = 0.0
        self._spawn(None)
        return True

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        if self._process.poll() is None:
            send_signal(self._process.pid, signal.SIGKILL)  # it has nothing to save, and Python takes long to exit
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2.0)
        self._process = None

    def _spawn(self, out: int | None) -> None:
        environment = without_run(os.environ) | {"GOSSAMER_RUN": self._job.run.run, "TORCH_CPP_LOG_LEVEL": "ERROR"}
        environment |= {"GOSSAMER_LAUNCHER": str(os.getpid())}
        if self._job.run.key_file is not None:
            environment["GOSSAMER_KEY_FILE"] = self._job.run.key_file
        with self._log.open("ab") as log:
            self._process = start_process(
                self._command(self._job.run.address, self._port),
                environment,
                out=log.fileno() if out is None else out,
                err=log.fileno(),
                server=self._server,
            )


class AgentStatuses:
    """The newest status of every agent of a run. Only `settle` waits, for a second."""

    def __init__(self, run: Run) -> None:
        assert run.book is not None
        key = None if run.key_file is None else read_key(Path(run.key_file))
        self._book = Book(run.book, run.run, NO_AGENT, key)
        self._ranks = range(run.agents)
        for rank in self._ranks:
            self._book.watch(f"status/{rank}")

    def newest(self) -> dict[int, dict[str, Any]]:
        """Return the last statuses by rank, without agents that never posted."""
        posted = {rank: self._book.read(f"status/{rank}") for rank in self._ranks}
        return {rank: status for rank, status in posted.items() if status is not None}

    def settle(self, ended: Iterable[int]) -> None:
        """Wait a moment for the last posts of agents that have finished."""
        deadline, ended = time.monotonic() + LAST_LOOK, set(ended)
        while time.monotonic() < deadline:
            newest = self.newest()
            if all(newest[rank].get("done") for rank in ended & set(newest)):
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Leave the book."""
        self._book.close()
