"""Runs as data: what a report needs of each, the seeds of one label folded into one curve, and numbers as JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import UserError
from gossamer.report.network_picture import short as short

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


@dataclass(frozen=True)
class Quantity:
    """A value in the rows of a history, and how it is shown."""

    title: str
    factor: float = 1.0
    log: bool = False
    unit: str = ""
    total: bool = False  # the sum over the agents, not their mean
    partial: bool = False  # None means that the agent had nothing to measure


QUANTITIES = {
    "accuracy": Quantity("Test accuracy (%)", factor=100.0, unit=" %"),
    "loss": Quantity("Test loss", log=True),
    "consensus": Quantity("Distance from average model", log=True),
    "predict": Quantity("Share of predicting (%)", factor=100.0, unit=" %", partial=True),
    "message_age": Quantity("Age of messages (iterations)", partial=True),
    "bytes_sent": Quantity("Sent by all agents (MB)", factor=1e-6, unit=" MB", total=True),
}


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantity over the iterations: mean and range over the seeds that have a value at the step."""

    label: str
    order: int  # of the label among all labels: it looks the same in every figure
    num_seeds: int
    num_diverged: int
    steps: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ends: tuple[tuple[int, float], ...]  # the last step and value of each seed that diverged


def labels_of(runs: Sequence[LabelledRun]) -> list[str]:
    """Return the labels in order of first appearance."""
    return list(dict.fromkeys(run.label for run in runs))


def fold(runs: Sequence[LabelledRun], name: str) -> list[Curve]:
    """Return a curve of this quantity for each label, without the steps at which no seed has a value."""
    return [
        _curve(label, order, [run for run in runs if run.label == label], name)
        for order, label in enumerate(labels_of(runs))
    ]


def _curve(label: str, order: int, runs: list[LabelledRun], name: str) -> Curve:
    series = [_series(run, name) for run in runs]
    steps = sorted({step for points in series for step in points})
    values = [[points[step] for points in series if step in points] for step in steps]
    return Curve(
        label=label,
        order=order,
        num_seeds=len(runs),
        num_diverged=sum(run.diverged for run in runs),
        steps=np.array(steps, dtype=np.int64),
        mean=np.array([math.fsum(at_step) / len(at_step) for at_step in values], dtype=np.float64),
        low=np.array([min(at_step) for at_step in values], dtype=np.float64),
        high=np.array([max(at_step) for at_step in values], dtype=np.float64),
        ends=tuple(max(points.items()) for run, points in zip(runs, series, strict=True) if run.diverged and points),
    )


def _series(run: LabelledRun, name: str) -> dict[int, float]:
    """Return the mean over agents at each step at which it can be drawn: on a log axis only above 0."""
    quantity, points = QUANTITIES[name], {}
    for row in run.history:
        values = as_list(row.get(name))
        value = quantity.factor * agent_mean(values, skip_none=quantity.partial)
        value *= len(values) if quantity.total and values else 1
        if math.isfinite(value) and (value > 0 or not quantity.log):
            points[int(row["step"])] = value
    return points


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


def accuracy_curve(run: LabelledRun) -> list[float]:
    """Return the mean accuracy of the agents at each evaluation."""
    return [agent_mean(row["accuracy"]) for row in run.history]


def limits(name: str, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return limits of the y axis that show most curves, even if one is far away."""
    if name == "predict":
        return -4.0, 104.0
    values = np.concatenate([curve.mean for curve in curves])
    most = float(values.max())
    if name in ("message_age", "bytes_sent"):
        return -0.04 * max(most, 1e-9), 1.06 * max(most, 1e-9)
    if QUANTITIES[name].log:
        # At step 0 equal agents differ by rounding errors, decades below all later values.
        later = np.concatenate([curve.mean[curve.steps > 0] for curve in curves])
        later = later if len(later) else values
        low, high = (float(value) for value in np.quantile(later, (0.05, 0.95)))
        return 0.8 * max(float(later.min()), low / 4), 1.25 * min(most, 4 * high)
    quarter = float(np.quantile(values, 0.25))
    # Below half of the best accuracy there is nothing to compare; the legend names the curves that end there.
    bottom = min(max(quarter - 0.2 * (most - quarter), most / 2), most - 10)
    bottom = max(0.0, 5.0 * math.floor(bottom / 5))
    return bottom, min(most + 0.08 * (most - bottom), 100.5)


def has_predict(runs: Sequence[LabelledRun]) -> bool:
    """Say whether any run chose between predicting and clipping."""
    return any(len(curve.steps) for curve in fold(runs, "predict"))


def check_drawable(runs: Sequence[LabelledRun]) -> None:
    """Raise UserError if there is nothing to draw."""
    if not runs:
        raise UserError("there are no runs to draw; give one or more")
    for run in runs:
        if not run.history:
            raise UserError(f"run '{run.label}' with seed {run.seed} has an empty history; train it first")


def conditions(runs: Sequence[LabelledRun]) -> list[str]:
    """Return short lines on what the runs have in common."""
    lines = []
    for form, keys in (("{} with {}", ("task", "model")), ("{}, delay {}", ("network", "delay"))):
        values = [{str(run.summary.get(key)) for run in runs} for key in keys]
        if all(len(value) == 1 and value != {"None"} for value in values):
            lines.append(form.format(*(short(value.pop()) for value in values)))
    seeds = max(len({run.seed for run in runs if run.label == label}) for label in labels_of(runs))
    lines.append("1 seed" if seeds == 1 else f"mean and range of {seeds} seeds")
    return lines


DIGITS = 6  # of a number on the page: more than a screen shows, a third of the bytes


def tidy(value: Any) -> float | int | None:
    """Return a number with few digits, or None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    return float(f"{float(value):.{DIGITS}g}")


def tidy_all(values: Iterable[Any]) -> list[float | int | None]:
    """Return the tidy numbers."""
    return [tidy(value) for value in values]


def thinned(count: int, most: int) -> list[int]:
    """Return about `most` evenly spaced indices below `count`, always with the last one."""
    stride = max(1, -(-count // most))
    return [place for place in range(count) if place % stride == 0 or place == count - 1]


def as_list(value: Any) -> list[Any]:
    """Return the value of a row as a list: one per agent, or one for all agents."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def mean(values: Iterable[Any]) -> float | None:
    """Return the mean of the finite numbers, or None if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
