"""Graphs of agents 0..n-1: common graphs, any networkx graph, or a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx

from gossamer.errors import UserError
from gossamer.network.links import Links
from gossamer.shapes import Bool, Tensor

Maker = Callable[[int], nx.Graph]


def _of_size(name: str, make: Maker, least: int = 1, remedy: str = "") -> Maker:
    """Return the function that makes a graph of n agents, or refuses too few."""

    def made(n: int) -> nx.Graph:
        _at_least(name, n, least, remedy)
        return make(n)

    return made


complete = _of_size("complete", nx.complete_graph)
ring = _of_size("ring", nx.cycle_graph, 3, "; use complete:2 or path:2 for fewer")
path = _of_size("path", nx.path_graph)
star = _of_size("star", lambda n: nx.star_graph(n - 1))
# Agent i is linked with i + 2^j and i - 2^j, modulo n, for every 2^j < n.
exponential = _of_size("exponential", lambda n: nx.circulant_graph(n, [2**j for j in range((n - 1).bit_length())]))


def torus(rows: int, columns: int) -> nx.Graph:
    """Link the agents of a grid with their four neighbours; rows and columns wrap around."""
    if min(rows, columns) < 2:
        raise UserError(f"a torus needs 2 rows and 2 columns or more, got {rows}x{columns}; use ring for one row")
    grid = nx.grid_2d_graph(rows, columns, periodic=True)
    return nx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


def random(n: int, p: float, seed: int = 0) -> nx.Graph:
    """Link each pair with probability p (Erdos-Renyi)."""
    _at_least("random", n, 1)
    if not 0.0 <= p <= 1.0:
        raise UserError(f"p of a random graph must lie between 0 and 1, got {p}; try p=0.3")
    return nx.gnp_random_graph(n, p, seed=seed)


def regular(n: int, k: int, seed: int = 0) -> nx.Graph:
    """Give each agent k random links."""
    _at_least("regular", n, 1)
    if not 0 <= k < n:
        raise UserError(f"{n} agents cannot have {k} links each; k must lie between 0 and {n - 1}")
    if k * n % 2:
        raise UserError(f"{n} agents cannot have {k} links each, as {k}*{n} is odd; make k or the agents even")
    return nx.random_regular_graph(k, n, seed=seed)


def from_networkx(graph: nx.Graph) -> nx.Graph:
    """Return the links of any undirected graph on agents 0..n-1.

    Nodes numbered 0..n-1 keep their numbers; other nodes are numbered in the graph's order.
    """
    if graph.is_directed():
        raise UserError("the graph is directed but links carry messages both ways; pass graph.to_undirected()")
    nodes = list(graph.nodes)
    _at_least("graph", len(nodes), 1)
    loops = list(nx.nodes_with_selfloops(graph))
    if loops:
        raise UserError(f"node {loops[0]} is linked with itself; remove the self-link")
    if set(nodes) == set(range(len(nodes))):
        nodes.sort()
    number = {node: index for index, node in enumerate(nodes)}
    result = nx.empty_graph(len(nodes))
    result.add_edges_from((number[i], number[k]) for i, k in graph.edges())
    return result


def links_of(graph: nx.Graph) -> Links:
    """Return both directions of the links of a graph on nodes 0..n-1."""
    return Links.from_pairs(len(graph), graph.edges())


def adjacency(graph: nx.Graph) -> Bool[Tensor, "n n"]:
    """Return the links of a graph on nodes 0..n-1 as a mask."""
    return links_of(graph).mask


def check_connected(links: Links) -> None:
    """Raise UserError if the graph is not connected."""
    parts = len(links.components().unique())
    if parts > 1:
        raise UserError(
            f"the network falls into {parts} parts but must be connected; "
            "add links; a random graph wants a larger p or k, or another seed"
        )


def _at_least(name: str, n: int, least: int, remedy: str = "") -> None:
    if n < least:
        raise UserError(f"{name} needs {least} agent{'s' if least > 1 else ''} or more, got {n}{remedy}")


def read(file: str | Path) -> nx.Graph:
    """Read a graph from .json, .graphml or .edgelist.

    The JSON object has "agents": n and "links": [[i, k], ...]. Its optional "clusters" and "delay" (text or matrix) go
    into `graph.graph`.
    """
    file = Path(file)
    readers = {".json": _read_json, ".graphml": _read_graphml, ".edgelist": _read_edgelist}
    if file.suffix not in readers:
        raise UserError(f"cannot read a network from '{file}'; its name must end in {', '.join(readers)}")
    if not file.is_file():
        raise UserError(f"network file '{file}' does not exist; check the path")
    return readers[file.suffix](file)


def _read_graphml(file: Path) -> nx.Graph:
    try:
        graph = nx.read_graphml(file)
    except (OSError, SyntaxError, nx.NetworkXError, KeyError, ValueError):  # XML's ParseError is a SyntaxError
        raise UserError(f"'{file}' is not a readable GraphML file; write it with networkx.write_graphml") from None
    return from_networkx(_with_whole_numbers(graph))


def _read_edgelist(file: Path) -> nx.Graph:
    try:
        graph = nx.read_edgelist(file, data=False)
    except (OSError, ValueError, TypeError):
        raise UserError(f"'{file}' is not a readable edge list; write one link 'i k' on each line") from None
    return from_networkx(_with_whole_numbers(graph))


def _with_whole_numbers(graph: nx.Graph) -> nx.Graph:
    """Sort nodes that are named by whole numbers: files list them in the order of the links."""
    if not all(str(node).isdecimal() for node in graph):
        return graph
    ordered = nx.empty_graph(sorted(int(node) for node in graph), create_using=type(graph))
    ordered.add_edges_from((int(i), int(k)) for i, k in graph.edges())
    return ordered


def _read_json(file: Path) -> nx.Graph:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # JSON and UTF-8 errors are ValueErrors
        raise UserError(f"'{file}' is not readable JSON ({error}); is it truncated?") from None
    if not isinstance(document, dict) or not {"agents", "links"} <= document.keys():
        raise UserError(f'\'{file}\' lacks a key; it must be {{"agents": n, "links": [[i, k], ...]}}')
    agents, links = document["agents"], document["links"]
    if not _is_whole(agents) or agents < 1:
        raise UserError(f"'{file}': \"agents\" must be a whole number of 1 or more, got {agents!r}")
    if not isinstance(links, list):
        raise UserError(f"'{file}': \"links\" must be a list of pairs [[i, k], ...], got {links!r:.60}")
    for link in links:
        _check_link(file, link, agents)
    graph = nx.empty_graph(agents)
    graph.add_edges_from(links)
    if document.get("clusters") is not None:
        graph.graph["clusters"] = _integer_rows(file, "clusters", document["clusters"])
    delay = document.get("delay")
    if delay is not None:  # a number or text such as uniform:5,60, or a matrix
        graph.graph["delay"] = _integer_rows(file, "delay", delay) if not isinstance(delay, int | str) else delay
    return graph


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_link(file: Path, link: object, agents: int) -> None:
    if not isinstance(link, list) or len(link) != 2 or not all(_is_whole(agent) for agent in link):
        raise UserError(f"'{file}': link {link!r:.60} must be a pair of agents [i, k]")
    if not all(0 <= agent < agents for agent in link):
        raise UserError(f"'{file}': link {link} is out of range; agents are numbered 0 to {agents - 1}")
    if link[0] == link[1]:
        raise UserError(f"'{file}': link {link} joins an agent with itself; remove it")


def _integer_rows(file: Path, key: str, rows: Any) -> list[list[int]]:
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(_is_whole(value) for value in row) for row in rows
    ):
        raise UserError(f"'{file}': \"{key}\" must be a list of lists of whole numbers, got {rows!r:.60}")
    return rows
