"""`gm.join()`: this process becomes one agent of a run, as the launcher's environment says."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.machine import is_alive
from gossamer.runtime.age_trace import AgeRecord
from gossamer.runtime.book.cluster_discovery import ClusterObserver
from gossamer.runtime.connect import Connection, connect
from gossamer.runtime.environment import Run, read_environment
from gossamer.runtime.timing_record import TimingRecord
from gossamer.runtime.transport.base import Transport
from gossamer.shapes import Float, Tensor

POST_EVERY = 0.5  # seconds between two posts to the address book
WINDOW = 50  # iterations whose ages are posted


@dataclass(frozen=True)
class StepResult:
    """The result of one step."""

    x: Float[Tensor, "1 d"]
    predict: float | None  # share of the predicting step; None where the rule did not choose
    ages: Mapping[int, int]  # by neighbour
    sent: int  # bytes, to all neighbours
    computed: int | None = None  # nanoseconds of the iteration, without the waiting; None: unknown
    arrivals: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # new messages, see TimingRecord


class Agent:
    """One agent of a run: its place in the network, its links, and its posts in the address book.

    `gm.join()` makes it. As a context manager, `with gm.join() as agent:`, it leaves the run at the end.
    """

    def __init__(self, run: Run, network: Network | None = None) -> None:
        """Open the links.

        Args:
            run: the settings in the launcher's environment.
            network: used in place of the run's own.
        """
        self.run = run
        self.network = network or run.make_network()
        self.incarnation = time.time_ns()
        self.folder = Path(run.folder) if run.folder else None
        self._connection: Connection = connect(run, self.network, self.incarnation)
        self._begun = self._posted = time.monotonic()
        self._status: dict[str, Any] = {"step": 0, "restarts": run.restarts, "pid": os.getpid(), "done": False}
        self._ages: list[list[int]] = []
        neighbours = self.neighbours
        records = self.folder if run.record else None
        self._record = None if records is None else AgeRecord(records, self.rank, neighbours)
        self._timing = None if records is None else TimingRecord(records, self.rank)
        self._observer = ClusterObserver(self.network, self.folder) if self.rank == 0 else None
        self._open = True
        self._user: object | None = None  # the optimizer that uses the links
        self._before_close: Callable[[], None] | None = None
        atexit.register(self.close)

    @property
    def rank(self) -> int:
        """The agent's number."""
        return self.run.rank

    @property
    def num_agents(self) -> int:
        """How many agents the run has."""
        return self.run.agents

    @property
    def neighbours(self) -> list[int]:
        """The agents that this one is linked with."""
        return self.network.pattern.senders_of(self.rank)

    @property
    def algorithm(self) -> str:
        """The launcher's choice of rule."""
        return self.run.algorithm

    @property
    def returns(self) -> bool:
        """Whether this agent was restarted after it died."""
        return self.run.restarts > 0

    @property
    def transport(self) -> Transport:
        """How messages travel."""
        return self._connection.transport

    @property
    def meet(self) -> float:
        """Seconds to wait for the neighbours before the first iteration; 0 after a restart."""
        return 0.0 if self.returns else self.run.meet

    def has_left(self, peer: int) -> bool:
        """Say whether a neighbour has finished; one that failed or died may be restarted."""
        return self._connection.has_left(peer)

    @property
    def discovered(self) -> dict[str, Any] | None:
        """The clusters and tau last discovered from ages; None before that, or without an address book."""
        return None if self._connection.book is None else self._connection.book.read("discovery")

    def attach(self, optimizer: object) -> None:
        """Give the agent's links to one optimiser."""
        if self._user is not None:
            raise UserError(
                "this agent has an optimizer already, and messages hold one model; pass all parameters to one optimizer"
            )
        self._user = optimizer

    def on_close(self, close: Callable[[], None]) -> None:
        """Call this before the links close."""
        self._before_close = close

    def report(self, **values: Any) -> None:
        """Show further values in the launcher's table, such as loss=…: numbers, text, or tensors of one number."""
        self._status |= {name: value.item() if isinstance(value, Tensor) else value for name, value in values.items()}

    def note(self, done: StepResult, t: int, loss: float | None) -> None:
        """Record a step; post to the address book every POST_EVERY seconds."""
        self._status |= {
            "step": t,
            "ages": {str(peer): age for peer, age in done.ages.items()},
            "predict": done.predict,
            "sent": self._status.get("sent", 0) + done.sent,
        }
        if loss is not None:
            self._status["loss"] = loss
        self._ages = [*self._ages[1 - WINDOW :], list(done.ages.values())]
        if self._record is not None:
            self._record.add(t - 1, done.ages)
        if self._timing is not None:
            self._timing.add(t - 1, done.computed, done.arrivals)
        now = time.monotonic()
        if now - self._posted >= POST_EVERY:
            self._posted = now
            self._tell()

    def _tell(self) -> None:
        """Post status and ages; exit if the launcher is gone."""
        for record in (self._record, self._timing):
            if record is not None:
                record.flush()
        book = self._connection.book
        if book is not None:
            seconds, dropped = time.monotonic() - self._begun, dict(self.transport.counts)
            book.post(f"status/{self.rank}", {**self._status, "seconds": seconds, "dropped": dropped})
            book.post(f"ages/{self.rank}", {"step": self._status["step"], "ages": self._ages})
            if self._observer is not None and (found := self._observer.look(book.read, int(self._status["step"]))):
                book.post("discovery", found)
        if self.run.launcher and not is_alive(self.run.launcher):
            print(f"gossamer: agent {self.rank} ends, because its launcher has gone", file=sys.stderr)
            sys.exit(1)

    def close(self) -> None:
        """Leave the run: post the last status, and close the links."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        # At exit of a failed program the error is only in sys.last_value.
        self._status["done"] = sys.exc_info()[0] is None and getattr(sys, "last_value", None) is None
        if self._before_close is not None:
            self._before_close()
        for record in (self._record, self._timing):
            if record is not None:
                record.close()
        book = self._connection.book
        if book is not None:
            book.post(f"status/{self.rank}", {**self._status, "seconds": time.monotonic() - self._begun})
        self._connection.close(done=self._status["done"])

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent({self.rank} of {self.num_agents} on {self.network.spec}, neighbours {self.neighbours})"


def join(environ: Mapping[str, str] | None = None, **settings: Any) -> Agent:
    """Join the run that the launcher's environment describes; without one, run alone.

    Args:
        environ: variables to read instead of the process's own.
        **settings: fields of `Run` that override the environment, such as network="ring:4" or tolerance=0.
    """
    run = read_environment(os.environ if environ is None else environ)
    unknown = sorted(set(settings) - {name for name in vars(run) if name != "serves_book"})
    if unknown:
        raise UserError(f"join() takes no '{unknown[0]}'; it takes the settings that GOSSAMER_… variables name")
    return Agent(replace(run, **settings))
