"""Graphs that change: which links are in use in a round."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
from changing_graphs import metropolis, pairs_of
from gossamer.network import Rounds, broadcast
from gossamer.network.listed_graphs import ListedGraphs

SCHEDULES = [
    *(("complete:6", name) for name in ("one-peer", "matching", "regular:1", "regular:3", "regular:5", "churn:3,2")),
    *(("random:9,p=0.5,seed=1", name) for name in ("matching", "churn:4,4", "link-churn:2,1", "matching+churn:6,1")),
]


def mixing_of(net, seed, t):
    return Rounds(net, seed).network(t).W.numpy()


@pytest.mark.parametrize(("graph", "schedule"), SCHEDULES)
@given(seed=st.integers(0, 50), t=st.integers(0, 40))
def test_the_links_of_a_round_go_both_ways_and_have_the_weights_of_its_graph(graph, schedule, seed, t):
    net = gm.network(graph, schedule=schedule)
    pairs = pairs_of(net, seed, t)
    assert pairs == {(k, i) for i, k in pairs}
    np.testing.assert_allclose(mixing_of(net, seed, t), metropolis(net.num_agents, pairs), atol=1e-15)


def test_weights_of_a_round_have_the_kind_of_the_network():
    net = gm.network(
        "path:5", schedule=schedule_of([(0, 0, 1), (0, 1, 2), (1, 2, 3), (1, 3, 4)]), mixing="uniform", lazy=True
    )
    w = mixing_of(net, 0, 0)
    third = 0.5 / 3  # the largest degree of the part {0, 1, 2} is 2
    expected = np.eye(5)
    for i, k in ((0, 1), (1, 2)):
        expected[[i, k], [k, i]] = third
        expected[[i, k], [i, k]] -= third
    np.testing.assert_allclose(w, expected, atol=1e-15)


def schedule_of(rows):
    return ListedGraphs(tuple(rows))


@given(n=st.integers(2, 12), seed=st.integers(0, 50), t=st.integers(0, 40), p=st.sampled_from([0.3, 1.0]))
def test_a_matching_gives_everyone_at_most_one_partner_and_cannot_grow(n, seed, t, p):
    try:
        net = gm.network(f"random:{n},p={p},seed={seed}", schedule="matching")
    except gm.UserError:  # not connected
        net = gm.network(f"path:{n}", schedule="matching")
    pairs = pairs_of(net, seed, t)
    met = Counter(i for i, _ in pairs)
    assert set(met.values()) <= {1}
    assert all(i in met or k in met for i, k in net.links.nonzero().tolist())
    assert p < 1 or len(met) == n - n % 2


def test_on_a_complete_graph_all_matchings_are_equally_likely():
    net = gm.network("complete:4", schedule="matching")
    rounds = Rounds(net, 0)
    partners = Counter(partner_of_0(rounds, t) for t in range(600))
    assert set(partners) == {1, 2, 3}
    assert all(abs(count - 200) < 4 * np.sqrt(600 * 2 / 9) for count in partners.values())


def partner_of_0(rounds, t):
    return int(rounds.network(t).pattern.part(rounds.used(t)).senders[0])


@given(n=st.integers(3, 10), degree=st.integers(1, 9), seed=st.integers(0, 50), t=st.integers(0, 40))
def test_a_regular_round_gives_every_agent_as_many_links(n, degree, seed, t):
    if degree >= n or n * degree % 2:
        with pytest.raises(gm.UserError, match=f"regular:{degree}"):
            gm.network(f"complete:{n}", schedule=f"regular:{degree}")
        return
    net = gm.network(f"complete:{n}", schedule=f"regular:{degree}")
    assert Counter(i for i, _ in pairs_of(net, seed, t)) == dict.fromkeys(range(n), degree)


def test_rounds_are_drawn_from_seed_and_round():
    for schedule in ("matching", "regular:3"):
        net = gm.network("complete:10", schedule=schedule)
        drawn = [frozenset(pairs_of(net, seed, t)) for seed in (0, 1) for t in range(5)]
        assert len(set(drawn)) == 10
        assert drawn == [frozenset(pairs_of(net, seed, t)) for seed in (0, 1) for t in range(5)]


@pytest.mark.parametrize("graph", ["complete", "exponential"])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_one_period_of_one_peer_rounds_gives_the_exact_mean(graph, m):
    net = gm.network(f"{graph}:{2**m}", schedule="one-peer")
    product = np.eye(2**m)
    for t in range(m, 2 * m):
        product = mixing_of(net, 0, t) @ product
    np.testing.assert_allclose(product, np.full_like(product, 1 / 2**m), atol=1e-15)


@given(n=st.integers(2, 13), t=st.integers(0, 20))
def test_one_peer_rounds_join_agents_at_one_distance(n, t):
    pairs = pairs_of(gm.network(f"complete:{n}", schedule="one-peer"), 0, t)
    way = 2 ** (t % int(np.ceil(np.log2(n))))
    if n & (n - 1) == 0:
        assert pairs == {(i, i ^ way) for i in range(n)}
    else:
        assert pairs == {(i, (i + turn) % n) for i in range(n) for turn in (way, -way)}


def test_a_list_of_links_begins_again_after_its_last_round(tmp_path):
    file = tmp_path / "links.csv"
    file.write_text("round,from,to\n0,0,1\n2,1,2\n2,2,3\n")
    net = gm.network("ring:4", schedule=f"edges:{file}")
    given_rounds = [{(0, 1), (1, 0)}, set(), {(1, 2), (2, 1), (2, 3), (3, 2)}]
    assert [pairs_of(net, 0, t) for t in range(7)] == [given_rounds[t % 3] for t in range(7)]


def test_an_agent_that_is_down_has_no_link_in_use(tmp_path):
    file = tmp_path / "away.csv"
    file.write_text("time,agent,up\n2,1,0\n4.5,1,1\n3,2-3,0\n")
    net = gm.network("ring:4", schedule=str(file))
    rounds = Rounds(net, 0)
    everything = {(i, (i + turn) % 4) for i in range(4) for turn in (1, -1)}
    without_1 = {pair for pair in everything if 1 not in pair}
    gone = {(2, 3), (3, 2)}
    expected = [everything, everything, without_1, without_1 - gone, without_1 - gone, everything - gone]
    for order in (range(6), reversed(range(6))):
        for t in order:
            assert pairs_of(net, 0, t) == expected[t]
            assert rounds.graph(t).up.tolist() == [True, not 2 <= t < 5, True, True]


def test_absences_of_long_ago_can_be_asked_for_again():
    graph = gm.network("complete:6", schedule="churn:1,1").schedule.begin(gm.network("complete:6").pattern, 0)
    first = [graph(t).up.tolist() for t in range(20)]
    graph(3000)
    assert [graph(t).up.tolist() for t in range(20)] == first and len({tuple(up) for up in first}) > 2


def test_joined_schedules_use_what_all_use():
    one, other = (gm.network("complete:6", schedule=s) for s in ("matching", "link-churn:3,3"))
    both = gm.network("complete:6", schedule="matching+link-churn:3,3")
    for t in range(20):
        assert pairs_of(both, 3, t) == pairs_of(one, 3, t) & pairs_of(other, 3, t)


def test_clusters_are_found_from_the_delays_alone():
    delay = [[0, 0, 5, 5], [0, 0, 5, 5], [5, 5, 0, 0], [5, 5, 0, 0]]
    assert broadcast(gm.network("complete:4", delay, schedule="matching"), 0).clusters == ((0, 1), (2, 3))


@pytest.mark.parametrize("name", ["one-peer", "matching", "regular:3", "churn:600,60", "one-peer+link-churn:9,3"])
def test_the_text_of_a_schedule_makes_it_again(name):
    net = gm.network("complete:8", schedule=name)
    assert net.schedule.spec() == name and gm.network("complete:8", schedule=net.schedule).schedule is net.schedule
    assert name in repr(net)


@pytest.mark.parametrize(
    ("graph", "schedule", "words"),
    [
        ("ring:8", "one-peer", "link 0-2, which the network does not have; use for example complete:8"),
        ("ring:8", "regular:2", "link 0-2, which"),
        ("complete:5", "regular:3", "3\\*5 is odd"),
        ("complete:5", "regular:5", "use 1 to 4"),
        ("complete:5", "regular:0", "use 1 to 4"),
        ("complete:5", "regular", "regular:4"),
        ("complete:5", "matching:2", "write it like matching"),
        ("complete:5", "one-pear", "did you mean 'one-peer'"),
        ("complete:5", "churn:5", "churn:600,60"),
        ("complete:5", "edges:none.csv", "cannot read schedule 'none.csv'"),
        ("complete:5", 3, "no text"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(graph, schedule, words):
    with pytest.raises(gm.UserError, match=words) as error:
        gm.network(graph, schedule=schedule)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("round,from\n0,1\n", "first line must be round,from,to"),
        ("round,from,to\n", "has no rows"),
        ("round,from,to\n0,1\n", "line 2 has 2 of 3 values"),
        ("round,from,to\n0,1,x\n", "to in line 2 .* must be a whole number, got 'x'"),
        ("round,from,to\n-1,1,2\n", "numbered from 0"),
        ("round,from,to\n0,1,7\n", "names agent 7; agents are numbered 0 to 3"),
        ("round,from,to\n0,0,2\n", "link 0-2, which the network does not have"),
        ("round,from,to\n0,0,1\n", "never joins 3 parts of the network"),
        ("time,agent,up\n1,9,0\n", "first line must be round,from,to"),
    ],
)
def test_a_bad_list_of_links_is_refused_in_one_line(tmp_path, lines, words):
    file = tmp_path / "links.csv"
    file.write_text(lines)
    with pytest.raises(gm.UserError, match=words) as error:
        gm.network("ring:4", schedule=f"edges:{file}")
    assert "\n" not in str(error.value)


def test_absences_of_what_is_not_there_are_refused(tmp_path):
    file = tmp_path / "away.csv"
    for who, words in ((7, "names agent 7"), ("0-2", "link 0-2, which the network does not have")):
        file.write_text(f"time,agent,up\n1,{who},0\n")
        with pytest.raises(gm.UserError, match=words):
            gm.network("ring:4", schedule=str(file))


def test_a_round_without_links_leaves_everyone_alone():
    net = gm.network("path:3", schedule=schedule_of([(0, 0, 1), (0, 1, 2), (2, 0, 1)]))
    assert torch.equal(Rounds(net, 0).network(1).W, torch.eye(3, dtype=torch.float64))
