"""What a comparison says of seconds and of its target: columns of its tables, and who is first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gossamer.run.metric_rows import mean

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]
NOT_REACHED = "not reached"
TO_TARGET = ("seconds_to_target", "steps_to_target", "bytes_to_target")


def time_values(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means over seeds. A mean to the target is over the seeds that reached it."""
    reached = [summary for summary in summaries if summary.get("steps_to_target") is not None]
    waited = [_waiting_share(summary) for summary in summaries if summary.get("sim_seconds")]
    return {
        "target": summaries[0].get("target"),
        "reached": len(reached),
        **{name: mean(summary.get(name) for summary in reached) for name in TO_TARGET},
        "sim_seconds": mean(summary.get("sim_seconds") for summary in summaries),
        "goodput": mean(summary.get("goodput") for summary in summaries),
        "waiting_share": mean(waited),
        "iterations": mean(summary.get("iterations") for summary in summaries),
    }


def _waiting_share(summary: Mapping[str, Any]) -> float:
    """Return the fraction of the agents' time that they wait."""
    waiting = summary["waiting_seconds_per_agent"]
    return float(sum(waiting) / (len(waiting) * summary["sim_seconds"]))


def time_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the further columns of a table: goodput on a testbed, and what the target took if there is one."""
    columns: list[Column] = []
    if any(row.get("goodput") is not None for row in rows):
        columns.append(("goodput %", lambda row: "-" if row["goodput"] is None else f"{100 * row['goodput']:.0f}"))
    if rows and rows[0].get("target") is not None:
        if any(row["seconds_to_target"] is not None for row in rows) or rows[0]["sim_seconds"] is not None:
            columns.append((f"s to {rows[0]['target']}", lambda row: _reached(row, row["seconds_to_target"])))
        columns.append(("steps", lambda row: _number(row["steps_to_target"])))
        columns.append(("MB to it", lambda row: _number(row["bytes_to_target"], 1e-6)))
    return columns


def _reached(row: Row, value: float | None) -> str:
    if value is None:
        return NOT_REACHED
    some = f" ({row['reached']} of {len(row['seeds'])})" if row["reached"] < len(row["seeds"]) else ""
    return f"{value:.4g}{some}"


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value * unit:.0f}"


def verdict(rows: Sequence[Row]) -> list[str]:
    """Return lines that say who reaches the target first, by how much, and what waiting costs the synchronous rule."""
    if not rows or rows[0].get("target") is None or rows[0]["sim_seconds"] is None:
        return []
    target, all_seeds = rows[0]["target"], [row for row in rows if row["reached"] == len(row["seeds"])]
    order = sorted(all_seeds, key=lambda row: row["seconds_to_target"])
    if not order:
        return [f"No algorithm reaches {target} within {rows[0]['sim_seconds']:.4g} s with every seed."]
    first = order[0]
    lines = [f"{first['label']} is first to {target}, after {first['seconds_to_target']:.4g} s."]
    if len(order) > 1:
        gap = order[1]["seconds_to_target"] - first["seconds_to_target"]
        share = 100 * gap / order[1]["seconds_to_target"]
        lead = f", {gap:.3g} s ({share:.0f} %) before {order[1]['label']}" if gap else f", as is {order[1]['label']}"
        lines[0] = f"{lines[0][:-1]}{lead}."
    lines += [_of_waiting(row, first) for row in rows if row["algorithm"] == "sync" and row["waiting_share"]]
    return lines


def _of_waiting(sync: Row, first: Row) -> str:
    waits = f"The agents of sync wait {100 * sync['waiting_share']:.0f} % of the time"
    if sync["seconds_to_target"] is None or sync is first:
        return f"{waits}{'' if sync is first else ' and do not reach it'}."
    return f"{waits} and take {sync['seconds_to_target'] / first['seconds_to_target']:.2f} times as long."
