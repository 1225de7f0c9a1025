"""The line charts: a curve and a band for each setting, over every x axis."""

from collections.abc import Sequence
from typing import Any

from gossamer.report.axes import Axis, places_by_mark
from gossamer.report.grouping import RunGroup
from gossamer.report.read_runs import MetricsRow, RunRecord
from gossamer.report.runs import QUANTITIES, Curve, fold, limits, thinned, tidy, tidy_all
from gossamer.run.metric_rows import LabelledRun, labels_of

MOST_CLUSTERS = 16  # with one curve each; with more clusters all agents share one curve
MOST_POINTS = 1500  # per curve: more than a screen has columns

Places = dict[str, dict[float, dict[str, float | None]]]  # label, mark of its clock, axis

CHARTS = {
    "accuracy": "Mean over the agents",
    "loss": "Mean over the agents",
    "consensus": "Mean over the agents",
    "predict": "Share of the steps with a choice; the others clip",
    "message_age": "Mean over all messages held; a current one has age 0",
    "bytes_sent": "Sum over the agents",
}


def axes_of(runs: Sequence[RunRecord], axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return the axes for the page; an axis that some run lacks says why."""
    made = []
    for axis in axes:
        without = [run.name for run in runs if any(axis.place(row) is None for row in run.rows)]
        others = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        why = f"{without[0]}{others} {axis.lacking}" if without else None
        made.append({"key": axis.key, "title": axis.title, "switch": axis.switch, "why": why})
    return made


def places(rows: Sequence[MetricsRow], axes: Sequence[Axis]) -> dict[str, list[float | int | None]]:
    """Return the places of the rows of one run on each axis."""
    return {axis.key: tidy_all(axis.place(row) for row in rows) for axis in axes}


def as_runs(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[LabelledRun]:
    """Return the runs with the label of their setting, as `fold` takes them."""
    return [
        LabelledRun(setting.label, int(runs[k].values["seed"]), {"status": "finished", **runs[k].summary}, runs[k].rows)
        for setting in settings
        for k in setting.members
        if runs[k].rows
    ]


def by_cluster(runs: Sequence[RunRecord], settings: Sequence[RunGroup]) -> list[LabelledRun]:
    """Return a run for each cluster that chose between predicting and clipping; its shares are those of its members."""
    parts = []
    for setting in settings:
        for k in setting.members:
            clusters = _telling_clusters(runs[k])
            for number, members in enumerate(clusters):
                shares = [{**row, "predict": _of_members(row.get("predict"), members)} for row in runs[k].rows]
                if any(value is not None for row in shares for value in row["predict"]):
                    label = cluster_label(setting.label, number, len(members), alone=len(clusters) == 1)
                    parts.append(LabelledRun(label, int(runs[k].values["seed"]), runs[k].summary, shares))
    return parts


def _of_members(shares: list[float | None] | None, members: Sequence[int]) -> list[float | None]:
    return [] if shares is None else [shares[agent] for agent in members]


def _telling_clusters(run: RunRecord) -> tuple[tuple[int, ...], ...]:
    """Return the clusters; all agents as one if there are none, too many, or each agent is a cluster."""
    clusters, n = run.network.clusters or (), run.network.num_agents
    return clusters if 1 < len(clusters) < n and len(clusters) <= MOST_CLUSTERS else (tuple(range(n)),)


def cluster_label(label: str, number: int, size: int, *, alone: bool) -> str:
    """Name the curve of a cluster."""
    return label if alone else f"{label}, cluster {number} ({size} agent{'s' if size > 1 else ''})"


def charts_of(runs: Sequence[RunRecord], settings: Sequence[RunGroup], axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return every chart with its curves."""
    shown = as_runs(runs, settings)
    owner = {setting.label: number for number, setting in enumerate(settings)}
    charts = []
    of_runs, of_clusters = ((told, _places_of(told, axes)) for told in (shown, by_cluster(runs, settings)))
    for key, about in CHARTS.items():
        told, where = of_clusters if key == "predict" else of_runs
        curves = fold(told, key)
        drawn = [curve for curve in curves if len(curve.marks)]
        charts.append(
            {
                "key": key,
                "title": "Predict share by cluster (%)" if key == "predict" else QUANTITIES[key].title,
                "about": about,
                "unit": QUANTITIES[key].unit,
                "log": QUANTITIES[key].log,
                "range": tidy_all(limits(key, drawn)) if drawn else None,
                "curves": [_curve(curve, where, owner, axes) for curve in drawn],
                "empty": "no run chose between predicting and clipping" if key == "predict" else "no run has a value",
            }
        )
    return charts


def _places_of(runs: Sequence[LabelledRun], axes: Sequence[Axis]) -> Places:
    histories = {label: [run.history for run in runs if run.label == label] for label in labels_of(runs)}
    return {label: places_by_mark(same, axes) for label, same in histories.items()}


def _curve(curve: Curve, where: Places, owner: dict[str, int], axes: Sequence[Axis]) -> dict[str, Any]:
    label = max((name for name in owner if curve.label == name or curve.label.startswith(f"{name}, cluster ")), key=len)
    kept = thinned(len(curve.marks), MOST_POINTS)
    marks = curve.marks[kept].tolist()
    part = curve.label.removeprefix(label).removeprefix(", ")
    return {
        "setting": owner[label],
        "label": curve.label,
        "part": part,
        "number": int(part.split()[1]) if part else 0,
        "x": {axis.key: tidy_all(where[curve.label][mark][axis.key] for mark in marks) for axis in axes},
        "mean": tidy_all(curve.mean[kept].tolist()),
        "low": tidy_all(curve.low[kept].tolist()) if curve.num_seeds > 1 else None,
        "high": tidy_all(curve.high[kept].tolist()) if curve.num_seeds > 1 else None,
        "ends": [
            {"x": {axis.key: tidy(where[curve.label][mark][axis.key]) for axis in axes}, "y": tidy(value)}
            for mark, value in curve.ends
        ],
    }
