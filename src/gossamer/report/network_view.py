"""The network as data for the page: places of agents and clusters, late links, and ages of messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gossamer.network import Network, PerLink
from gossamer.report.network_picture import late_label, late_links, lay_out, network_title
from gossamer.report.read_runs import RunRecord
from gossamer.report.runs import tidy

MOST_LINKS = 3000  # more are unreadable and slow

Ages = list[list[float | int | None]]


def drawing_of(network: Network) -> dict[str, Any]:
    """Return agents, clusters and links, each link with its declared delay."""
    layout = lay_out(network)
    late, delays = late_links(network), _declared(network)
    pairs = network.links.triu().nonzero().tolist()
    return {
        "title": network_title(network),
        "late": late_label(network),
        "agents": [[tidy(x), tidy(y)] for x, y in layout.places.tolist()],
        "cluster_of": network.cluster_of.tolist() if layout.radii else [0] * network.num_agents,
        "clusters": [list(members) for members in network.clusters or ()],
        "circles": [
            [tidy(x), tidy(y), tidy(radius)]
            for (x, y), radius in zip(layout.centres.tolist(), layout.radii, strict=True)
        ],
        "links": [[i, k, int(late[i, k]), delays[i][k]] for i, k in pairs[:MOST_LINKS]],
        "num_links": len(pairs),
        "num_late": int(late.sum()) // 2,
    }


def _declared(network: Network) -> list[list[int]]:
    """Return the expected longest delay between any two agents, one way or the other."""
    delay = network.delay
    usual = torch.where(network.late_links, delay.typical, network.reliable_delay)
    one_way = delay.matrix if isinstance(delay, PerLink) else usual
    longest: list[list[int]] = torch.maximum(one_way, one_way.T).tolist()
    return longest


def drawings_of(runs: Sequence[RunRecord]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return each distinct network once, and the index of each run's network."""
    drawings: list[dict[str, Any]] = []
    numbers = []
    for run in runs:
        drawing = drawing_of(run.network)
        if drawing not in drawings:
            drawings.append(drawing)
        numbers.append(drawings.index(drawing))
    return drawings, numbers


def latest_ages(run: RunRecord) -> Ages | None:
    """Return the mean age of the messages that each agent (row) held of each other agent in the last interval."""
    held = [row["ages"] for row in run.rows if row.get("ages") is not None]
    return [[tidy(age) for age in ages] for ages in held[-1]] if held else None


def mean_ages(run: RunRecord) -> Ages | None:
    """Return the same over the whole run, each interval weighted by its iterations."""
    n = run.network.num_agents
    sums, weights = np.zeros((n, n)), np.zeros((n, n))
    before, found = 0, False
    for row in run.rows:
        length, before = row["step"] - before, row["step"]
        if row.get("ages") is None or not length:
            continue
        found, ages = True, np.array(row["ages"], dtype=np.float64)  # NaN without a message
        sums += length * np.nan_to_num(ages)
        weights += length * ~np.isnan(ages)
    if not found:
        return None
    with np.errstate(invalid="ignore"):
        return [[tidy(age) for age in ages] for ages in (sums / weights).tolist()]
