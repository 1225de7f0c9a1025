"""The present state of a run: its progress, the time left, and which agents are in trouble."""

import math
import os
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gossamer.report.read_runs import MetricsRow
from gossamer.report.runs import ORDERLY
from gossamer.run.status import ALIVE, RUNNING

LEAP = 10.0  # a loss so many times its best, and above its first, diverges
APART = 100.0  # so does an agent so many times its usual distance from the average model
USUAL = 50  # evaluations whose median distance is the usual one
FEWEST = 3  # … at least, before anything is unusual
NOT_FINITE, DIVERGING = "not finite", "diverging"


class _Agent:
    """One agent's losses and distances, as far as they matter."""

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
    """How the agents of a run fare by its rows of metrics, taken one by one."""

    def __init__(self, agents: int) -> None:
        self.agents, self.step = agents, 0
        self._agents = [_Agent() for _ in range(agents)]

    def add(self, row: MetricsRow) -> None:
        """Take the next row. Test losses count where there are any, or else those of training."""
        self.step = row["step"]
        losses = _list(row, "loss") or _list(row, "train_loss") or []
        distances = (_list(row, "consensus") or []) if self.step else []  # all begin alike
        for agent, loss in zip(self._agents, losses, strict=False):
            agent.add_loss(loss)
        for agent, distance in zip(self._agents, distances, strict=False):
            agent.add_distance(distance)

    def flags(self, place: int, newest: float | None, *, nonfinite: bool) -> list[str]:
        """Return what is wrong with an agent whose newest training loss is known, or not finite."""
        agent = self._agents[place]
        if nonfinite or (agent.evaluated and agent.last is None and agent.first is not None):
            return [NOT_FINITE]
        return [DIVERGING] if agent.leaves or agent.grows(newest) else []


def _list(row: MetricsRow, name: str) -> list[Any] | None:
    value = row.get(name)
    return value if isinstance(value, list) else None


SEEN = 20.0  # seconds that must have been seen of a run before their pace tells how long the rest will take
SILENCE = 30.0  # seconds without a word, of a run that should have said one every second

Status = dict[str, Any]


def checked(status: Status | None, agents: int) -> Status | None:
    """Return a status that is what a run writes, or None: the file may be anybody's."""
    if status is None:
        return None
    told, ages, losses, events = (status.get(name) for name in ("agents", "ages", "losses", "events"))
    sound = (
        isinstance(status.get("status"), str)
        and all(_is_number(status.get(name)) for name in ("step", "seconds", "time", "pid"))
        and all(status.get(name) is None or _is_number(status[name]) for name in ("steps", "epoch"))
        and _is_list(told, agents, lambda one: isinstance(one, dict) and isinstance(one.get("state"), str))
        and (losses is None or _is_list(losses, agents, lambda one: one is None or _is_number(one)))
        and (ages is None or _is_list(ages, agents, lambda row: _is_list(row, agents)))
        and isinstance(events, list)
        and all(isinstance(one, dict) and "text" in one and _is_number(one.get("time")) for one in events)
    )
    return status if sound else None


def _is_list(value: Any, length: int, fits: Callable[[Any], bool] = lambda _: True) -> bool:
    return isinstance(value, list) and len(value) == length and all(map(fits, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def live_view(status: Status | None, health: Health, anchor: Status | None, *, there: bool) -> Status:
    """Return the view. `anchor` is the first status that was seen, `there` says whether the folder still is."""
    said = status or {}
    step = int(said.get("step") or health.step)
    state, words = _state(said, there)
    told = said.get("agents") or [{"state": ALIVE, "step": step}] * health.agents
    losses = said.get("losses") or [None] * health.agents
    return {
        "state": state,
        "words": words,
        "step": step,
        "steps": said.get("steps"),
        "epoch": said.get("epoch"),
        "seconds": said.get("seconds"),
        "left": seconds_left(said, anchor) if state == RUNNING else None,
        "time": said.get("time"),
        "agents": [
            {**agent, "loss": loss, "flags": health.flags(place, loss, nonfinite=bool(agent.get("nonfinite")))}
            for place, (agent, loss) in enumerate(zip(told, losses, strict=True))
        ],
        "ages": said.get("ages"),
        "events": said.get("events", []),
    }


def _state(said: Status, there: bool) -> tuple[str, str]:
    """Return running, ended, failed, silent, gone or vanished, and what is to be said about it."""
    if not there:
        return "vanished", "The run's folder has gone; what is shown was read before."
    status = said.get("status")
    if status is None:
        return "waiting", "The run has not said anything yet."
    if status != RUNNING:
        return ("ended" if status in ORDERLY else "failed"), f"The run has ended: {status}."
    silent = time.time() - float(said.get("time") or 0.0)
    if said.get("host") == socket.gethostname() and not _alive(int(said.get("pid") or 0)):
        return "gone", "The run's process is gone without a word, as after a kill; gossamer train --resume goes on."
    if silent > SILENCE:
        return "silent", f"No word from the run for {silent:.0f} s: it evaluates, saves, waits or hangs."
    return RUNNING, "Training."


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return pid > 0


def seconds_left(status: Status, anchor: Status | None) -> float | None:
    """Return how long the rest will take at the pace since the anchor, or since the start when that is too short."""
    step, steps, seconds = status.get("step") or 0, status.get("steps"), status.get("seconds") or 0.0
    if not steps or not step:
        return None
    begun, before = 0, 0.0
    if anchor is not None and seconds - (anchor.get("seconds") or 0.0) >= SEEN and step > (anchor.get("step") or 0):
        begun, before = anchor["step"], anchor["seconds"]
    return float(max(0, steps - step) * (seconds - before) / (step - begun))
