"""One agent of a launch: its process while it runs, its restarts, and how it ended."""

import os
import subprocess
import time
from collections.abc import Callable

from gossamer.run.agent_folder import log_path
from gossamer.runtime.launch.child_processes import kill_processes, send_signal
from gossamer.runtime.launch.job import LaunchJob, describe_exit
from gossamer.runtime.launch.preload import ForkedProcess, ForkServer, start_process

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds
STEADY = 60.0  # seconds of life after which the pause is the first one again
BEGINNING = 5.0  # seconds: if all agents fail sooner, twice, a restart will not help

Command = Callable[[LaunchJob, int], list[str]]


class Restarts:
    """The restarts of one agent, after pauses that double; counted over the whole run."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.used = 0
        self._most, self._clock = most, clock
        self._pause = FIRST_PAUSE
        self._since = clock()

    def started(self) -> None:
        """Note that the agent starts now."""
        self._since = self._clock()

    @property
    def lived(self) -> float:
        """Seconds since the last start."""
        return self._clock() - self._since

    def ended(self) -> float | None:
        """Note that the agent died; return the seconds before its restart, or None for never."""
        if self.used >= self._most:
            return None
        self.used += 1
        if self.lived >= STEADY:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause


class AgentProcess:
    """One agent: its process while it runs, and how it ended."""

    def __init__(
        self, job: LaunchJob, rank: int, command: Command, restarts: Restarts, server: ForkServer | None = None
    ) -> None:
        self.rank, self.restarts = rank, restarts
        self.log = log_path(job.folder, rank)
        self.exit: int | None = None  # the last one
        self.state = "waiting"
        self.starts = 0
        self.failed_early = 0  # times in a row, each soon after its start
        self._job, self._command, self._server = job, command, server
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._again = 0.0

    @property
    def over(self) -> bool:
        """Whether it will not run again."""
        return self.state in ("done", "failed")

    def start(self) -> None:
        """Start it, with its output appended to its log."""
        with self.log.open("ab") as log:
            if self.restarts.used:
                log.write(f"--- agent {self.rank} is restarted ({self.restarts.used}) ---\n".encode())
                log.flush()
            self._process = start_process(
                self._command(self._job, self.rank),
                self._job.environment(self.rank, self.restarts.used),
                out=log.fileno(),
                err=log.fileno(),
                server=self._server,
            )
        self.restarts.started()
        self.starts += 1
        self.state = "running"

    def look(self) -> str | None:
        """Start it when its pause is over; if it died, return what happened."""
        if self.state == "waiting" and time.monotonic() >= self._again:
            self.start()
        if self._process is None or self.state != "running" or (status := self._process.poll()) is None:
            return None
        self.exit = status
        self._kill_children()
        if self.exit == 0:
            self.state = "done"
            return None
        early = self.restarts.lived < BEGINNING and self.exit in (1, 2)
        self.failed_early = self.failed_early + 1 if early else 0
        pause = self.restarts.ended()
        if pause is None:
            self.state = "failed"
            return f"agent {self.rank} {describe_exit(self.exit)} and is not restarted; its log is {self.log}"
        self.state, self._again = "waiting", time.monotonic() + pause
        number = f"restart {self.restarts.used} of {self._job.max_restarts}"
        return f"agent {self.rank} {describe_exit(self.exit)}; {number} in {pause:g} s"

    def _kill_children(self) -> None:
        """Kill what the agent has left: processes with its rank, and forks of its own, which show no rank."""
        run, launcher = self._job.run.run, os.getpid()
        kill_processes(run=run, launcher=launcher, rank=self.rank)
        if isinstance(self._process, ForkedProcess):
            kill_processes(session=self._process.pid, run=run, launcher=launcher)

    @property
    def has_lived(self) -> bool:
        """Whether it runs, and got beyond its beginning."""
        return self.state == "running" and self.restarts.lived >= BEGINNING

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            send_signal(self._process.pid, number)

    def ended(self) -> bool:
        """Say whether its process has ended, and keep the exit status."""
        if self._process is None or self._process.poll() is None:
            return self._process is None
        self.exit = self._process.returncode
        self.state = "done" if self.exit == 0 else "failed"
        return True
