"""The target of a run: an accuracy or a loss, and what it took to reach it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from gossamer.errors import UserError, read_number
from gossamer.run.metric_rows import agent_mean


class ToTarget(TypedDict):
    """What a run took to its target. None: no target, not reached, or no clock."""

    target: str | None
    seconds_to_target: float | None  # simulated; of processes, real
    steps_to_target: int | None  # mean over agents
    bytes_to_target: int | None  # of all agents


@dataclass(frozen=True)
class Target:
    """A mean over agents to reach: an accuracy from below, or a loss from above."""

    what: str  # accuracy or loss
    value: float

    def reached(self, row: Mapping[str, Any]) -> bool:
        """Say whether an evaluation has reached it."""
        mean = agent_mean(row[self.what])
        return mean >= self.value if self.what == "accuracy" else mean <= self.value


def parse_target(text: str) -> Target:
    """Read '0.9', an accuracy, or 'loss:0.3'."""
    kind, _, rest = text.rpartition(":")
    if kind not in ("", "loss", "accuracy"):
        raise UserError(f"target '{text}' is neither an accuracy nor a loss; use for example 0.9 or loss:0.3")
    value = read_number("target", rest)
    what = kind or "accuracy"
    if what == "accuracy" and not 0 < value <= 1:
        raise UserError(f"target must lie in (0, 1] as an accuracy, got {value:g}; use 0.9 for 90 %")
    return Target(what, value)


def to_target(text: str | None, history: Sequence[Mapping[str, Any]], clock: str = "sim_seconds") -> ToTarget:
    """Return what the first evaluation that reached the target took; `clock` is the name of its time."""
    if text is not None:
        target = parse_target(text)
        for row in history:
            if target.reached(row):
                return {
                    "target": text,
                    "seconds_to_target": row.get(clock),
                    "steps_to_target": row["step"],
                    "bytes_to_target": sum(row["bytes_sent"]),
                }
    return {"target": text, "seconds_to_target": None, "steps_to_target": None, "bytes_to_target": None}
