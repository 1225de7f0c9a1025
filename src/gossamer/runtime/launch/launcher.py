"""Agents as processes of this machine: started, watched, restarted, and cleaned up."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.run.agent_folder import Tail, last_words
from gossamer.runtime.launch.agent_process import AgentProcess, Command, Restarts
from gossamer.runtime.launch.book_process import AgentStatuses, BookProcess
from gossamer.runtime.launch.child_processes import find_processes, kill_processes
from gossamer.runtime.launch.job import AgentOutcome, LaunchJob, LaunchReport, Watcher, describe_exit, python_command
from gossamer.runtime.launch.preload import ForkServer, can_preload
from gossamer.runtime.transport.shared_memory import remove_leftovers, remove_orphans

TICK = 0.05  # seconds between two looks at the agents
TABLE = 0.5  # … and at their statuses
POLITE, FINAL = 5.0, 10.0  # seconds after SIGINT at which SIGTERM and SIGKILL follow
HURRIED = 1.0, 2.0  # the same where the launcher itself is to end soon
HURRY = "terminated"  # the reason to stop that says so
SILENCE = 30.0  # seconds of silence after which the book is no longer served for agents elsewhere


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
        preload: bool = False,
    ) -> None:
        """Take the job.

        Args:
            job: the agents to start.
            watcher: told of all events.
            command: of an agent's process.
            restarts: 0 where the command restarts agents itself.
            book: makes the process of the address book.
            preload: import torch once, and fork agents and book from that process.
        """
        run = dataclasses.replace(job.run, launcher=os.getpid())
        self.job = dataclasses.replace(job, run=run)
        self.watcher = watcher or Watcher()
        self._command, self._make_book = command, book
        self._restarts = job.max_restarts if restarts is None else restarts
        self._preload = preload
        self._server: ForkServer | None = None
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
                if why := stop():
                    report.interrupted = True
                    self._end_agents(*(HURRIED if why == HURRY else (POLITE, FINAL)))
                    break
                report.hopeless = self._look()
                time.sleep(TICK)
            if self._statuses is not None and stop() != HURRY:
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
        self._start_server(stop)
        if stop():
            return
        if self.job.serves_book:
            self._book = self._make_book(self.job)
            endpoint = self._book.start(stop, self._server)
            if stop():
                return
            self.job = self.job.with_book(endpoint)
        self._statuses = AgentStatuses(self.job.run)
        for rank in self.job.ranks:
            agent = AgentProcess(self.job, rank, self._command, Restarts(self._restarts), self._server)
            if self.watcher.listens_to(rank):
                self._tails[rank] = Tail(agent.log)
            self._agents.append(agent)

    def _start_server(self, stop: Callable[[], object]) -> None:
        """Start the fork server, if the agents can be forked, and wait for it."""
        command = self._command(self.job, self.job.ranks[0])
        if self._preload and can_preload(command):
            environment = self.job.environment(self.job.ranks[0], 0)
            del environment["GOSSAMER_RANK"]  # by which an agent's processes are found
            self._server = ForkServer(command, environment)
            self._server.wait(stop)

    def _look_at_server(self) -> None:
        """Tell once that the fork server has gone."""
        if self._server is not None and not self._server.ready:
            self.watcher.event(f"agents start without preload: {self._server.why}")
            self._server.close()
            self._server = None

    def _look(self) -> str | None:
        """Check all agents and the book, and tell the watcher; return why to give up, if so."""
        events = [agent.look() for agent in self._agents]
        self._look_at_server()
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
        self._grown |= any(agent.has_lived for agent in self._agents)
        if self._grown or not all(agent.failed_early >= 2 for agent in self._agents):
            return None
        first = self._agents[0]
        assert first.exit is not None
        words = last_words(first.log)
        return f"every agent {describe_exit(first.exit)} at its start ({words}); see {first.log}"

    def _end_agents(self, polite: float, final: float) -> None:
        """Ask all agents to end, more firmly with time."""
        begun = time.monotonic()
        pressed = [(0.0, signal.SIGINT), (polite, signal.SIGTERM)]
        while [agent for agent in self._agents if not agent.ended()]:
            elapsed = time.monotonic() - begun
            if pressed and elapsed >= pressed[0][0]:
                _, number = pressed.pop(0)
                for agent in self._agents:
                    agent.signal(number)
            if elapsed >= final:
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
            if self._server is not None:
                self._server.close()
            kill_processes(run=self.job.run.run, launcher=os.getpid())
            self._pass_on_output(whole=True)
            remove_shared_memory(self.job.run.run)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def remove_shared_memory(run: str, folder: Path | None = None) -> None:
    """Remove a run's files in shared memory, unless another launcher's agents still run."""
    if not find_processes(run=run):
        remove_leftovers(run, folder)
