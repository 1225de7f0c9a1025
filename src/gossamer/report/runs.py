"""What a report draws of runs: the seeds of one label folded into one curve, axes, and numbers as JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import UserError
from gossamer.report.axes import shared_clock
from gossamer.run.metric_rows import LabelledRun, agent_mean, as_list, labels_of


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
    """A quantity over the marks of the clock that the seeds share: mean and range over the seeds with a value."""

    label: str
    order: int  # of the label among all labels: it looks the same in every figure
    num_seeds: int
    num_diverged: int
    marks: NDArray[np.float64]  # steps or simulated seconds
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ends: tuple[tuple[float, float], ...]  # the last mark and value of each seed that diverged


def fold(runs: Sequence[LabelledRun], name: str) -> list[Curve]:
    """Return a curve of this quantity for each label, without the marks at which no seed has a value."""
    return [
        _curve(label, order, [run for run in runs if run.label == label], name)
        for order, label in enumerate(labels_of(runs))
    ]


def _curve(label: str, order: int, runs: list[LabelledRun], name: str) -> Curve:
    clock = shared_clock([run.history for run in runs])
    series = [_series(run, name, clock) for run in runs]
    marks = sorted({mark for points in series for mark in points})
    values = [[points[mark] for points in series if mark in points] for mark in marks]
    return Curve(
        label=label,
        order=order,
        num_seeds=len(runs),
        num_diverged=sum(run.diverged for run in runs),
        marks=np.array(marks, dtype=np.float64),
        mean=np.array([math.fsum(at_mark) / len(at_mark) for at_mark in values], dtype=np.float64),
        low=np.array([min(at_mark) for at_mark in values], dtype=np.float64),
        high=np.array([max(at_mark) for at_mark in values], dtype=np.float64),
        ends=tuple(max(points.items()) for run, points in zip(runs, series, strict=True) if run.diverged and points),
    )


def _series(run: LabelledRun, name: str, clock: str) -> dict[float, float]:
    """Return the mean over agents at each mark of the clock at which it can be drawn: on a log axis only above 0."""
    quantity, points = QUANTITIES[name], {}
    for row in run.history:
        values = as_list(row.get(name))
        value = quantity.factor * agent_mean(values, skip_none=quantity.partial)
        value *= len(values) if quantity.total and values else 1
        if math.isfinite(value) and (value > 0 or not quantity.log):
            points[float(row[clock])] = value
    return points


def limits(name: str, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return limits of the y axis that show most curves, even if one is far away."""
    if name == "predict":
        return -4.0, 104.0
    values = np.concatenate([curve.mean for curve in curves])
    most = float(values.max())
    if name in ("message_age", "bytes_sent"):
        return -0.04 * max(most, 1e-9), 1.06 * max(most, 1e-9)
    if QUANTITIES[name].log:
        # At the beginning equal agents differ by rounding errors, decades below all later values.
        later = np.concatenate([curve.mean[curve.marks > 0] for curve in curves])
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
    return any(len(curve.marks) for curve in fold(runs, "predict"))


def check_drawable(runs: Sequence[LabelledRun]) -> None:
    """Raise UserError if there is nothing to draw."""
    if not runs:
        raise UserError("there are no runs to draw; give one or more")
    for run in runs:
        if not run.history:
            raise UserError(f"run '{run.label}' with seed {run.seed} has an empty history; train it first")


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
