"""The display of `gossamer launch`: a live table on a terminal, elsewhere one line every ten seconds."""

import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from gossamer.cli.display import err
from gossamer.errors import UserError
from gossamer.report.read_runs import is_number
from gossamer.runtime.launch.job import Watcher

LINE_EVERY = 10.0  # seconds between two lines about the agents, without a terminal
MOST_AGES = 6  # with more neighbours, show the range of their ages
COLOURS = {"running": "green", "waiting": "yellow", "failed": "red"}


class LaunchView(Watcher):
    """Shows a launch. `logs` is an agent's number, "all", "none", or None to choose: agent 0, or the table."""

    def __init__(self, logs: str | None, agents: int, *, json: bool) -> None:
        self._heard = _heard(logs, agents)
        self._table = err.is_terminal and not json and (logs is None or not self._heard)
        if logs is None and (self._table or json):
            self._heard = range(0)
        self._prefixed = len(self._heard) > 1
        # Kept because Ray redirects sys.stdout; with --json, standard output holds the JSON object alone.
        self._out, self._err = sys.stderr if json else sys.stdout, sys.stderr
        self._live: Live | None = None
        self._next_line = math.inf if json else time.monotonic() + LINE_EVERY

    @contextmanager
    def shown(self) -> Iterator["LaunchView"]:
        """Show the live table, if there is one, within this context."""
        if not self._table:
            yield self
            return
        with Live(console=err, refresh_per_second=4) as self._live:
            yield self

    def listens_to(self, rank: int) -> bool:
        return rank in self._heard

    def event(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(f"gossamer: {escape(text)}", highlight=False, soft_wrap=True)
        else:
            print(f"gossamer: {text}", file=self._err, flush=True)

    def output(self, rank: int, lines: list[str]) -> None:
        before = f"[{rank}] " if self._prefixed else ""
        self._out.write("".join(f"{before}{line}\n" for line in lines))
        self._out.flush()

    def status(self, rows: list[dict[str, Any]]) -> None:
        if self._live is not None:
            self._live.update(to_table(rows))
        elif time.monotonic() >= self._next_line and {row["state"] for row in rows} & {"running", "waiting"}:
            self._next_line = time.monotonic() + LINE_EVERY
            print(f"gossamer: {to_line(rows)}", file=self._err, flush=True)


def _heard(logs: str | None, agents: int) -> range:
    """Return the agents whose output is shown."""
    if logs == "all":
        return range(agents)
    if logs == "none":
        return range(0)
    if logs is not None and not (logs.isdecimal() and int(logs) < agents):
        raise UserError(f"logs must be all, none or an agent from 0 to {agents - 1}, got '{logs}'")
    return range(int(logs or 0), int(logs or 0) + 1)


def to_line(rows: list[dict[str, Any]]) -> str:
    """Return the state of a run in one line."""
    states = [row["state"] for row in rows]
    parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    steps = [int(row["step"]) for row in rows if is_number(row.get("step"))]
    if steps:
        parts.append(f"step {min(steps)}" + (f" to {max(steps)}" if max(steps) > min(steps) else ""))
    losses = [float(row["loss"]) for row in rows if is_number(row.get("loss"))]
    if losses:
        parts.append(f"loss {statistics.fmean(losses):.4g}")
    restarts = sum(int(row["restarts"]) for row in rows)
    return ", ".join([*parts, *([f"{restarts} restarts"] if restarts else [])])


def to_table(rows: list[dict[str, Any]]) -> Table:
    """Return the table: one row per agent."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("agent", "state", "step", "loss", "age of messages", "predict", "restarts"):
        table.add_column(heading, justify="left" if heading in ("state", "age of messages") else "right")
    for row in rows:
        state = escape(str(row["state"]))
        colour = COLOURS.get(state)
        table.add_row(
            str(row["rank"]),
            f"[{colour}]{state}[/{colour}]" if colour else state,
            _number(row.get("step"), "d"),
            _number(row.get("loss"), ".4g"),
            _ages(row.get("ages")),
            _number(row.get("predict"), ".0%"),
            str(row["restarts"]),
        )
    return table


def _ages(ages: Any) -> str:
    """Return the age of each neighbour's newest message as '1:0 2:3', or the range of many ages."""
    if not isinstance(ages, dict) or not ages:
        return "-"
    known = {str(peer): int(age) for peer, age in ages.items() if is_number(age) and age >= 0}
    if len(ages) <= MOST_AGES:
        return " ".join(f"{peer}:{known.get(str(peer), '-')}" for peer in ages)
    if not known:
        return f"none of {len(ages)}"
    return f"{min(known.values())} to {max(known.values())}, median {statistics.median(known.values()):g}"


def _number(value: Any, form: str) -> str:
    return format(int(value) if form == "d" else float(value), form) if is_number(value) else "-"
