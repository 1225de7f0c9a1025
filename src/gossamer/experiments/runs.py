"""Runs as data: what a report needs of each, and the seeds of one label folded into one curve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import UserError

# A run with any other status ended because a loss was not finite.
ORDERLY = ("finished", "interrupted")


@dataclass(frozen=True)
class Run:
    """One training run: the label that its seeds share, and what `simulate` gave back."""

    label: str
    seed: int
    summary: dict[str, Any]
    history: list[dict[str, Any]]  # one row an evaluation

    @property
    def diverged(self) -> bool:
        """Whether the run ended early because a loss was not finite."""
        return self.summary.get("status", "finished") not in ORDERLY


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantity over the iterations: mean and range over the seeds that have a value there."""

    label: str
    order: int  # of the label among all labels, so that it looks the same in every picture
    num_seeds: int
    steps: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ends: tuple[tuple[int, float], ...]  # the last step and value of each seed that diverged
    num_diverged: int


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Return the labels in the order in which they first appear."""
    return list(dict.fromkeys(run.label for run in runs))


def fold(runs: Sequence[Run], key: str, *, factor: float = 1.0, positive: bool = False) -> list[Curve]:
    """Return a curve for each label, with no step where no seed has a finite value of `key`.

    Args:
        runs: any number of seeds of each label.
        key: a quantity that the rows of the history hold for each agent.
        factor: what the values are multiplied with, such as 100 for percent.
        positive: leave out values of 0 and less too, as a logarithmic axis must.
    """
    curves = []
    for order, label in enumerate(labels_of(runs)):
        group = [run for run in runs if run.label == label]
        series = [_series(run, key, factor, positive) for run in group]
        steps = sorted(set().union(*series))
        values = [[points[step] for points in series if step in points] for step in steps]
        ends = [max(points.items()) for run, points in zip(group, series, strict=True) if run.diverged and points]
        curves.append(
            Curve(
                label=label,
                order=order,
                num_seeds=len(group),
                steps=np.array(steps, dtype=np.int64),
                mean=np.array([math.fsum(at_step) / len(at_step) for at_step in values], dtype=np.float64),
                low=np.array([min(at_step) for at_step in values], dtype=np.float64),
                high=np.array([max(at_step) for at_step in values], dtype=np.float64),
                ends=tuple(ends),
                num_diverged=sum(run.diverged for run in group),
            )
        )
    return curves


def _series(run: Run, key: str, factor: float, positive: bool) -> dict[int, float]:
    """Return the mean over agents at each step where it is a number that can be drawn."""
    points = {}
    for row in run.history:
        value = factor * agent_mean(row.get(key), skip_none=key == "predict")
        if math.isfinite(value) and (value > 0 or not positive):
            points[int(row["step"])] = value
    return points


def agent_mean(values: Sequence[float | None] | None, *, skip_none: bool = False) -> float:
    """Return the mean over agents, or NaN when one is not finite.

    None stands for a value that is not finite in a history read from a file. With `skip_none` it stands for
    an agent that had nothing to measure instead, and the mean is over the others.
    """
    known = [value for value in values or () if value is not None]
    if not known or (len(known) < len(values or ()) and not skip_none):
        return math.nan
    if not all(map(math.isfinite, known)):
        return math.nan
    return math.fsum(known) / len(known)


def has_predict(runs: Sequence[Run]) -> bool:
    """Return whether any run chose between predicting and clipping."""
    return any(len(curve.steps) for curve in fold(runs, "predict"))


def check_drawable(runs: Sequence[Run]) -> None:
    """Raise UserError when there is nothing to draw."""
    if not runs:
        raise UserError("there are no runs to draw; give one or more")
    for run in runs:
        if not run.history:
            raise UserError(f"run '{run.label}' with seed {run.seed} has an empty history; train it first")


def conditions(runs: Sequence[Run]) -> str:
    """Say in short lines what the runs have in common."""
    lines = []
    for form, keys in (("{} with {}", ("task", "model")), ("{}, delay {}", ("network", "delay"))):
        values = [{str(run.summary.get(key)) for run in runs} for key in keys]
        if all(len(value) == 1 and value != {"None"} for value in values):
            lines.append(form.format(*(short(value.pop()) for value in values)))
    seeds = max(len({run.seed for run in runs if run.label == label}) for label in labels_of(runs))
    lines.append("1 seed" if seeds == 1 else f"mean and range of {seeds} seeds")
    return "\n".join(lines)


def short(text: str) -> str:
    """Cut the folders off a specification that names a file."""
    kind, colon, rest = text.partition(":")
    return f"{kind}{colon}{Path(rest).name}" if "/" in rest else text
