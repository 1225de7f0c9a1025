"""The present state of a run: progress, time left, and agents in trouble."""

import math
import socket
import statistics
import time
from collections import deque
from typing import Any

from gossamer.report.read_runs import MetricsRow, is_list, is_number
from gossamer.run.machine import is_alive
from gossamer.run.metric_rows import ORDERLY
from gossamer.run.status import ALIVE, RUNNING

LEAP = 10.0  # an agent diverges if its loss is this many times its best loss and above its first …
APART = 100.0  # … or its distance from the average model is this many times its usual one
USUAL = 50  # the usual distance is the median of this many evaluations
FEWEST = 3  # evaluations before a distance can be unusual
NOT_FINITE, DIVERGING = "not finite", "diverging"


class _Agent:
    """One agent's losses and distances."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = math.inf
        self.last: float | None = None
        self.evaluated = False
        self.distances: deque[float] = deque(maxlen=USUAL)
        self.leaves = False

    def add_loss(self, loss: float | None) -> None:
        self.evaluated, self.last = True, loss
        if loss is not None:
            self.first = loss if self.first is None else self.first
            self.best = min(self.best, loss)

    def add_distance(self, distance: float | None) -> None:
        if distance is not None:
            usual = statistics.median(self.distances) if len(self.distances) >= FEWEST else math.inf
            self.leaves = distance > APART * usual
            self.distances.append(distance)

    def grows(self, newest: float | None) -> bool:
        loss = self.last if newest is None else newest
        return loss is not None and self.first is not None and loss > LEAP * self.best and loss > self.first


class Health:
    """The health of all agents, from rows of metrics that are added one by one."""

    def __init__(self, agents: int) -> None:
        self.agents, self.step = agents, 0
        self._agents = [_Agent() for _ in range(agents)]

    def add(self, row: MetricsRow) -> None:
        """Add the next row. Test losses count; without them training losses."""
        self.step = row["step"]
        losses = _list(row, "loss") or _list(row, "train_loss") or []
        distances = (_list(row, "consensus") or []) if self.step else []  # all agents start equal
        for agent, loss in zip(self._agents, losses, strict=False):
            agent.add_loss(loss)
        for agent, distance in zip(self._agents, distances, strict=False):
            agent.add_distance(distance)

    def flags(self, place: int, newest: float | None, *, nonfinite: bool) -> list[str]:
        """Return the problems of an agent; `newest` is its newest training loss, if known and finite."""
        agent = self._agents[place]
        if nonfinite or (agent.evaluated and agent.last is None and agent.first is not None):
            return [NOT_FINITE]
        return [DIVERGING] if agent.leaves or agent.grows(newest) else []


def _list(row: MetricsRow, name: str) -> list[Any] | None:
    value = row.get(name)
    return value if isinstance(value, list) else None


SEEN = 20.0  # seconds to watch a run before its pace gives an estimate of the time left
SILENCE = 30.0  # seconds without a status, which a run writes every second

MAY_LACK = ("steps", "epoch", "sim_seconds", "sim_end")

Status = dict[str, Any]


def checked(status: Status | None, agents: int) -> Status | None:
    """Return the status if it has the form that a run writes, else None."""
    if status is None:
        return None
    told, ages, losses, events = (status.get(name) for name in ("agents", "ages", "losses", "events"))
    sound = (
        isinstance(status.get("status"), str)
        and all(is_number(status.get(name)) for name in ("step", "seconds", "time", "pid"))
        and all(
            status.get(name) is None or is_number(status[name]) for name in ("steps", "epoch", "sim_seconds", "sim_end")
        )
        and is_list(told, agents, lambda one: isinstance(one, dict) and isinstance(one.get("state"), str))
        and (losses is None or is_list(losses, agents, lambda one: one is None or is_number(one)))
        and (ages is None or is_list(ages, agents, lambda row: is_list(row, agents)))
        and isinstance(events, list)
        and all(isinstance(one, dict) and "text" in one and is_number(one.get("time")) for one in events)
    )
    return status if sound else None


def live_view(status: Status | None, health: Health, anchor: Status | None, *, there: bool) -> Status:
    """Return the state for the page; `anchor` is the first status seen, `there` says whether the folder exists."""
    said = status or {}
    step = int(said.get("step") or health.step)
    state, words = _state(said, there)
    told = said.get("agents") or [{"state": ALIVE, "step": step}] * health.agents
    losses = said.get("losses") or [None] * health.agents
    return {
        "state": state,
        "words": words,
        "step": step,
        **{name: said.get(name) for name in ("steps", "epoch", "seconds", "sim_seconds", "sim_end", "time", "ages")},
        "left": seconds_left(said, anchor) if state == RUNNING else None,
        "agents": [
            {**agent, "loss": loss, "flags": health.flags(place, loss, nonfinite=bool(agent.get("nonfinite")))}
            for place, (agent, loss) in enumerate(zip(told, losses, strict=True))
        ],
        "events": said.get("events", []),
    }


def _state(said: Status, there: bool) -> tuple[str, str]:
    """Return waiting, running, ended, failed, silent, gone or vanished, and a sentence about it."""
    if not there:
        return "vanished", "The run's folder no longer exists; this page shows what was read before."
    status = said.get("status")
    if status is None:
        return "waiting", "The run has not written a status yet."
    if status != RUNNING:
        return ("ended" if status in ORDERLY else "failed"), f"The run has ended: {status}."
    silent = time.time() - float(said.get("time") or 0.0)
    if said.get("host") == socket.gethostname() and not is_alive(int(said.get("pid") or 0)):
        return "gone", "The run's process was killed; gossamer train --resume continues the run."
    if silent > SILENCE:
        return "silent", f"No status for {silent:.0f} s: the run evaluates, saves, waits or hangs."
    return RUNNING, "Training."


def seconds_left(status: Status, anchor: Status | None) -> float | None:
    """Return the time left at the pace since the anchor, or since the start if the anchor is too recent."""
    (done, length), seconds = _progress(status), status.get("seconds") or 0.0
    if not length or not done:
        return None
    begun, before = 0.0, 0.0
    if anchor is not None and seconds - (anchor.get("seconds") or 0.0) >= SEEN and done > _progress(anchor)[0]:
        begun, before = _progress(anchor)[0], anchor["seconds"]
    return float(max(0.0, length - done) * (seconds - before) / (done - begun))


def _progress(status: Status) -> tuple[float, float | None]:
    """Return how much of the run is done and its length: in simulated seconds if they end it, otherwise in steps."""
    done, length = ("sim_seconds", "sim_end") if status.get("sim_end") else ("step", "steps")
    end = status.get(length)
    return float(status.get(done) or 0), None if end is None else float(end)
