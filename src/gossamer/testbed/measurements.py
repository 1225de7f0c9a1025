"""The measurements that are shipped. The folder data/ has each with its licence and its origin, units included."""

import csv
import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.testbed.instance_pool import InstancePool

DATA = Path(__file__).with_name("data")
SPOTS = {"p2": 16, "g4dn": 12}  # how many instances each pool asked for
MOST_SPEED = 1e6

Table = npt.NDArray[np.float64]


@functools.cache
def aws_regions() -> tuple[tuple[str, ...], Table, Table]:
    """Return names, delays in seconds and bandwidths in bytes a second of 10 regions; both directions are equal."""
    rows = _rows("aws/regions.csv")
    names = tuple(dict.fromkeys(name for row in rows for name in (row["a"], row["b"])))
    delay, rate = _empty(len(names)), _empty(len(names))
    for row in rows:
        a, b = names.index(row["a"]), names.index(row["b"])
        delay[a, b] = delay[b, a] = float(row["delay_ms"]) / 1e3
        rate[a, b] = rate[b, a] = float(row["gbit_per_s"]) * 1e9 / 8
    return names, delay, rate


@functools.cache
def cloud_regions() -> tuple[tuple[str, ...], Table, Table]:
    """Return names, latencies (half the round trip) and bandwidths of 61 regions of three clouds, [from, to]."""
    rows = _rows("clouds/regions.csv")
    names = tuple(dict.fromkeys(row["from"] for row in rows))
    place = {name: number for number, name in enumerate(names)}
    latency, rate = _empty(len(names)), _empty(len(names))
    for row in rows:
        a, b = place[row["from"]], place[row["to"]]
        latency[a, b] = float(row["rtt_ms"]) / 2e3
        rate[a, b] = float(row["gbit_per_s"]) * 1e9 / 8
    return names, latency, rate


@functools.cache
def planet_latency() -> Table:
    """Return the one-way latencies of 227 nodes in seconds, [from, to].

    A missing one is that of the way back, or else the sender's median.
    """
    latency = np.loadtxt(DATA / "planet" / "latency_ms.csv", delimiter=",") / 1e3
    latency = np.where(np.isnan(latency), latency.T, latency)
    found: Table = np.where(np.isnan(latency), np.nanmedian(latency, axis=1, keepdims=True), latency)
    return found


@functools.cache
def phone_rates() -> tuple[Table, Table]:
    """Return the mean rates of 19 phone users in bytes a second, up and down."""
    rows = _rows("phones/users.csv")
    up, down = (np.array([1024 * float(row[f"{way}_kb_per_s"]) for row in rows]) for way in ("up", "down"))
    return up, down


def spot_pool(name: str, speed: float = 1.0) -> InstancePool:
    """Return a recorded pool, so many times as fast. All agents stand for the number of instances asked for."""
    if not 1 / MOST_SPEED <= speed <= MOST_SPEED:
        raise UserError(f"speed of spot:{name} must lie in [1e-06, 1e+06], got {speed:g}; try 60")
    rows = _rows(f"spot/{name}.csv")
    times = tuple(float(row["seconds"]) / speed for row in rows)
    return InstancePool(times, tuple(int(row["size"]) for row in rows), SPOTS[name])


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _empty(size: int) -> Table:
    return np.full((size, size), np.nan)
