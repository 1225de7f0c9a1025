"""Networks from text: 'ring:8', 'random:20,p=0.3,seed=1', 'paper-1', 'file:net.json'."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import index
from typing import Any

import networkx as nx

from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.network import graph
from gossamer.network.delay import Delay
from gossamer.network.delay_spec import DELAYS, parse_delay
from gossamer.network.network import Clusters, Network

__all__ = ["DELAYS", "NETWORKS", "network", "parse_clusters", "parse_delay"]

NETWORKS = {
    "complete": "every pair of agents is linked: complete:8",
    "ring": "each agent is linked with the two next to it: ring:8",
    "path": "a ring without the link that closes it: path:5",
    "star": "agent 0 is linked with all others: star:6",
    "torus": "a grid whose rows and columns wrap around: torus:4x4",
    "exponential": "links at distance 1, 2, 4, 8, …: exponential:16",
    "random": "each pair is linked with probability p: random:20,p=0.3,seed=1",
    "regular": "k random links for each agent: regular:12,k=3",
    "clusters": "complete, with reliable clusters of these sizes: clusters:3,5",
    "paper-1": "the paper's 8 agents, clusters:3,5: paper-1",
    "paper-2": "the paper's 5 agents, clusters:3,2: paper-2",
    "paper-3": "the paper's 20 agents, clusters:6,6,6,2: paper-3",
    "file": "a .json, .graphml or .edgelist file: file:net.json",
}

_PAPER = {"paper-1": "3,5", "paper-2": "3,2", "paper-3": "6,6,6,2"}

_ONE_NUMBER: dict[str, Callable[[int], nx.Graph]] = {
    "complete": graph.complete,
    "ring": graph.ring,
    "path": graph.path,
    "star": graph.star,
    "exponential": graph.exponential,
}

# Sizes, or groups of agents: see parse_clusters.
ClusterSpec = str | Sequence[Any]


def network(
    spec: str | nx.Graph,
    delay: Any = None,
    *,
    clusters: ClusterSpec | None = None,
    loss: float | int = 0.0,
    mixing: str = "metropolis",
    lazy: bool = False,
    clip_weights: str = "rebuilt",
    reliable_delay: int = 0,
    startup: str = "wait",
) -> Network:
    """Make a network from a text of NETWORKS or a networkx graph.

    Args:
        spec: such as "ring:8", or any undirected networkx graph.
        delay: whatever `parse_delay` takes; None means the file's own delay matrix, or 0.
        clusters: sizes "3,5" of consecutive agents, or groups "0,1,2/3,4"; None means the spec's own.
        loss: the probability that a message is lost, for links outside the clusters.
        mixing: "metropolis" or "uniform" weights.
        lazy: use (I + W) / 2, which is always positive definite.
        clip_weights: of the clipping step, "rebuilt" on the current links or the row of W "renormalised".
        reliable_delay: the delay in steps inside clusters.
        startup: what an agent holds before a first message can arrive: "wait", "min" or "full".
    """
    made, own_clusters, own_delay = _from_text(spec) if isinstance(spec, str) else (graph.from_networkx(spec), None, 0)
    return Network(
        links=graph.adjacency(made),
        clusters=parse_clusters(own_clusters if clusters is None else clusters, len(made)),
        delay=parse_delay(own_delay if delay is None else delay),
        loss=float(loss),
        mixing=mixing,
        lazy=lazy,
        clip_weights=clip_weights,
        reliable_delay=reliable_delay,
        startup=startup,
        spec=spec if isinstance(spec, str) else "custom",
    )


def _from_text(spec: str) -> tuple[nx.Graph, ClusterSpec | None, Delay | int | str | list[list[int]]]:
    kind, _, rest = spec.strip().partition(":")
    if kind not in NETWORKS:
        raise unknown_name("network", kind, NETWORKS)
    if kind in _PAPER and rest:
        raise UserError(f"network '{spec}' takes no parameters; write {kind}")
    if kind in _PAPER or kind == "clusters":
        sizes = [_whole(spec, size) for size in _PAPER.get(kind, rest).split(",")]
        return graph.complete(sum(sizes)), sizes, 0
    if kind == "file":
        if not rest:
            raise _garbled(spec)
        made = graph.read(rest)
        return made, made.graph.get("clusters"), made.graph.get("delay", 0)
    return _plain_graph(kind, spec, rest), None, 0


def _plain_graph(kind: str, spec: str, rest: str) -> nx.Graph:
    if kind == "torus":
        rows, _, columns = rest.partition("x")
        return graph.torus(_whole(spec, rows), _whole(spec, columns))
    if kind == "random":
        agents, options = _options(spec, rest, required="p")
        return graph.random(agents, _number(spec, options["p"]), _whole(spec, options.get("seed", "0")))
    if kind == "regular":
        agents, options = _options(spec, rest, required="k")
        return graph.regular(agents, _whole(spec, options["k"]), _whole(spec, options.get("seed", "0")))
    return _ONE_NUMBER[kind](_whole(spec, rest))


def _options(spec: str, rest: str, required: str) -> tuple[int, dict[str, str]]:
    agents, *parts = rest.split(",")
    options = {name.strip(): value for name, _, value in (part.partition("=") for part in parts)}
    if required not in options or len(options) != len(parts) or not set(options) <= {required, "seed"}:
        raise _garbled(spec)
    return _whole(spec, agents), options


def _whole(spec: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _garbled(spec) from None


def _number(spec: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _garbled(spec) from None


def _garbled(spec: str) -> UserError:
    kind = spec.strip().partition(":")[0]
    example = NETWORKS[kind].rpartition(" ")[2]
    return UserError(f"cannot read network '{spec}'; write it like {example}")


def parse_clusters(value: ClusterSpec | None, num_agents: int) -> Clusters | None:
    """Read sizes ("3,5", [3, 5]: consecutive agents) or groups ("0,1/2,3", [[0, 1], [2, 3]]) of agents."""
    if value is None:
        return None
    parts: Any = _clusters_from_text(value) if isinstance(value, str) else value
    try:
        if all(hasattr(part, "__index__") and not hasattr(part, "__len__") for part in parts):
            return _consecutive([index(part) for part in parts], num_agents)
        return tuple(tuple(index(agent) for agent in part) for part in parts)
    except TypeError:
        raise UserError(
            f"clusters {value!r:.60} are neither sizes like [3, 5] nor groups like [[0, 1], [2, 3]]"
        ) from None


def _clusters_from_text(text: str) -> list[int] | list[list[int]]:
    groups = [
        [read_whole("each number in clusters", item) for item in group.split(",")]
        for group in text.removesuffix("/").split("/")
    ]
    return groups if "/" in text else groups[0]


def _consecutive(sizes: list[int], num_agents: int) -> Clusters:
    if not sizes or min(sizes) < 1:
        raise UserError(f"cluster sizes {sizes} must each be 1 or more; leave empty clusters out")
    if sum(sizes) != num_agents:
        raise UserError(
            f"cluster sizes {sizes} add up to {sum(sizes)} but the network has {num_agents} agents; "
            f"make them add up to {num_agents}"
        )
    ends = list(accumulate(sizes))
    return tuple(tuple(range(end - size, end)) for size, end in zip(sizes, ends, strict=True))
