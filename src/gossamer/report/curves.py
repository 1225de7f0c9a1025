"""The line charts: a curve and a band for each setting, over every x axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.report.grouping import RunGroup
from gossamer.report.read_runs import MetricsRow, RunRecord
from gossamer.report.runs import QUANTITIES, Curve, fold, limits, thinned, tidy, tidy_all
from gossamer.run.metric_rows import LabelledRun, as_list, mean


@dataclass(frozen=True)
class Axis:
    """An x axis of the charts: the place of a row of metrics on it, and why a run may lack it."""

    key: str
    title: str
    switch: str  # the word on the switch
    place: Callable[[MetricsRow], float | int | None]
    lacking: str = ""


def _megabytes(row: MetricsRow) -> float | int | None:
    sent = as_list(row.get("bytes_sent"))
    return sum(sent) / 1e6 if sent and None not in sent else None


AXES = (
    Axis("iterations", "Iterations", "Iterations", lambda row: row["step"]),
    Axis("epochs", "Epochs", "Epochs", lambda row: row["epoch"]),
    Axis(
        *("seconds", "Seconds of training", "Seconds", lambda row: mean(as_list(row.get("seconds")))),
        lacking="was written by an older version, without seconds; train it again",
    ),
    Axis(
        *("megabytes", "Megabytes sent by all agents", "MB sent", _megabytes),
        lacking="does not say how many bytes were sent",
    ),
)

MOST_CLUSTERS = 16  # with one curve each; with more clusters all agents share one curve
MOST_POINTS = 1500  # per curve: more than a screen has columns

CHARTS = {
    "accuracy": "Mean over the agents",
    "loss": "Mean over the agents",
    "consensus": "Mean over the agents",
    "predict": "Share of the steps with a choice; the others clip",
    "message_age": "Mean over all messages held; a current one has age 0",
    "bytes_sent": "Sum over the agents",
}


def axes_of(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return the axes; an axis that some run lacks says why."""
    made = []
    for axis in AXES:
        without = [run.name for run in runs if any(axis.place(row) is None for row in run.rows)]
        others = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        why = f"{without[0]}{others} {axis.lacking}" if without else None
        made.append({"key": axis.key, "title": axis.title, "switch": axis.switch, "why": why})
    return made


def places(rows: Sequence[MetricsRow]) -> dict[str, list[float | int | None]]:
    """Return the places of the rows of one run on each axis."""
    return {axis.key: tidy_all(axis.place(row) for row in rows) for axis in AXES}


def as_runs(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[LabelledRun]:
    """Return the runs with the label of their setting, as `fold` takes them."""
    return [
        LabelledRun(setting.label, int(runs[k].values["seed"]), {"status": "finished", **runs[k].summary}, runs[k].rows)
        for setting in settings
        for k in setting.members
        if runs[k].rows
    ]


def by_cluster(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[LabelledRun]:
    """Return a run for each cluster that chose between predicting and clipping; its rows hold only that share."""
    parts = []
    for setting in settings:
        for k in setting.members:
            clusters = _telling_clusters(runs[k])
            for number, members in enumerate(clusters):
                shares = [
                    {"step": row["step"], "predict": [row["predict"][agent] for agent in members]}
                    for row in runs[k].rows
                    if row.get("predict") is not None
                ]
                if any(value is not None for row in shares for value in row["predict"]):
                    label = cluster_label(setting.label, number, len(members), alone=len(clusters) == 1)
                    parts.append(LabelledRun(label, int(runs[k].values["seed"]), runs[k].summary, shares))
    return parts


def _telling_clusters(run: RunRecord) -> tuple[tuple[int, ...], ...]:
    """Return the clusters; all agents as one if there are none, too many, or each agent is a cluster."""
    clusters, n = run.network.clusters or (), run.network.num_agents
    return clusters if 1 < len(clusters) < n and len(clusters) <= MOST_CLUSTERS else (tuple(range(n)),)


def cluster_label(label: str, number: int, size: int, *, alone: bool) -> str:
    """Name the curve of a cluster."""
    return label if alone else f"{label}, cluster {number} ({size} agent{'s' if size > 1 else ''})"


def charts_of(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """Return every chart with its curves."""
    shown = as_runs(runs, settings)
    where = {setting.label: _places_by_step([runs[k].rows for k in setting.members]) for setting in settings}
    owner = {setting.label: number for number, setting in enumerate(settings)}
    charts = []
    for key, about in CHARTS.items():
        curves = fold(by_cluster(runs, settings) if key == "predict" else shown, key)
        drawn = [curve for curve in curves if len(curve.steps)]
        charts.append(
            {
                "key": key,
                "title": "Predict share by cluster (%)" if key == "predict" else QUANTITIES[key].title,
                "about": about,
                "unit": QUANTITIES[key].unit,
                "log": QUANTITIES[key].log,
                "range": tidy_all(limits(key, drawn)) if drawn else None,
                "curves": [_curve(curve, where, owner) for curve in drawn],
                "empty": "no run chose between predicting and clipping" if key == "predict" else "no run has a value",
            }
        )
    return charts


def _places_by_step(histories: Sequence[Sequence[MetricsRow]]) -> dict[int, dict[str, float | None]]:
    """Return the place of each step on every axis: the mean over the seeds that have the step."""
    rows: dict[int, list[MetricsRow]] = {}
    for history in histories:
        for row in history:
            rows.setdefault(row["step"], []).append(row)
    return {step: {axis.key: mean(axis.place(row) for row in same) for axis in AXES} for step, same in rows.items()}


def _curve(curve: Curve, where: dict[str, dict[int, dict[str, float | None]]], owner: dict[str, int]) -> dict[str, Any]:
    label = max((name for name in owner if curve.label == name or curve.label.startswith(f"{name}, cluster ")), key=len)
    kept = thinned(len(curve.steps), MOST_POINTS)
    steps = [int(step) for step in curve.steps[kept]]
    part = curve.label.removeprefix(label).removeprefix(", ")
    return {
        "setting": owner[label],
        "label": curve.label,
        "part": part,
        "number": int(part.split()[1]) if part else 0,
        "x": {axis.key: tidy_all(where[label][step][axis.key] for step in steps) for axis in AXES},
        "mean": tidy_all(curve.mean[kept].tolist()),
        "low": tidy_all(curve.low[kept].tolist()) if curve.num_seeds > 1 else None,
        "high": tidy_all(curve.high[kept].tolist()) if curve.num_seeds > 1 else None,
        "ends": [
            {"x": {axis.key: tidy(where[label][step][axis.key]) for axis in AXES}, "y": tidy(value)}
            for step, value in curve.ends
        ],
    }
