"""Networks and delays from text: 'ring:8', 'paper-1', 'file:net.json'; '20', 'uniform:5,60', 'trace:FILE'."""

import warnings
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch

from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.network import graph
from gossamer.network.delay import Delay, Fixed, Geometric, Gilbert, PerLink, Uniform
from gossamer.network.graph_schedule_text import parse_graph_schedule
from gossamer.network.network import Clusters, Network
from gossamer.network.trace import Trace

DELAYS = {
    "fixed": "the same number of steps for every message: 20",
    "uniform": "a random whole number in this range, both ends included: uniform:5,60",
    "geometric": "a message arrives with this probability at each step: geometric:0.1",
    "gilbert": "links turn bad and good again at random; a bad link has this delay: gilbert:0.05,0.5,40",
    "trace": "replay of a CSV file with step,from,to,delay: trace:FILE",
    "matrix": "one delay per link, from a CSV or .npy file: matrix:FILE",
}

NETWORKS = {
    "complete": "every pair of agents is linked: complete:8",
    "ring": "each agent is linked with the two next to it: ring:8",
    "path": "a ring without its last link: path:5",
    "star": "agent 0 is linked with all others: star:6",
    "torus": "a grid whose rows and columns wrap around: torus:4x4",
    "exponential": "links at distance 1, 2, 4, 8, …: exponential:16",
    "random": "each pair is linked with probability p: random:20,p=0.3,seed=1",
    "regular": "k random links for each agent: regular:12,k=3",
    "clusters": "complete graph with reliable clusters of these sizes: clusters:3,5",
    "paper-1": "the paper's 8 agents, clusters:3,5: paper-1",
    "paper-2": "the paper's 5 agents, clusters:3,2: paper-2",
    "paper-3": "the paper's 20 agents, clusters:6,6,6,2: paper-3",
    "file": "a .json, .graphml or .edgelist file: file:net.json",
}

_PAPER = {"paper-1": "3,5", "paper-2": "3,2", "paper-3": "6,6,6,2"}

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
    schedule: Any = None,
) -> Network:
    """Make a network from a text as in NETWORKS, or from a networkx graph.

    Args:
        spec: a text such as "ring:8", or any undirected networkx graph.
        delay: a number of steps, a text such as "uniform:5,60", or a matrix; None means the file's own delay, or 0.
        clusters: sizes "3,5" of consecutive agents, or groups "0,1,2/3,4"; None means the spec's own.
        loss: the probability that a message is lost, for links outside the clusters.
        mixing: "metropolis" or "uniform" weights.
        lazy: use (I + W) / 2, which is always positive definite.
        clip_weights: weights of the clipping step: "rebuilt" on the current links, or the row of W "renormalised".
        reliable_delay: the delay in steps inside clusters.
        startup: what a late neighbour counts as until its first message arrives: "wait" (nothing), "min" (its message
            of step 0, at age t), "full" (its message of step 0, at the full delay).
        schedule: which links are in use in which round: a text as in GRAPH_SCHEDULES, or None for all, always.
    """
    made, own_clusters, own_delay = _from_text(spec) if isinstance(spec, str) else (graph.from_networkx(spec), None, 0)
    pattern: Any = graph.links_of(made)  # as lists, where Network also takes a mask
    result = Network(
        links=pattern,
        clusters=parse_clusters(own_clusters if clusters is None else clusters, len(made)),
        delay=parse_delay(own_delay if delay is None else delay),
        loss=float(loss),
        mixing=mixing,
        lazy=lazy,
        clip_weights=clip_weights,
        reliable_delay=reliable_delay,
        startup=startup,
        spec=spec if isinstance(spec, str) else "custom",
        schedule=parse_graph_schedule(schedule),
    )
    _warn_of_parted_clusters(result)
    return result


def _warn_of_parted_clusters(network: Network) -> None:
    """Warn of the first cluster whose members cannot all reach each other inside it."""
    if network.clusters is None:
        return
    part = network.pattern.part(network.inside).components().tolist()
    for members in network.clusters:
        apart = [agent for agent in members if part[agent] != part[members[0]]]
        if apart:
            warnings.warn(
                f"cluster {list(members)} is not connected: no links inside it join agents {members[0]} and {apart[0]}"
                ", so reliable mixing never reaches from one to the other; put them in clusters of their own",
                UserWarning,
                stacklevel=3,
            )
            return


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
    made: nx.Graph = getattr(graph, kind)(_whole(spec, rest))  # complete, ring, path, star, exponential
    return made


def _options(spec: str, rest: str, required: str) -> tuple[int, dict[str, str]]:
    agents, *parts = rest.split(",")
    options = {name.strip(): value for name, _, value in (part.partition("=") for part in parts)}
    if required not in options or len(options) != len(parts) or not set(options) <= {required, "seed"}:
        raise _garbled(spec)
    return _whole(spec, agents), options


def _whole(spec: str, text: str) -> int:
    return int(_number(spec, text, int))


def _number(spec: str, text: str, kind: type[int] | type[float] = float) -> float | int:
    try:
        return kind(text)
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


def parse_delay(value: Any) -> Delay:
    """Make a delay model from a text as in DELAYS, a number of steps, or a matrix [receiver, sender]."""
    if isinstance(value, Delay):
        return value
    if isinstance(value, str):
        return _delay_from_text(value.strip())
    if isinstance(value, bool | np.bool_):
        raise UserError(f"delay must be a number of steps, got {value}; write 0 or 1")
    if isinstance(value, int | float | np.number):
        if not float(value).is_integer():
            raise UserError(f"delay must be a whole number of steps, got {value}; try {_nearest(value)}")
        return Fixed(int(value))
    return PerLink(_matrix(value))


def _nearest(value: Any) -> int:
    number = float(value)
    return max(0, round(number)) if np.isfinite(number) else 0


def _delay_from_text(text: str) -> Delay:
    if text.lstrip("+-").isdecimal():
        return Fixed(read_whole("delay", text))
    kind, _, rest = text.partition(":")
    if kind not in DELAYS and kind[:1].isdecimal():
        raise UserError(f"delay must be a whole number of steps, got '{text}'; write it like 20")
    if kind not in DELAYS:
        raise unknown_name("delay", kind, DELAYS)
    if not rest:
        raise UserError(f"delay '{text}' lacks its parameters; write it like {_example(kind)}")
    if kind == "trace":
        return Trace(rest)
    if kind == "matrix":
        return PerLink(_read_matrix(Path(rest)), source=f"matrix:{rest}")
    return _from_numbers(kind, text, rest.split(","))


def _from_numbers(kind: str, text: str, parts: list[str]) -> Delay:
    def whole(index: int) -> int:
        return read_whole(f"number {index + 1} of delay '{text}'", parts[index])

    def real(index: int) -> float:
        return read_number(f"number {index + 1} of delay '{text}'", parts[index])

    match kind, len(parts):
        case "fixed", 1:
            return Fixed(whole(0))
        case "uniform", 2:
            return Uniform(whole(0), whole(1))
        case "geometric", 1:
            return Geometric(real(0))
        case "gilbert", 3:
            return Gilbert(real(0), real(1), whole(2))
        case "gilbert", 4:
            return Gilbert(real(0), real(1), whole(2), whole(3))
    raise UserError(f"delay '{text}' has {len(parts)} numbers; write it like {_example(kind)}")


def _example(kind: str) -> str:
    return DELAYS[kind].rpartition(" ")[2]


def _read_matrix(path: Path) -> torch.Tensor:
    try:
        if path.suffix == ".npy":
            return _matrix(np.load(path, allow_pickle=False))
        lines = path.read_text(encoding="utf-8").splitlines()
        return _matrix([[float(value) for value in line.split(",")] for line in lines if line.strip()])
    except OSError as error:
        raise UserError(f"cannot read delay matrix '{path}' ({error.strerror}); check the path") from None
    except UserError as error:
        raise UserError(f"'{path}': {error}") from None
    except ValueError:
        raise UserError(
            f"'{path}' is no delay matrix; write whole numbers with commas between them, a row for each agent"
        ) from None


def _matrix(value: Any) -> torch.Tensor:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(
            f"delay {value!r:.60} is no number of steps, text or square matrix; write it like 20 or uniform:5,60"
        ) from None
    if numbers.ndim != 2 or numbers.shape[0] != numbers.shape[1] or not numbers.size:
        raise UserError(f"delay matrix has shape {numbers.shape}; it must be square, a row for each agent")
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    if broken.any():
        raise UserError(f"delay matrix holds {numbers[broken][0]}; delays are whole numbers of steps, so round it")
    return torch.from_numpy(numbers.astype(np.int64))
