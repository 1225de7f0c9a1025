"""Testbeds by name: 'lan:8', 'aws:oregon*3,tokyo*2', 'planet:16'."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gossamer.errors import UserError, unknown_name
from gossamer.seeding import generator
from gossamer.testbed import measurements
from gossamer.testbed.place_table import Numbers, PlaceTable
from gossamer.testbed.recorded import read_recorded

TESTBEDS = {
    "lan": "agents in one place: 0.1 ms and 10 Gbit/s: lan:8",
    "wan": "agents apart, 50 ms and 100 Mbit/s or your numbers: wan:8,latency=30ms,bandwidth=1Gbit/s",
    "aws": "agents in 10 AWS regions, with measured delay and bandwidth: aws:oregon*3,virginia*3,tokyo*2",
    "clouds": "agents in 61 regions of AWS, Azure and Google, measured: clouds:aws:us-east-1*3,gcp:us-west1*3",
    "planet": "nodes all over the world, drawn from 227 with measured latency; 100 Mbit/s: planet:16",
    "phones": "phones, drawn from 19 with measured rates up and down; 50 ms: phones:16",
    "spot": "spot instances in one place that come and go as recorded: spot:16",
    "run": "agents of a run with --record, each with its iterations and messages as they were: run:FOLDER",
}

LAN_LATENCY = 1e-4  # 10-gigabit Ethernet within one data centre, assumed: no source measures it
LAN_RATE = 10e9 / 8
WAN_LATENCY = 0.05  # assumed: half the round trip of two continents
WAN_RATE = 100e6 / 8  # assumed: a good line of a home or an office
MOST_AGENTS = 1_000_000


@dataclass(frozen=True, eq=False)
class Machines:
    """What a name says of a testbed; settings may replace all but the number and the places."""

    agents: int
    latency: Numbers
    bandwidth: Numbers
    places: tuple[str, ...] | None = None
    uplink: tuple[float, ...] | None = None
    schedule: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # further ones, such as compute


def make_machines(kind: str, words: Sequence[str], seed: int) -> Machines:
    """Return the machines of a name and its arguments. The seed draws the nodes of `planet` and `phones`."""
    makers: dict[str, Callable[[], Machines]] = {
        "lan": lambda: _lan(_count(kind, words)),
        "wan": lambda: Machines(_count(kind, words), WAN_LATENCY, WAN_RATE),
        "aws": lambda: _regions(words, *measurements.aws_regions(), kind),
        "clouds": lambda: _regions([_without_zone(word) for word in words], *measurements.cloud_regions(), kind),
        "planet": lambda: _planet(_count(kind, words), seed),
        "phones": lambda: _phones(_count(kind, words), seed),
        "spot": lambda: _spot(_count(kind, words)),
        "run": lambda: _run(words),
    }
    if kind not in makers:
        raise unknown_name("testbed", kind, TESTBEDS)
    return makers[kind]()


def garbled(kind: str) -> UserError:
    """Return the error for arguments that fit no testbed of this name."""
    return UserError(f"cannot read testbed {kind}; write it like {TESTBEDS[kind].rpartition(': ')[2]}")


def _count(kind: str, words: Sequence[str]) -> int:
    if len(words) != 1 or not words[0].strip().isdecimal():
        raise garbled(kind)
    agents = int(words[0])
    if not 1 <= agents <= MOST_AGENTS:
        raise UserError(f"testbed {kind}:{agents} must have 1 to {MOST_AGENTS} agents; write it like {kind}:8")
    return agents


def _lan(agents: int) -> Machines:
    return Machines(agents, LAN_LATENCY, LAN_RATE, ("lan",) * agents)


def _spot(agents: int) -> Machines:
    return Machines(agents, LAN_LATENCY, LAN_RATE, ("spot",) * agents, schedule=measurements.spot_pool("p2"))


def _run(words: Sequence[str]) -> Machines:
    if not words:
        raise garbled("run")
    run = read_recorded(Path(",".join(words)))
    limits = dict(run.limits)
    return Machines(limits.pop("agents"), run.latency, math.inf, settings={**limits, "compute": run.compute})


def _regions(
    words: Sequence[str],
    names: tuple[str, ...],
    latency: npt.NDArray[np.float64],
    rate: npt.NDArray[np.float64],
    kind: str,
) -> Machines:
    """Read 'oregon*3'. Inside a region agents are on a LAN."""
    counts: list[tuple[int, int]] = []
    for word in words:
        name, star, count = word.strip().lower().partition("*")
        if name not in names:
            raise _unknown_region(kind, name, names)
        if star and not (count.isdecimal() and 1 <= int(count) <= MOST_AGENTS):
            raise UserError(f"region '{word}' needs a number of agents after the star; write it like {name}*3")
        counts.append((names.index(name), int(count) if star else 1))
    if not counts:
        raise garbled(kind)
    place_of = np.repeat([place for place, _ in counts], [count for _, count in counts])
    return Machines(
        len(place_of),
        PlaceTable(place_of, _within(latency, LAN_LATENCY)),
        PlaceTable(place_of, _within(rate, LAN_RATE)),
        tuple(names[place] for place in place_of.tolist()),
    )


def _planet(agents: int, seed: int) -> Machines:
    latency = measurements.planet_latency()
    place_of = _drawn("testbed-planet", agents, len(latency), seed)
    return Machines(
        agents,
        PlaceTable(place_of, _within(latency, LAN_LATENCY)),
        WAN_RATE,
        tuple(f"node{place}" for place in place_of.tolist()),
    )


def _phones(agents: int, seed: int) -> Machines:
    """A message goes at the sender's rate up or the receiver's down, whichever is less; all share the rate up."""
    up, down = measurements.phone_rates()
    place_of = _drawn("testbed-phones", agents, len(up), seed)
    return Machines(
        agents,
        WAN_LATENCY,
        PlaceTable(place_of, np.minimum(up[:, None], down[None, :])),
        tuple(f"user{place}" for place in place_of.tolist()),
        tuple(up[place_of].tolist()),
    )


def _drawn(purpose: str, agents: int, total: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a measured node for each agent; none twice before all are taken."""
    order = torch.randperm(total, generator=generator(seed, purpose)).numpy()
    return order[np.arange(agents) % total]


def _within(table: npt.NDArray[np.float64], value: float) -> npt.NDArray[np.float64]:
    found = table.copy()
    np.fill_diagonal(found, value)
    return found


def _without_zone(word: str) -> str:
    """Return a region of Google's without the letter of its zone, as in gcp:us-central1-a*3."""
    return re.sub(r"^(gcp:[a-z0-9-]+\d)-[a-f](?=\*|$)", r"\1", word.strip().lower())


def _unknown_region(kind: str, name: str, names: tuple[str, ...]) -> UserError:
    if len(names) <= 20:
        return unknown_name(f"region of {kind}", name, names)
    nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return UserError(f"unknown region of {kind} '{name}'; {hint}docs/testbeds.md lists all {len(names)}")
