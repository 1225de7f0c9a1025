"""The launcher's side of the fork server: processes that start with torch and the runtime imported."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.runtime.launch.child_processes import dies_with

PROGRAM = Path(__file__).with_name("fork_server.py")
PATIENCE = 60.0  # seconds for the imports, perhaps from a slow disk
REPLY = 60.0  # seconds for one fork, on a busy machine


def can_preload(command: list[str]) -> bool:
    """Say whether the fork server can run this command: a Python script or module, on Linux."""
    script = command[1] if len(command) > 1 else ""
    return sys.platform == "linux" and command[0] == sys.executable and (script == "-m" or script.endswith(".py"))


class ForkServer:
    """A fork server, from its start to `close`; after its death processes are started by themselves."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start it for processes with this command and environment; start it from the main thread."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                # With the command behind its own name, so that a list of processes shows what they run.
                dies_with(os.getpid(), [sys.executable, str(PROGRAM), str(theirs.fileno()), *command[1:]]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.ready, self.why = False, ""
        self._exits: dict[int, int] = {}

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def wait(self, stop: Callable[[], object] = lambda: None) -> bool:
        """Wait until it has imported everything; return whether it can fork. `stop` ends the wait early."""
        deadline, told = time.monotonic() + PATIENCE, None
        while told is None and self._process.poll() is None and time.monotonic() < deadline and not stop():
            told = self._receive(0.05)
        self.ready = bool(told and told["ready"])
        if not self.ready:
            self._fail(told["why"] if told else "the fork server did not start")
        return self.ready

    def fork(self, command: list[str], environment: Mapping[str, str], out: int, err: int) -> "ForkedProcess | None":
        """Return a new process that runs the command, or None if it has to be started by itself."""
        if not self.ready or not can_preload(command):
            return None
        request = {"command": command[1:], "environment": dict(environment)}
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [out, err])
        except OSError:  # it died, or the environment is too large
            return None
        deadline = time.monotonic() + REPLY
        while self.ready and time.monotonic() < deadline:
            told = self._receive(0.05)
            if told and "started" in told:
                return ForkedProcess(self, told["started"]) if told["started"] > 0 else None
        self._fail("the fork server does not answer")
        return None

    def exit_of(self, pid: int) -> int | None:
        """Return how a forked process ended. If the server is gone, they were killed with it."""
        while self.ready and self._receive(0.0):
            pass
        return self._exits.get(pid, None if self.ready else -signal.SIGKILL)

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message, and note exits."""
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        try:
            text = self._control.recv(4096)
        except OSError:
            text = b""
        if not text:
            self._fail("the fork server died")
            return None
        told: dict[str, Any] = json.loads(text)
        if "ended" in told:
            self._exits[told["ended"]] = told["exit"]
        return told

    def _fail(self, why: str) -> None:
        """End it, and what it has forked."""
        self.ready, self.why = False, self.why or why
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it."""
        self.ready = False
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """A process of the fork server, used like a `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid, self._server = pid, server
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.exit_of(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> None:
        """Wait until it has ended; raise `subprocess.TimeoutExpired` if it takes longer."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.01)


def start_process(
    command: list[str], environment: Mapping[str, str], *, out: int, err: int, server: ForkServer | None
) -> "ForkedProcess | subprocess.Popen[bytes]":
    """Start a process that dies with this one: from the server, where that is possible."""
    forked = None if server is None else server.fork(command, environment, out, err)
    if forked is not None:
        return forked
    return subprocess.Popen(
        dies_with(os.getpid(), command),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=dict(environment),
        start_new_session=True,
    )
