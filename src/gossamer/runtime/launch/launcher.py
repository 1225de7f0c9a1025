"""Agents as processes of this machine: started, watched, restarted, and cleaned up."""

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.run.agent_folder import Tail, last_words, log_path
from gossamer.runtime.launch.book_process import AgentStatuses, BookProcess
from gossamer.runtime.launch.child_processes import dies_with, find_processes, kill_processes, send_signal
from gossamer.runtime.launch.job import AgentOutcome, LaunchJob, LaunchReport, Watcher, describe_exit, python_command
from gossamer.runtime.transport.shared_memory import remove_leftovers, remove_orphans

TICK = 0.05  # seconds between two looks at the agents
TABLE = 0.5  # … and at their statuses
POLITE, FINAL = 5.0, 10.0  # seconds after SIGINT at which SIGTERM and SIGKILL follow
SILENCE = 30.0  # seconds of silence after which the book is no longer served for agents elsewhere
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

    def __init__(self, job: LaunchJob, rank: int, command: Command, restarts: Restarts) -> None:
        self.rank, self.restarts = rank, restarts
        self.log = log_path(job.folder, rank)
        self.exit: int | None = None  # the last one
        self.state = "waiting"
        self.starts = 0
        self.failed_early = 0  # times in a row, each soon after its start
        self._job, self._command = job, command
        self._process: subprocess.Popen[bytes] | None = None
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
            self._process = subprocess.Popen(
                dies_with(os.getpid(), self._command(self._job, self.rank)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._job.environment(self.rank, self.restarts.used),
                start_new_session=True,
            )
        self.restarts.started()
        self.starts += 1
        self.state = "running"

    def look(self) -> str | None:
        """Start it when its pause is over; if it died, return what happened."""
        if self.state == "waiting" and time.monotonic() >= self._again:
            self.start()
        if self._process is None or self.state != "running" or self._process.poll() is None:
            return None
        self.exit = self._process.returncode
        kill_processes(run=self._job.run.run, launcher=os.getpid(), rank=self.rank)  # its leftover children
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


class Launcher:
    """Runs a job's agents and its book until all have ended; call it from the main thread."""

    def __init__(
        self,
        job: LaunchJob,
        watcher: Watcher | None = None,
        *,
        command: Command = python_command,
        restarts: int | None = None,
        book: Callable[[LaunchJob], BookProcess] = BookProcess,
    ) -> None:
        """Take the job; `restarts` is 0 where the command restarts agents itself."""
        run = dataclasses.replace(job.run, launcher=os.getpid())
        self.job = dataclasses.replace(job, run=run)
        self.watcher = watcher or Watcher()
        self._command, self._make_book = command, book
        self._restarts = job.max_restarts if restarts is None else restarts
        self._book: BookProcess | None = None
        self._statuses: AgentStatuses | None = None
        self._agents: list[AgentProcess] = []
        self._tails: dict[int, Tail] = {}
        self._next_table = 0.0
        self._grown = False  # an agent has lived long enough, or has made a step

    def run(self, stop: Callable[[], object] = lambda: None) -> LaunchReport:
        """Run until every agent has ended or `stop` gives a reason; leave nothing behind."""
        begun, report = time.monotonic(), LaunchReport()
        try:
            self._start(stop)
            while not (self._agents and all(agent.over for agent in self._agents)) and not report.hopeless:
                if stop():
                    report.interrupted = True
                    self._end_agents()
                    break
                report.hopeless = self._look()
                time.sleep(TICK)
            if self._statuses is not None:
                self._statuses.settle(agent.rank for agent in self._agents if agent.exit == 0)
            self._serve_others(stop)
        finally:
            self._clean()
        self.watcher.status(self.rows())
        rows = {row["rank"]: row for row in self.rows()}
        statuses = self._statuses.newest() if self._statuses else {}
        report.outcomes = [
            AgentOutcome(agent.rank, agent.exit, rows[agent.rank]["restarts"], statuses.get(agent.rank))
            for agent in self._agents
        ]
        report.seconds = time.monotonic() - begun
        return report

    def _serve_others(self, stop: Callable[[], object]) -> None:
        """Serve the book while agents of other launchers train: a restarted agent needs it to find the others."""
        own, news, before = set(self.job.ranks), time.monotonic(), None
        while self._book is not None and self._statuses is not None and not stop():
            others = {rank: posted for rank, posted in self._statuses.newest().items() if rank not in own}
            there = {rank: posted.get("step") for rank, posted in others.items() if not posted.get("done")}
            if there != before:
                news, before = time.monotonic(), there
            if not there or time.monotonic() - news > SILENCE:
                return
            self._book.look()
            time.sleep(TICK)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row an agent of the whole run: rank, state, restarts, and its status."""
        statuses = self._statuses.newest() if self._statuses else {}
        own = {agent.rank: agent for agent in self._agents}
        rows = []
        for rank in range(self.job.run.agents):
            posted = statuses.get(rank, {})
            row = {"restarts": 0, **posted, "rank": rank, "state": "elsewhere"}
            if rank in own:
                row["state"] = own[rank].state
                row["restarts"] = max(own[rank].starts - 1, int(posted.get("restarts") or 0))
            elif posted.get("done"):
                row["state"] = "done"
            rows.append(row)
        return rows

    def _start(self, stop: Callable[[], object]) -> None:
        remove_orphans()  # of launchers that were killed
        if self.job.serves_book:
            self._book = self._make_book(self.job)
            endpoint = self._book.start(stop)
            if stop():
                return
            self.job = self.job.with_book(endpoint)
        self._statuses = AgentStatuses(self.job.run)
        for rank in self.job.ranks:
            agent = AgentProcess(self.job, rank, self._command, Restarts(self._restarts))
            if self.watcher.listens_to(rank):
                self._tails[rank] = Tail(agent.log)
            self._agents.append(agent)

    def _look(self) -> str | None:
        """Check all agents and the book, and tell the watcher; return why to give up, if so."""
        events = [agent.look() for agent in self._agents]
        hopeless = self._common_mistake()
        if hopeless:
            return hopeless
        for event in events:
            if event:
                self.watcher.event(event)
        if self._book is not None and self._book.look():
            self.watcher.event("the address book died and was restarted")
        self._pass_on_output()
        if time.monotonic() >= self._next_table:
            self._next_table = time.monotonic() + TABLE
            rows = self.rows()
            self._grown |= any(int(row.get("step") or 0) > 0 for row in rows)
            self.watcher.status(rows)
        return None

    def _pass_on_output(self, *, whole: bool = False) -> None:
        for rank, tail in self._tails.items():
            lines = tail.read(whole=whole)
            if lines:
                self.watcher.output(rank, lines)

    def _common_mistake(self) -> str | None:
        """Return the error if every agent failed twice at its start, and none got further."""
        self._grown |= any(a.state == "running" and a.restarts.lived >= BEGINNING for a in self._agents)
        if self._grown or not all(agent.failed_early >= 2 for agent in self._agents):
            return None
        first = self._agents[0]
        assert first.exit is not None
        words = last_words(first.log)
        return f"every agent {describe_exit(first.exit)} at its start ({words}); see {first.log}"

    def _end_agents(self) -> None:
        """Ask all agents to end, more firmly with time."""
        begun = time.monotonic()
        pressed = [(0.0, signal.SIGINT), (POLITE, signal.SIGTERM)]
        while [agent for agent in self._agents if not agent.ended()]:
            elapsed = time.monotonic() - begun
            if pressed and elapsed >= pressed[0][0]:
                _, number = pressed.pop(0)
                for agent in self._agents:
                    agent.signal(number)
            if elapsed >= FINAL:
                return  # the rest is done by force
            self._pass_on_output()
            time.sleep(TICK)

    def _clean(self) -> None:
        """Kill what still runs and remove leftovers, with signals blocked."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            for agent in self._agents:
                agent.signal(signal.SIGKILL)
            deadline = time.monotonic() + FINAL
            while [agent for agent in self._agents if not agent.ended()] and time.monotonic() < deadline:
                time.sleep(TICK / 5)
            if self._statuses is not None:
                self._statuses.close()
            if self._book is not None:
                self._book.stop()
            kill_processes(run=self.job.run.run, launcher=os.getpid())
            self._pass_on_output(whole=True)
            remove_shared_memory(self.job.run.run)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def remove_shared_memory(run: str, folder: Path | None = None) -> None:
    """Remove a run's files in shared memory, unless another launcher's agents still run."""
    if not find_processes(run=run):
        remove_leftovers(run, folder)
