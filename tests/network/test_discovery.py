import pytest
import torch
from beartype.roar import BeartypeException

from gossamer.errors import UserError
from gossamer.network import NOTHING, Arrivals, broadcast, discover, graph, network

PATH = graph.adjacency(graph.path(3))


def observed(steps: int = 10) -> torch.Tensor:
    """Ages on a path of three agents where every link is current."""
    return torch.where(PATH, 0, NOTHING).repeat(steps, 1, 1)


def test_a_broadcast_finds_the_papers_clusters_and_delay():
    found = broadcast(network("paper-1", 20), seed=0)
    assert found.clusters == ((0, 1, 2), (3, 4, 5, 6, 7))
    assert found.tau == 20
    net = network("paper-1")
    assert torch.equal(found.reliable, net.links & net.same_cluster)


def test_a_broadcast_finds_no_cluster_where_every_link_is_late():
    found = broadcast(network("ring:5", 6), seed=0)
    assert found.clusters == ((0,), (1,), (2,), (3,), (4,))
    assert found.tau == 6 and not found.reliable.any()


def test_a_network_without_delay_is_one_cluster():
    found = broadcast(network("ring:5"), seed=0)
    assert found.clusters == ((0, 1, 2, 3, 4),) and found.tau == 0


def test_the_delay_inside_clusters_is_tolerated():
    found = broadcast(network("paper-2", 9, reliable_delay=2), seed=0)
    assert found.clusters == ((0, 1, 2), (3, 4)) and found.tau == 9


def test_rare_losses_leave_the_clusters_standing():
    assert broadcast(network("paper-1", 20, loss=0.3), seed=1).clusters == ((0, 1, 2), (3, 4, 5, 6, 7))
    # Without clusters every link may lose: at 2 % the links stay reliable, at 40 % none does.
    assert len(broadcast(network("ring:6", loss=0.02), seed=1, steps=400).clusters) == 1
    assert len(broadcast(network("ring:6", loss=0.4), seed=1).clusters) == 6


def test_an_unordered_matrix_of_delays_is_seen_through():
    delay = torch.full((4, 4), 5)
    for i, k in ((0, 2), (1, 3)):
        delay[i, k] = delay[k, i] = 0
    found = broadcast(network("complete:4", delay), seed=0)
    assert found.clusters == ((0, 2), (1, 3)) and found.tau == 5


def test_a_link_that_is_late_one_way_is_not_reliable():
    ages = observed()
    ages[:, 0, 1] = 7
    found = discover(ages, PATH)
    assert found.clusters == ((0,), (1, 2))
    assert not found.reliable[0, 1] and not found.reliable[1, 0]
    assert found.tau == 7


@pytest.mark.parametrize(("late", "reliable"), [(1, True), (2, False)])
def test_the_share_of_current_observations_decides(late, reliable):
    ages = observed(steps=10)
    ages[:late, 0, 1] = 4
    assert bool(discover(ages, PATH).reliable[0, 1]) is reliable
    assert discover(ages, PATH, share=0.5).reliable[0, 1]


def test_tolerance_counts_small_ages_as_current():
    ages = observed()
    ages[:, 0, 1] = 2
    assert discover(ages, PATH, tolerance=1).clusters == ((0,), (1, 2))
    assert discover(ages, PATH, tolerance=2).clusters == ((0, 1, 2),)


def test_no_message_is_neither_current_nor_an_age():
    ages = observed()
    ages[:, 0, 1] = NOTHING
    found = discover(ages, PATH)
    assert found.clusters == ((0,), (1, 2)) and found.tau == 0
    ages[:3, 0, 1] = torch.tensor([3, 4, 11])
    assert discover(ages, PATH).tau == 4


def test_clusters_are_chains_of_reliable_links():
    """0-1 and 1-2 are reliable, 0-2 is not: one cluster of three, and the mask still knows the late link."""
    links = graph.adjacency(graph.complete(3))
    ages = torch.where(links, 0, NOTHING).repeat(5, 1, 1)
    ages[:, 0, 2] = ages[:, 2, 0] = 8
    found = discover(ages, links)
    assert found.clusters == ((0, 1, 2),) and found.tau == 8
    assert not found.reliable[0, 2]


def test_a_single_agent_is_its_own_cluster():
    assert broadcast(network("complete:1", 3), seed=0).clusters == ((0,),)


@pytest.mark.parametrize("shape", [(5, 4, 4), (0, 3, 3)])
def test_ages_that_do_not_fit_the_links_are_refused(shape):
    # The annotation refuses some of these before the code does, but only where it is checked.
    ages = torch.zeros(shape, dtype=torch.int64)
    with pytest.raises((UserError, BeartypeException)) as caught:
        discover(ages, PATH)
    if isinstance(caught.value, UserError):
        assert str(tuple(shape)) in str(caught.value) and "1 or more steps" in str(caught.value)


def test_a_broadcast_that_is_too_short_is_refused():
    with pytest.raises(UserError, match="broadcast of 20 steps sees no settled ages; give more than 20"):
        broadcast(network("paper-1", 20), seed=0, steps=20)


def test_a_broadcast_draws_apart_from_training():
    net = network("ring:4", "uniform:0,9")
    training, test = Arrivals(net, 3), Arrivals(net, 3, purpose="broadcast")
    assert not all(torch.equal(training.advance(step), test.advance(step)) for step in range(10))


@pytest.mark.parametrize("spec", ["paper-1", "ring:8"])
def test_discovered_clusters_change_no_arrival(spec):
    net = network(spec, "gilbert:0.01,0.9,5")
    found = broadcast(net, seed=0)
    known = net.with_clusters(found.clusters)
    assert known.clusters == found.clusters and not known.clusters_given
    before, after = Arrivals(net, 7), Arrivals(known, 7)
    assert all(torch.equal(before.advance(step), after.advance(step)) for step in range(60))


def test_tau_is_how_late_a_link_is_when_it_is_late():
    ages = torch.zeros(100, 2, 2, dtype=torch.int64)
    ages[:40, 0, 1] = ages[:40, 1, 0] = 9
    found = discover(ages, ~torch.eye(2, dtype=torch.bool))
    assert (found.clusters, found.tau) == (((0,), (1,)), 9)
