"""Joins the metrics of all agents: one row for each step at which all were evaluated."""

import math
from typing import Any

from gossamer.run.agent_folder import AgentFolder, Tail, parsed, read_rows
from gossamer.run.folder import RunFolder
from gossamer.run.metric_rows import MOST_PAIRED, mean

Row = dict[str, Any]


def joined_row(at: list[Row]) -> Row:
    """Return the row of a step from the agents' rows, whatever the time of each."""
    row: Row = {name: at[0][name] for name in ("step", "epoch", "lr")}
    row |= {name: [of_one[name] for of_one in at] for name in ("accuracy", "loss", "train_loss", "predict")}
    return row | {
        "message_age": mean(of_one["message_age"] for of_one in at),
        "bytes_sent": [of_one["bytes_sent"] for of_one in at],
        "ages": age_matrix([of_one.get("ages") for of_one in at]),
        "seconds": max(of_one["seconds"] for of_one in at),
    }


def age_matrix(of_agents: list[Any]) -> list[list[float | None]] | None:
    """Return the ages of j's messages at i, from each agent's report by neighbour: {"1": 0, "2": 3}."""
    n = len(of_agents)
    if n > MOST_PAIRED:
        return None
    reported = [ages if isinstance(ages, dict) else {} for ages in of_agents]
    return [[_age(ages.get(str(peer))) for peer in range(n)] for ages in reported]


def _age(value: Any) -> float | None:
    known = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return round(float(value), 3) if known else None


def write_history(folder: RunFolder, rows: list[dict[int, Row]]) -> list[Row]:
    """Rewrite metrics.jsonl from the rows of all agents, and return the new rows."""
    common = sorted(set.intersection(*(set(of_one) for of_one in rows)))
    folder.keep_rows(0)
    history = [joined_row([of_one[step] for of_one in rows]) for step in common]
    for row in history:
        folder.append(row)
    return history


class GrowingHistory:
    """Adds rows to metrics.jsonl while the agents run, so that the run can be watched; `write_history` follows."""

    def __init__(self, folder: RunFolder, agents: int) -> None:
        self._folder = folder
        files = [AgentFolder(folder.path, rank).metrics_path for rank in range(agents)]
        self._tails = [Tail(file, from_start=True) for file in files]
        self._rows: list[dict[int, Row]] = [{} for _ in files]
        self._last = max((row["step"] for row in read_rows(folder.path / "metrics.jsonl")), default=-1)

    def look(self) -> None:
        """Read the agents' new rows, and add the steps that all have."""
        for rows, tail in zip(self._rows, self._tails, strict=True):
            rows |= {row["step"]: row for line in tail.read() if (row := parsed(line)) is not None}
        common = set.intersection(*(set(rows) for rows in self._rows))
        for step in sorted(step for step in common if step > self._last):
            self._folder.append(joined_row([rows[step] for rows in self._rows]))
            self._last = step
        for rows in self._rows:  # earlier rows are in the file
            for step in [step for step in rows if step <= self._last]:
                del rows[step]
