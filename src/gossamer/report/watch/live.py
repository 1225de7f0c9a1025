"""What the page says of a run right now: how far it is, how long it will take, how its agents fare."""

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from gossamer.report.runs import ORDERLY
from gossamer.report.watch.health import Health
from gossamer.run.status import ALIVE, RUNNING

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
