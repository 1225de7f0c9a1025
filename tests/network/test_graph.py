import json

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import UserError
from gossamer.network import graph

# The first call pays for imports and run-time checks, so a deadline would be flaky.
steady = settings(deadline=None, max_examples=50)

SIZES = st.integers(3, 24)


def degrees(made: nx.Graph) -> list[int]:
    return [made.degree[node] for node in range(len(made))]


@steady
@given(SIZES)
def test_degrees_of_the_named_graphs(n):
    assert degrees(graph.complete(n)) == [n - 1] * n
    assert degrees(graph.ring(n)) == [2] * n
    assert degrees(graph.path(n)) == [1] + [2] * (n - 2) + [1]
    assert degrees(graph.star(n)) == [n - 1] + [1] * (n - 1)


@steady
@given(SIZES, st.sampled_from(["complete", "ring", "path", "star", "exponential"]))
def test_adjacency_is_a_symmetric_mask_without_self_links(n, name):
    links = graph.adjacency(getattr(graph, name)(n))
    assert links.dtype == torch.bool and links.shape == (n, n)
    assert torch.equal(links, links.T)
    assert not links.diagonal().any()


def test_a_single_agent_is_a_network():
    assert graph.adjacency(graph.complete(1)).tolist() == [[False]]


@steady
@given(st.integers(3, 6), st.integers(3, 6))
def test_a_torus_wraps_each_row_and_column_to_itself(rows, columns):
    links = graph.adjacency(graph.torus(rows, columns))
    for agent in range(rows * columns):
        row, column = divmod(agent, columns)
        expected = {
            row * columns + (column + 1) % columns,
            row * columns + (column - 1) % columns,
            (row + 1) % rows * columns + column,
            (row - 1) % rows * columns + column,
        }
        assert set(links[agent].nonzero().flatten().tolist()) == expected


@steady
@given(st.integers(1, 300))
def test_exponential_links_are_exactly_the_powers_of_two(n):
    made = graph.exponential(n)
    powers = [1 << j for j in range(12) if 1 << j < n]
    neighbours = {power % n for power in powers} | {-power % n for power in powers}
    assert all(set(made[i]) == {(i + k) % n for k in neighbours} for i in range(n))


def test_exponential_degree_of_a_power_of_two():
    # +-1, +-2, +-4 and 8 = -8 modulo 16
    assert degrees(graph.exponential(16)) == [7] * 16


@steady
@given(st.integers(0, 50))
def test_regular_and_random_are_functions_of_the_seed(seed):
    first, again = graph.regular(12, 3, seed), graph.regular(12, 3, seed)
    assert degrees(first) == [3] * 12
    assert set(first.edges) == set(again.edges)
    assert set(graph.random(9, 0.4, seed).edges) == set(graph.random(9, 0.4, seed).edges)
    assert graph.random(9, 1.0, seed).number_of_edges() == 36


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graph.complete(0), "complete needs 1 agent or more, got 0"),
        (lambda: graph.ring(2), "ring needs 3 agents or more, got 2; use complete:2 or path:2"),
        (lambda: graph.path(0), "path needs 1 agent or more, got 0"),
        (lambda: graph.star(-1), "star needs 1 agent or more, got -1"),
        (lambda: graph.exponential(0), "exponential needs 1 agent or more, got 0"),
        (lambda: graph.torus(1, 4), "2 rows and 2 columns or more, got 1x4; use ring"),
        (lambda: graph.random(0, 0.5), "random needs 1 agent or more, got 0"),
        (lambda: graph.random(5, 1.5), "must lie between 0 and 1, got 1.5; try p=0.3"),
        (lambda: graph.random(5, -0.1), "got -0.1"),
        (lambda: graph.regular(5, 3), r"5 agents cannot have 3 links each, as 3\*5 is odd; make k"),
        (lambda: graph.regular(4, 4), "k must lie between 0 and 3"),
        (lambda: graph.regular(4, -1), "k must lie between 0 and 3"),
        (lambda: graph.from_networkx(nx.DiGraph([(0, 1)])), r"directed .* pass graph.to_undirected\(\)"),
        (lambda: graph.from_networkx(nx.Graph([(0, 1), (1, 1)])), "node 1 is linked with itself; remove"),
        (lambda: graph.from_networkx(nx.Graph()), "graph needs 1 agent or more, got 0"),
    ],
)
def test_impossible_graphs_are_refused_with_value_and_remedy(make, words):
    with pytest.raises(UserError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_disconnected_graph_is_refused_with_the_number_of_parts():
    with pytest.raises(UserError, match=r"3 parts .*larger p or k.* another seed"):
        graph.check_connected(graph.links_of(nx.Graph([(0, 1), (2, 3), (4, 5)])))
    graph.check_connected(graph.links_of(graph.complete(1)))


def test_networkx_nodes_are_numbered_in_their_order():
    made = graph.from_networkx(nx.Graph([("c", "a"), ("a", "b")]))
    assert set(made.nodes) == {0, 1, 2}
    assert {frozenset(link) for link in made.edges} == {frozenset({0, 1}), frozenset({1, 2})}


def test_nodes_that_are_already_agent_numbers_keep_them():
    shuffled = nx.Graph([(3, 1), (1, 0), (0, 2)])
    assert graph.from_networkx(shuffled).has_edge(3, 1)
    assert not graph.from_networkx(shuffled).has_edge(0, 3)


def test_parallel_links_count_once():
    assert graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1)])).number_of_edges() == 1


@pytest.mark.parametrize("name", ["net.graphml", "net.edgelist"])
def test_networkx_files_keep_the_agent_numbers(tmp_path, name):
    original = nx.Graph([(10, 2), (2, 0), (0, 1), (1, 10)])
    original = nx.relabel_nodes(original, {10: 3})
    write = nx.write_graphml if name.endswith("graphml") else nx.write_edgelist
    write(original, tmp_path / name)
    made = graph.read(tmp_path / name)
    assert torch.equal(graph.adjacency(made), graph.adjacency(graph.from_networkx(original)))


def test_json_holds_links_clusters_and_delays(tmp_path):
    file = tmp_path / "net.json"
    delay = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
    file.write_text(json.dumps({"agents": 3, "links": [[0, 1], [2, 1]], "clusters": [[0, 1], [2]], "delay": delay}))
    made = graph.read(file)
    assert graph.adjacency(made).int().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert made.graph == {"clusters": [[0, 1], [2]], "delay": delay}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"agents": 3, "links": [[0, 1', "not readable JSON .* truncated"),
        ("", "not readable JSON"),
        ("[1, 2]", "lacks a key"),
        ('{"agents": 3}', 'lacks a key; it must be {"agents": n, "links"'),
        ('{"agents": "3", "links": []}', "whole number of 1 or more, got '3'"),
        ('{"agents": true, "links": []}', "got True"),
        ('{"agents": 0, "links": []}', "1 or more, got 0"),
        ('{"agents": 3, "links": 7}', "list of pairs .* got 7"),
        ('{"agents": 3, "links": [[0, 1, 2]]}', r"link \[0, 1, 2\] must be a pair"),
        ('{"agents": 3, "links": [[0, 1.5]]}', r"link \[0, 1.5\] must be a pair"),
        ('{"agents": 3, "links": [[0, 3]]}', r"link \[0, 3\] is out of range; agents are numbered 0 to 2"),
        ('{"agents": 3, "links": [[-1, 0]]}', r"link \[-1, 0\] is out of range"),
        ('{"agents": 3, "links": [[1, 1]]}', r"link \[1, 1\] joins an agent with itself; remove"),
        ('{"agents": 2, "links": [[0, 1]], "clusters": [0, 1]}', '"clusters" must be a list of lists'),
        ('{"agents": 2, "links": [[0, 1]], "delay": [[0, 1.5], [1, 0]]}', '"delay" must be a list of lists'),
    ],
)
def test_broken_json_is_refused_in_one_line(tmp_path, text, words):
    file = tmp_path / "net.json"
    file.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        graph.read(file)
    assert "\n" not in str(caught.value) and "net.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("net.json", None, "does not exist; check the path"),
        ("net.txt", b"0 1", r"must end in .json, .graphml, .edgelist"),
        ("net.json", b"\xff\xfe", "not readable JSON"),
        ("net.graphml", b"<graphml", "not a readable GraphML file; write it with"),
        ("net.edgelist", b"0\n1\n\xff", "not a readable edge list; write one link"),
        ("net.edgelist", b"", "graph needs 1 agent or more"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        graph.read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_directed_graphml_is_refused(tmp_path):
    nx.write_graphml(nx.DiGraph([(0, 1)]), tmp_path / "net.graphml")
    with pytest.raises(UserError, match="directed"):
        graph.read(tmp_path / "net.graphml")
