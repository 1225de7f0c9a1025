"""Follows a run's folder: reads only new lines, and waits for the end of a half-written line."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.report.page_model import make_model
from gossamer.report.read_runs import MetricsRow, RunRecord, is_row, mark_of
from gossamer.report.watch.run_state import Health, checked, live_view
from gossamer.report.watch.watched_folder import explained, read_any, whole_row
from gossamer.run.agent_folder import Tail
from gossamer.run.status import read_status
from gossamer.run.strict_json import to_json

EVERY = 1.0  # seconds between two looks at the folder
SHARE = 1 / 200  # of one core may go into making models; expensive models are made less often, but at least …
SELDOM = 30.0  # … after this many seconds

Sign = tuple[int, int, int] | None  # of a file: inode, size and time of the last write


class GrowingRows:
    """The rows of a growing metrics.jsonl."""

    def __init__(self, path: Path, agents: int, *, launched: bool) -> None:
        self._path, self._agents, self._launched = path, agents, launched
        self._tail, self._file, self._size = Tail(path, from_start=True), 0, 0
        self._rows: dict[tuple[int, float], MetricsRow] = {}
        self.health = Health(agents)

    def read(self) -> bool:
        """Read new lines; say whether anything has changed."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        anew = (found.st_ino != self._file and self._file != 0) or found.st_size < self._size
        if anew:  # a resumed run replaces the file, without the rows after its checkpoint
            self._tail, self._rows = Tail(self._path, from_start=True), {}
        self._file, self._size = found.st_ino, found.st_size
        fresh = [row for line in self._tail.read() if (row := self._parsed(line)) is not None]
        if anew:
            self.health = Health(self._agents)
        for row in fresh:
            self._rows[mark_of(row)] = row
            self.health.add(row)
        return bool(fresh) or anew

    def __len__(self) -> int:
        return len(self._rows)

    def _parsed(self, line: str) -> MetricsRow | None:
        try:
            row = json.loads(line)
        except ValueError:
            return None
        if self._launched and isinstance(row, dict):
            row = whole_row(row, self._agents)
        return row if is_row(row, self._agents) else None

    def in_order(self) -> list[MetricsRow]:
        """Return the rows in order."""
        return [self._rows[mark] for mark in sorted(self._rows)]


class Follower:
    """One run as of the last look. It looks only when asked."""

    def __init__(self, path: Path) -> None:
        """Read the folder; raise UserError if it is not a run."""
        self.path = path
        self._next = self._next_model = 0.0
        self._made: dict[str, Any] | None = None
        self._texts = {"model": (-1, ""), "status": (-1, "")}
        self._model_number = 0  # version of the rows that the model was made from
        self._rows_number = 0
        self._live: dict[str, Any] = {}
        self._live_number = 0
        self._begin()

    def _begin(self) -> None:
        self._record: RunRecord = read_any(self.path)
        self._launched = not (self.path / "config.toml").is_file()
        agents = self._record.network.num_agents
        self._rows = GrowingRows(self.path / "metrics.jsonl", agents, launched=self._launched)
        self._signs = self._read_signs()
        self._anchor = self._status = self._read_status()
        self._there = True
        self._rows.read()
        self._rows_number += 1
        self._refresh_live()

    def _read_signs(self) -> tuple[Sign, ...]:
        return tuple(_sign(self.path / name) for name in ("config.toml", "summary.json"))

    def _read_status(self) -> dict[str, Any] | None:
        return checked(read_status(self.path), self._record.network.num_agents)

    def look(self) -> None:
        """Look for news, at most once per second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        self._there = self.path.is_dir()
        if self._there:
            if self._signs != self._read_signs() or len(self._rows) < 3:
                self._reread()  # the summary has the discovered clusters; a delay in epochs needs a row
            if self._rows.read():
                self._rows_number += 1
            self._status = self._read_status() or self._status
            self._anchor = self._anchor or self._status
        self._refresh_live()

    def _reread(self) -> None:
        try:
            record = read_any(self.path)
        except (UserError, OSError):  # half-written, replaced or deleted: keep what was read before
            return
        if record.network.num_agents != self._record.network.num_agents:
            return
        if self._signs != self._read_signs():
            self._rows_number += 1
        self._record, self._signs = record, self._read_signs()

    def _refresh_live(self) -> None:
        live = live_view(self._status, self._rows.health, self._anchor, there=self._there)
        if live != self._live:
            self._live, self._live_number = live, self._live_number + 1

    @property
    def live(self) -> tuple[int, dict[str, Any]]:
        """The state of the run, with a version number."""
        return self._live_number, self._live

    @property
    def news(self) -> dict[str, tuple[int, str]]:
        """The messages for the pages as JSON, each with its version number."""
        begun = time.thread_time()
        for kind, (number, content) in (("model", self.model), ("status", self.live)):
            if self._texts[kind][0] != number:
                self._texts[kind] = number, to_json(content)
                if kind == "model":
                    self._rest_after(time.thread_time() - begun)
        return self._texts

    def _rest_after(self, cost: float) -> None:
        """Make no model for a while after one that took `cost` seconds of CPU time."""
        self._next_model = time.monotonic() + min(max(EVERY, cost / SHARE), SELDOM)

    @property
    def model(self) -> tuple[int, dict[str, Any]]:
        """The data of the page, with a version number; a large one is made less often."""
        if self._made is None or (self._model_number != self._rows_number and time.monotonic() >= self._next_model):
            begun = time.thread_time()
            record = dataclasses.replace(self._record, rows=self._rows.in_order(), live=self._status or {})
            made = make_model([record])
            header = made["header"]
            header["facts"] = [fact for fact in header["facts"] if fact["name"] != "Runs"]  # there is only one
            self._made = explained(made) if self._launched else made
            self._model_number = self._rows_number
            self._rest_after(time.thread_time() - begun)
        return self._model_number, self._made


def _sign(path: Path) -> Sign:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
