"""The metrics of a run as data: its rows, whichever engine wrote them, and means over agents."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_PAIRED = 128  # most agents with an age per link: a row of metrics then has a number for every pair

# A run with any other status ended because a loss was not finite.
ORDERLY = ("finished", "interrupted", "time limit")


@dataclass(frozen=True)
class LabelledRun:
    """One training run: the label that its seeds share, and the result of `simulate`."""

    label: str
    seed: int
    summary: Mapping[str, Any]
    history: list[dict[str, Any]]  # one row per evaluation

    @property
    def diverged(self) -> bool:
        """Whether the run ended early because a loss was not finite."""
        return self.summary.get("status", "finished") not in ORDERLY


def labels_of(runs: Sequence[LabelledRun]) -> list[str]:
    """Return the labels in order of first appearance."""
    return list(dict.fromkeys(run.label for run in runs))


def conditions(runs: Sequence[LabelledRun]) -> list[str]:
    """Return short lines on what the runs have in common."""
    lines = []
    timed = any(run.summary.get("testbed") is not None for run in runs)
    place = ("{} on {}", ("network", "testbed")) if timed else ("{}, delay {}", ("network", "delay"))
    for form, keys in (("{} with {}", ("task", "model")), place):
        values = [{str(run.summary.get(key)) for run in runs} for key in keys]
        if all(len(value) == 1 and value != {"None"} for value in values):
            lines.append(form.format(*(short(value.pop()) for value in values)))
    seeds = max(len({run.seed for run in runs if run.label == label}) for label in labels_of(runs))
    lines.append("1 seed" if seeds == 1 else f"mean and range of {seeds} seeds")
    return lines


def short(text: str) -> str:
    """Remove the folders from a specification that names a file."""
    kind, colon, rest = text.partition(":")
    if text.endswith(".toml"):
        return Path(text).name
    return f"{kind}{colon}{Path(rest).name}" if "/" in rest else text


def accuracy_curve(run: LabelledRun) -> list[float]:
    """Return the mean accuracy of the agents at each evaluation."""
    return [agent_mean(row["accuracy"]) for row in run.history]


def agent_mean(values: Sequence[float | int | None] | None, *, skip_none: bool = False) -> float:
    """Return the mean over agents, or NaN if one value is not finite.

    In a history read from a file None means not finite. With `skip_none` it means that the agent had nothing to
    measure, and the mean is over the others.
    """
    values = values or ()
    known = [value for value in values if value is not None]
    missing = len(known) < len(values) and not skip_none
    if not known or missing or not all(map(math.isfinite, known)):
        return math.nan
    return math.fsum(known) / len(known)


def mean(values: Iterable[Any]) -> float | None:
    """Return the mean of the finite numbers, or None if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None


def as_list(value: Any) -> list[Any]:
    """Return the value of a row as a list: one per agent, or one for all agents."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
