import json
import math
import warnings

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dense_mixing as dense
from gossamer.errors import UserError
from gossamer.network import NETWORKS, Fixed, Network, PerLink, graph, network
from gossamer.network.spec import parse_clusters

steady = settings(deadline=None, max_examples=50)

EYE = torch.eye(8, dtype=torch.float64)


@pytest.mark.parametrize(
    ("spec", "agents", "links"),
    [
        ("complete:8", 8, 28),
        ("complete:1", 1, 0),
        ("ring:8", 8, 8),
        ("path:5", 5, 4),
        ("star:6", 6, 5),
        ("torus:4x4", 16, 32),
        ("torus:3x5", 15, 30),
        ("exponential:16", 16, 56),
        ("random:20,p=0.3,seed=1", 20, graph.random(20, 0.3, 1).number_of_edges()),
        ("random:20,p=0.3", 20, graph.random(20, 0.3, 0).number_of_edges()),
        ("regular:12,k=3", 12, 18),
        ("regular:12,k=3,seed=5", 12, 18),
        ("clusters:3,5", 8, 28),
        ("paper-1", 8, 28),
        ("paper-2", 5, 10),
        ("paper-3", 20, 190),
    ],
)
def test_every_text_makes_its_network(spec, agents, links):
    net = network(spec)
    assert (net.num_agents, net.num_links, net.spec) == (agents, links, spec)
    assert int(net.degree.sum()) == 2 * links
    assert net.delay == Fixed(0) and repr(net).startswith(f"Network({spec}: {agents} agents, {links} links")


@pytest.mark.parametrize("kind", sorted(set(NETWORKS) - {"file"}))
def test_the_example_in_each_help_line_works(kind):
    example = NETWORKS[kind].rpartition(" ")[2]
    assert example.startswith(kind)
    network(example)


@pytest.mark.parametrize(("name", "sizes"), [("paper-1", [3, 5]), ("paper-2", [3, 2]), ("paper-3", [6, 6, 6, 2])])
def test_the_papers_networks_are_clusters_of_consecutive_agents(name, sizes):
    net = network(name)
    assert [len(members) for members in net.clusters] == sizes
    assert [agent for members in net.clusters for agent in members] == list(range(sum(sizes)))
    assert net.clusters_given and net.clusters == network("clusters:" + ",".join(map(str, sizes))).clusters


@pytest.mark.parametrize(
    "clusters",
    [
        "2,3",
        [2, 3],
        (2, 3),
        np.array([2, 3]).tolist(),
        "0,1/2,3,4",
        [[0, 1], [2, 3, 4]],
        [range(2), range(2, 5)],
    ],
)
def test_clusters_are_sizes_or_groups(clusters):
    assert network("ring:5", clusters=clusters).clusters == ((0, 1), (2, 3, 4))


def test_groups_need_not_be_consecutive():
    net = network("complete:4", clusters="3,0/2,1")
    assert net.clusters == ((3, 0), (2, 1))
    assert net.cluster_of.tolist() == [0, 1, 1, 0]
    assert net.same_cluster.int().tolist() == [[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]


def test_given_clusters_override_those_of_the_text():
    assert network("paper-1", clusters="4,4").clusters == ((0, 1, 2, 3), (4, 5, 6, 7))
    with pytest.raises(UserError, match=r"\[4, 5\] add up to 9 but the network has 8 agents; make them add up to 8"):
        network("paper-1", clusters="4,5")


def test_a_networkx_graph_is_a_network():
    net = network(nx.petersen_graph(), 4)
    assert net.num_links == 15 and net.spec == "custom" and net.delay == Fixed(4) and net.clusters is None


# ---- matrices


def test_without_clusters_nothing_is_reliable():
    net = network("ring:8", 5)
    assert not net.same_cluster.any()
    assert net.cluster_of.tolist() == list(range(8))
    assert torch.equal(net.W_clip, EYE)
    torch.testing.assert_close(net.W_late, net.W - torch.diag(net.W.diagonal()))


def test_the_papers_matrices_by_hand():
    net = network("paper-1", 20, mixing="uniform")
    torch.testing.assert_close(net.W, torch.full((8, 8), 1 / 8, dtype=torch.float64))
    third, fifth = torch.full((3, 3), 1 / 3).double(), torch.full((5, 5), 1 / 5).double()
    torch.testing.assert_close(net.W_clip, torch.block_diag(third, fifth), rtol=0, atol=1e-7)
    # An agent of the cluster of 3 hears 5 late neighbours with weight 1/8 each.
    assert net.W_late.sum(dim=1).tolist() == pytest.approx([5 / 8] * 3 + [3 / 8] * 5)
    assert not net.W_late.diagonal().any()


@steady
@given(st.sampled_from(["metropolis", "uniform"]), st.booleans(), st.integers(0, 10**6))
def test_clipping_weights_follow_the_links_that_are_current_both_ways(mixing, lazy, seed):
    net = network("exponential:8", mixing=mixing, lazy=lazy)
    current = torch.rand(8, 8, generator=torch.Generator().manual_seed(seed)) < 0.6
    clip = net.clip_matrix(current)
    both = current & current.T & net.links
    torch.testing.assert_close(clip, dense.mixing(both, mixing, lazy))
    assert torch.equal((clip > 0) & ~EYE.bool(), both)
    torch.testing.assert_close(clip.sum(dim=0), torch.ones(8, dtype=torch.float64))


@steady
@given(st.integers(0, 10**6))
def test_renormalised_clipping_weights_follow_what_each_agent_hears(seed):
    net = network("exponential:8", clip_weights="renormalised")
    current = torch.rand(8, 8, generator=torch.Generator().manual_seed(seed)) < 0.6
    clip = net.clip_matrix(current)
    torch.testing.assert_close(clip, dense.renormalised(net.W, current & net.links))
    torch.testing.assert_close(clip.sum(dim=1), torch.ones(8, dtype=torch.float64))


def test_all_links_current_clip_with_the_whole_matrix():
    net = network("torus:3x3")
    assert torch.equal(net.clip_matrix(net.links), net.W)


def test_without_delay_is_what_a_synchronous_algorithm_sees():
    net = network("paper-1", "uniform:5,60", loss=0.2, reliable_delay=1, lazy=True).without_delay()
    assert (net.delay, net.loss, net.reliable_delay) == (Fixed(0), 0.0, 0)
    assert net.lazy and net.clusters == network("paper-1").clusters


def test_the_description_is_plain_json():
    told = json.loads(json.dumps(network("paper-1", 20, loss=0.1).describe()))
    assert list(told) == [
        "agents", "links", "clusters", "delay", "loss", "mixing", "lazy", "e2", "e2_clip", "spectral_gap",
        "unreliable_mass", "assumptions",
    ]  # fmt: skip
    assert (told["agents"], told["links"], told["delay"], told["loss"]) == (8, 28, 20, 0.1)
    assert told["clusters"] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert told["e2"] == 0.0 and told["e2_clip"] == 1.0 and told["spectral_gap"] == pytest.approx(1.0)
    assert told["unreliable_mass"] == pytest.approx([5 / 8] * 3 + [3 / 8] * 5)
    assert set(told["assumptions"]) == {"W", "W_clip", "W_late"}
    assert any("block diagonal" in words for words in told["assumptions"]["W_clip"]["words"])
    assert network("ring:4").describe()["clusters"] is None


def test_the_repr_is_one_line():
    net = network("paper-1", "uniform:5,60", loss=0.1, lazy=True)
    assert repr(net) == (
        "Network(paper-1: 8 agents, 28 links, clusters 3+5, delay uniform:5,60, loss 0.1, lazy metropolis)"
    )


# ---- files


def test_a_network_survives_its_file(tmp_path):
    delay = torch.arange(25).reshape(5, 5)
    net = network("ring:5", delay, clusters="2,3")
    file = tmp_path / "net.json"
    file.write_text(json.dumps(net.to_json()))
    again = network(f"file:{file}")
    assert torch.equal(again.links, net.links) and again.clusters == net.clusters
    assert isinstance(again.delay, PerLink) and torch.equal(again.delay.matrix, delay)


def test_arguments_come_before_the_file(tmp_path):
    file = tmp_path / "net.json"
    file.write_text(json.dumps(network("ring:5", torch.full((5, 5), 3), clusters="2,3").to_json()))
    assert network(f"file:{file}", 0).delay == Fixed(0)
    assert network(f"file:{file}", clusters="1,4").clusters == ((0,), (1, 2, 3, 4))
    for delay in ("7", "uniform:5,60", "gilbert:0.05,0.5,40"):
        file.write_text(json.dumps(network("ring:5", delay).to_json()))
        assert network(f"file:{file}").delay.spec() == delay and network(f"file:{file}").clusters is None


# ---- refusals


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rnig:8", "unknown network 'rnig'; did you mean 'ring'"),
        ("", "unknown network ''"),
        ("ring", "cannot read network 'ring'; write it like ring:8"),
        ("ring:eight", "cannot read network 'ring:eight'; write it like ring:8"),
        ("ring:8,3", "write it like ring:8"),
        ("ring:2", "ring needs 3 agents or more, got 2"),
        ("torus:4", "cannot read network 'torus:4'; write it like torus:4x4"),
        ("random:20", "write it like random:20,p=0.3,seed=1"),
        ("random:20,0.3", "write it like random:20,p=0.3,seed=1"),
        ("random:20,p=many", "write it like random:20,p=0.3,seed=1"),
        ("random:20,p=0.3,p=0.4", "write it like random:20"),
        ("random:20,p=0.3,sed=1", "write it like random:20"),
        ("random:20,p=0.01", r"falls into \d+ parts .*larger p"),
        ("regular:12", "write it like regular:12,k=3"),
        ("regular:6,k=1", "falls into 3 parts"),
        ("clusters:3,x", "write it like clusters:3,5"),
        ("clusters:", "write it like clusters:3,5"),
        ("clusters:0,5", r"cluster sizes \[0, 5\] must each be 1 or more"),
        ("paper-1:3", "takes no parameters; write paper-1"),
        ("paper-9", "unknown network 'paper-9'; did you mean 'paper-"),
        ("file:", "write it like file:net.json"),
        ("file:/no/such.json", "network file '/no/such.json' does not exist; check the path"),
    ],
)
def test_unreadable_texts_are_refused_with_an_example(spec, words):
    with pytest.raises(UserError, match=words) as caught:
        network(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clusters": "3,4"}, r"\[3, 4\] add up to 7 but the network has 8 agents; make them add up to 8"),
        ({"clusters": [9, -1]}, "must each be 1 or more"),
        ({"clusters": []}, "must each be 1 or more; leave empty clusters out"),
        ({"clusters": "3,five"}, "each number in clusters must be a whole number, got 'five'"),
        ({"clusters": [3, [4]]}, r"\[3, \[4\]\] are neither sizes like \[3, 5\] nor groups"),
        ({"clusters": [[0.5, 1]]}, "neither sizes like"),
        ({"clusters": [[0, 1, 2, 3], [4, 5, 6, 7], []]}, "hold an empty one; leave it out"),
        ({"clusters": [[0, 1, 2, 3], [4, 5, 6, 8]]}, "name agent 8; agents are numbered 0 to 7"),
        (
            {"clusters": [[0, 1, 2, 3], [3, 4, 5, 6, 7]]},
            "agent 3 is in more than one cluster; name it in exactly one",
        ),
        ({"clusters": "0,1,2,3/5,6,7"}, "agent 4 is in no cluster; name each of the 8 agents in one"),
        ({"loss": 1.0}, r"loss must lie in \[0, 0.99\], got 1.0; use 0"),
        ({"loss": -0.1}, "got -0.1"),
        ({"loss": math.nan}, "got nan"),
        ({"mixing": "unifrom"}, "unknown mixing 'unifrom'; did you mean 'uniform'"),
        (
            {"clip_weights": "renormalized"},
            "unknown clip_weights 'renormalized'; did you mean 'renormalised'",
        ),
        ({"startup": "wate"}, "unknown startup 'wate'; did you mean 'wait'"),
        ({"reliable_delay": -1}, "reliable_delay must be 0 steps or more, got -1; use 0"),
        ({"delay": "unifrom:1,2"}, "unknown delay 'unifrom'"),
        ({"delay": [[0, 1], [1, 0]]}, "network has 8 agents"),
    ],
)
def test_impossible_options_are_refused_with_value_and_remedy(options, words):
    with pytest.raises(UserError, match=words) as caught:
        network("ring:8", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([[0, 1], [0, 0]], r"link 0-1 goes one way only; .*set both \[0,1\] and \[1,0\]"),
        ([[0, 1], [1, 1]], "agent 1 is linked with itself; clear the diagonal"),
        ([[0, 0], [0, 0]], "falls into 2 parts"),
    ],
)
def test_links_must_be_symmetric_and_connected(links, words):
    with pytest.raises(UserError, match=words):
        Network(links=torch.tensor(links).bool(), clusters=None, delay=Fixed(0))


@steady
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_sizes_cut_the_agents_into_consecutive_clusters(sizes):
    clusters = parse_clusters(sizes, sum(sizes))
    assert [len(members) for members in clusters] == sizes
    assert [agent for members in clusters for agent in members] == list(range(sum(sizes)))
    assert clusters == parse_clusters(",".join(map(str, sizes)), sum(sizes))
    assert clusters == parse_clusters(clusters, sum(sizes))


def test_clusters_may_be_arrays_of_members():
    members = [np.array([0, 1, 2]), np.array([3, 4])]
    assert network("complete:5", clusters=members).clusters == ((0, 1, 2), (3, 4))


def test_a_matrix_makes_late_exactly_the_links_it_delays():
    net = network("path:3", [[0, 4, 9], [4, 0, 0], [9, 0, 0]])
    assert net.late_links.nonzero().tolist() == [[0, 1], [1, 0]]  # 0-2 is no link
    assert torch.equal(net.W_late > 0, net.late_links)


@pytest.mark.parametrize(
    ("graph", "clusters", "parted"),
    [("ring:6", "0,3/1,2/4,5", r"\[0, 3\] .* agents 0 and 3,"), ("star:5", "2,3", r"\[2, 3, 4\] .* agents 2 and 3,")],
)
def test_a_cluster_that_is_not_connected_inside_is_warned_of(graph, clusters, parted):
    with pytest.warns(UserWarning, match=f"cluster {parted} .*put them in clusters of their own") as told:
        network(graph, 3, clusters=clusters)
    assert len(told) == 1 and "\n" not in str(told[0].message)


@pytest.mark.parametrize(("graph", "clusters"), [("ring:6", "3,3"), ("paper-1", None), ("path:4", "0/1,2,3")])
def test_connected_clusters_are_not_warned_of(graph, clusters):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network(graph, 3, clusters=clusters)
