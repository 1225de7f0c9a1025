"""Clusters discovered while agents train: from what they tell in the address book, and without going back and forth."""

import json
from types import SimpleNamespace

import pytest
import torch

from gossamer.network import NOTHING, discover, graph, network
from gossamer.runtime.book import cluster_discovery
from gossamer.runtime.book.cluster_discovery import ENOUGH, EVERY, ClusterObserver

PAIR = graph.adjacency(graph.path(2))
LATE = 6


def ages_of(current, steps=100, peers=1):
    """Ages that one agent tells, of which so many in a hundred are current."""
    fresh = round(steps * current / 100)
    return [[LATE] * peers] * (steps - fresh) + [[0] * peers] * fresh


def link(there, back):
    """The ages on one link, so many in a hundred current in each direction."""
    ages = torch.full((100, 2, 2), NOTHING, dtype=torch.int64)
    ages[:, 0, 1], ages[:, 1, 0] = torch.tensor(ages_of(there))[:, 0], torch.tensor(ages_of(back))[:, 0]
    return ages


RELIABLE, UNRELIABLE = discover(link(100, 100), PAIR), discover(link(0, 0), PAIR)


# A link changes sides only when it clearly has.


@pytest.mark.parametrize("share", [70, 80, 89, 90, 100])
def test_a_reliable_link_stays_so_down_to_the_lower_limit(share):
    assert discover(link(share, 100), PAIR, previous=RELIABLE).clusters == ((0, 1),)
    assert discover(link(100, share), PAIR, previous=RELIABLE).clusters == ((0, 1),)


@pytest.mark.parametrize("share", [0, 40, 69])
def test_a_reliable_link_leaves_below_the_lower_limit_in_either_direction(share):
    assert discover(link(share, 100), PAIR, previous=RELIABLE).clusters == ((0,), (1,))
    assert discover(link(100, share), PAIR, previous=RELIABLE).clusters == ((0,), (1,))


@pytest.mark.parametrize("previous", [UNRELIABLE, None])
@pytest.mark.parametrize(("share", "joins"), [(0, False), (69, False), (80, False), (89, False), (90, True)])
def test_another_link_becomes_reliable_only_at_the_upper_limit(share, joins, previous):
    clusters = ((0, 1),) if joins else ((0,), (1,))
    assert discover(link(share, 100), PAIR, previous=previous).clusters == clusters
    assert discover(link(100, share), PAIR, previous=previous).clusters == clusters


def test_a_link_between_the_limits_is_what_it_was_last_however_long_that_is_ago():
    found, seen = None, []
    for share in (80, 95, 80, 71, 89, 69, 71, 80, 89, 90, 70):
        found = discover(link(share, share), PAIR, previous=found)
        seen.append(bool(found.reliable[0, 1]))
    assert seen == [False, True, True, True, True, False, False, False, False, True, True]


def test_the_limits_can_be_chosen_and_the_lower_one_is_never_above_the_upper():
    assert discover(link(55, 55), PAIR, previous=RELIABLE, leave=0.5).clusters == ((0, 1),)
    assert discover(link(45, 45), PAIR, previous=RELIABLE, leave=0.5).clusters == ((0,), (1,))
    assert discover(link(60, 60), PAIR, previous=RELIABLE, share=0.6, leave=0.7).clusters == ((0, 1),)


def test_each_link_remembers_for_itself():
    """Of two links at 80 %, the one that was reliable stays, the other does not become so."""
    links = graph.adjacency(graph.path(3))

    def ages(first, second):
        made = torch.full((100, 3, 3), NOTHING, dtype=torch.int64)
        made[:, :2, :2], made[:, 1:, 1:] = link(first, first), link(second, second)
        return made

    before = discover(ages(100, 0), links)
    assert before.clusters == ((0, 1), (2,))
    after = discover(ages(80, 80), links, previous=before)
    assert after.clusters == ((0, 1), (2,)) and after.tau == LATE


# An observer of the address book.


class Shelf:
    """An address book in the hands of a test."""

    def __init__(self):
        self.entries = {}

    def tell(self, agent, ages):
        self.entries[f"ages/{agent}"] = {"step": len(ages), "ages": ages}

    def read(self, name):
        return self.entries.get(name)


@pytest.fixture
def clock(monkeypatch):
    """The observer's clock, which stands still unless a test turns it."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(cluster_discovery, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def all_told(net, age, steps=50):
    """A book in which every agent has told that messages on each of its links had this age: age(sender, receiver)."""
    book = Shelf()
    for agent in range(net.num_agents):
        row = [age(sender, agent) for sender in net.links[agent].nonzero()[:, 0].tolist()]
        book.tell(agent, [row] * steps)
    return book


def test_two_hosts_are_two_clusters_and_tau_is_the_age_between_them(tmp_path, clock):
    net = network("complete:4")
    book = all_told(net, lambda sender, receiver: 1 if sender // 2 == receiver // 2 else 9)
    found = ClusterObserver(net, tmp_path).look(book.read, 120)
    assert found == {"step": 120, "clusters": [[0, 1], [2, 3]], "tau": 9}
    assert [json.loads(line) for line in (tmp_path / "discovery.jsonl").read_text().splitlines()] == [found]


def test_an_age_of_one_is_current_and_of_two_is_late(clock):
    net = network("path:3")
    found = ClusterObserver(net, None).look(all_told(net, lambda *ends: 1 if 0 in ends else 2).read, 5)
    assert found == {"step": 5, "clusters": [[0, 1], [2]], "tau": 2}


def test_ages_belong_to_the_links_of_the_graph_in_their_order(clock):
    """On a ring the neighbours of agent 0 are 1 and 3, and each column of its ages is of one of them."""
    net = network("ring:4")
    found = ClusterObserver(net, None).look(
        all_told(net, lambda *ends: 0 if {*ends} in ({0, 3}, {1, 2}) else 4).read, 5
    )
    assert found["clusters"] == [[0, 3], [1, 2]]


def test_nothing_is_found_before_every_agent_has_told_enough(clock):
    net, observer = network("path:3"), ClusterObserver(network("path:3"), None)

    def looks(book):
        clock.now += EVERY
        return observer.look(book.read, 7)

    book = all_told(net, lambda *_: 0)
    del book.entries["ages/1"]
    assert looks(book) is None
    book.tell(1, [[0, 0]] * (ENOUGH - 1))
    assert looks(book) is None
    book.tell(1, [[0]] * ENOUGH)  # of an agent that has another network in mind
    assert looks(book) is None
    book.entries["ages/1"] = {"step": 3}
    assert looks(book) is None
    book.tell(1, [[0, 0]] * ENOUGH)
    assert looks(book) == {"step": 7, "clusters": [[0, 1, 2]], "tau": 0}


def test_only_iterations_of_which_all_have_told_count_and_the_last_of_them(clock):
    """Agent 0 was late long ago, when agent 1 had not told anything yet."""
    net, book = network("path:2"), Shelf()
    book.tell(0, ages_of(40, steps=50))
    book.tell(1, ages_of(100, steps=20))
    assert ClusterObserver(net, None).look(book.read, 5)["clusters"] == [[0, 1]]
    book.tell(1, ages_of(100, steps=50))
    assert ClusterObserver(net, None).look(book.read, 5)["clusters"] == [[0], [1]]


def test_a_neighbour_that_is_not_heard_any_more_leaves_its_cluster(clock):
    net = network("complete:3")
    observer = ClusterObserver(net, None)
    assert observer.look(all_told(net, lambda *_: 0).read, 5)["clusters"] == [[0, 1, 2]]
    book = all_told(net, lambda sender, _: NOTHING if sender == 2 else 0)
    book.tell(2, [[0, 0]] * 50)  # the last it told before it died
    clock.now += EVERY
    assert observer.look(book.read, 9)["clusters"] == [[0, 1], [2]]


def test_it_tells_only_what_is_new(tmp_path, clock):
    observer, book, told = ClusterObserver(network("path:2"), tmp_path), Shelf(), []
    for step, share in enumerate([95, 80, 71, 69, 80, 89, 90, 80]):
        book.tell(0, ages_of(share))
        book.tell(1, ages_of(100))
        clock.now += EVERY
        told.append(observer.look(book.read, step))
    expected = {
        0: {"step": 0, "clusters": [[0, 1]], "tau": 0},
        3: {"step": 3, "clusters": [[0], [1]], "tau": LATE},
        6: {"step": 6, "clusters": [[0, 1]], "tau": 0},
    }
    assert {step: found for step, found in enumerate(told) if found is not None} == expected
    written = [json.loads(line) for line in (tmp_path / "discovery.jsonl").read_text().splitlines()]
    assert written == list(expected.values())


def test_a_look_that_comes_too_soon_looks_at_nothing(clock):
    net, observer = network("path:2"), ClusterObserver(network("path:2"), None)
    assert observer.look(all_told(net, lambda *_: 0).read, 1)["clusters"] == [[0, 1]]
    apart = all_told(net, lambda *_: LATE)
    clock.now += 0.9 * EVERY
    assert observer.look(apart.read, 2) is None
    clock.now += 0.1 * EVERY + 1e-6
    assert observer.look(apart.read, 3) == {"step": 3, "clusters": [[0], [1]], "tau": LATE}
