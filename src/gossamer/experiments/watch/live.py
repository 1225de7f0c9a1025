"""What the page says of a run right now: how far it is, how long it will take, how its agents fare."""

import math
import os
import socket
import statistics
import time
from collections.abc import Sequence
from typing import Any

from gossamer.engine.status import ALIVE, DONE, REJOINED, RUNNING
from gossamer.experiments.report.read import Row
from gossamer.experiments.runs import ORDERLY

SILENCE = 30.0  # seconds without a word, of a run that should have said one every second
LEAP = 10.0  # a loss so many times its best, and above its first, diverges
APART = 100.0  # so does an agent so many times its usual distance from the others
NOT_FINITE, DIVERGING = "not finite", "diverging"

Status = dict[str, Any]


def live_view(status: Status | None, rows: Sequence[Row], agents: int, anchor: Status | None, there: bool) -> Status:
    """Return the view. `anchor` is the first status that was seen, `there` says whether the folder still is."""
    said = status or {}
    last = rows[-1] if rows else {}
    step = int(said.get("step") or last.get("step") or 0)
    state, words = _state(said, there)
    flags = [flags_of(rows, agent, said) for agent in range(agents)]
    told = said.get("agents") or [{"state": ALIVE, "step": step}] * agents
    losses = said.get("losses") or [None] * agents
    return {
        "state": state,
        "words": words,
        "step": step,
        "steps": said.get("steps"),
        "epoch": said.get("epoch"),
        "seconds": said.get("seconds", last.get("seconds")),
        "left": seconds_left(said, anchor) if state == RUNNING else None,
        "time": said.get("time"),
        "agents": [
            {**agent, "loss": loss, "flags": flag} for agent, loss, flag in zip(told, losses, flags, strict=False)
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
    if anchor is not None and seconds - (anchor.get("seconds") or 0.0) >= 5 and step > (anchor.get("step") or 0):
        begun, before = anchor["step"], anchor["seconds"]
    return float(max(0, steps - step) * (seconds - before) / (step - begun))


def flags_of(rows: Sequence[Row], agent: int, status: Status) -> list[str]:
    """Return what is wrong with an agent: its loss is not finite, or it diverges."""
    told = status.get("agents") or []
    losses = status.get("losses") or []
    of_rows = [row[name][agent] for row in rows if (name := _loss_in(row)) is not None]
    nonfinite = agent < len(told) and bool(told[agent].get("nonfinite"))
    if nonfinite or (of_rows and of_rows[-1] is None and _loss_in(rows[-1]) == "loss" and "lr" in rows[-1]):
        return [NOT_FINITE]
    known = [loss for loss in of_rows if loss is not None]
    newest = losses[agent] if agent < len(losses) else None
    if newest is not None and known:
        known = [*known, newest]
    leaps = len(known) > 1 and known[-1] > LEAP * min(known) and known[-1] > known[0]
    distances = [row["consensus"][agent] for row in rows if row.get("consensus") and row["step"] > 0]
    return [DIVERGING] if leaps or _leaves(distances) else []


def _loss_in(row: Row) -> str | None:
    return next((name for name in ("loss", "train_loss") if isinstance(row.get(name), list)), None)


def _leaves(distances: list[float | None]) -> bool:
    """Say whether the last distance is far beyond what was usual before."""
    known = [distance for distance in distances if distance is not None and math.isfinite(distance)]
    return len(known) > 3 and known[-1] > APART * statistics.median(known[:-1])


def counted(agents: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return how many agents are in which state."""
    states = [agent["state"] for agent in agents]
    return {state: states.count(state) for state in (ALIVE, REJOINED, DONE, "dead")}
