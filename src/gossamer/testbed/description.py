"""What a testbed means for messages of one size: transfer times, ages, clusters, the synchronous round."""

import math
from typing import Any

from gossamer.network import Links
from gossamer.testbed.implied_ages import SteadyLinks, clusters_of, first_clusters
from gossamer.testbed.testbed import Testbed
from gossamer.testbed.time_unit import SECOND


def describe_testbed(bed: Testbed, links: Links, message_bytes: float | int) -> dict[str, Any]:
    """Return it as plain values; times are seconds, and a bandwidth without limit is None."""
    steady = SteadyLinks.of(bed, links, message_bytes)
    least, largest = steady.ages()
    rate = bed.links(links, seed=0).bandwidth
    needed, groups = first_clusters(links, largest, bed.tolerance)
    columns = {
        "from": links.senders.tolist(),
        "to": links.receivers.tolist(),
        "latency_seconds": (steady.latency / SECOND).tolist(),
        "bandwidth": [None if math.isinf(each) else each for each in rate.tolist()],
        "transfer_seconds": (steady.transfer / SECOND).tolist(),
        "least_age": least.tolist(),
        "age": largest.tolist(),
    }
    return {
        "testbed": bed.spec,
        "agents": bed.agents,
        "places": None if bed.places is None else list(bed.places),
        "message_bytes": message_bytes,
        "iteration_seconds": (steady.iteration / SECOND).tolist(),
        "links": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "tolerance": bed.tolerance,
        "clusters": clusters_of(links, largest, bed.tolerance),
        "needed_tolerance": needed,
        "clusters_then": groups,
        "round_seconds": steady.round_seconds(),
    }


def rows_by_place(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each ordered pair of places, the slowest first; ranges of what differs inside.

    A pair whose two directions are equal has one row, and `both`. Agents without places have rows of their own, and one
    in all if every link is alike.
    """
    places, links = document["places"], document["links"]
    alike = len({tuple(link.values())[2:] for link in links}) == 1
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for link in links:
        pair = (link["from"], link["to"])
        ends = ("any", "any") if places is None and alike else tuple(str(places[k] if places else k) for k in pair)
        groups.setdefault((ends[0], ends[1]), []).append(link)
    ranges = {ends: {"links": len(held), **_ranges(held)} for ends, held in groups.items()}
    rows = []
    for (first, second), row in ranges.items():
        both = first < second and ranges.get((second, first)) == row
        if first <= second or ranges.get((second, first)) != row:
            rows.append({"from": first, "to": second, **row, "links": row["links"] * (1 + both), "both": both})
    return sorted(rows, key=lambda row: (-row["transfer_seconds"][1], row["from"], row["to"]))


def _ranges(links: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least and the largest of each quantity."""
    rates = [math.inf if link["bandwidth"] is None else link["bandwidth"] for link in links]
    found: dict[str, Any] = {"bandwidth": (min(rates), max(rates))}
    for name in ("latency_seconds", "transfer_seconds"):
        found[name] = (min(link[name] for link in links), max(link[name] for link in links))
    found["age"] = (min(link["least_age"] for link in links), max(link["age"] for link in links))
    return found
