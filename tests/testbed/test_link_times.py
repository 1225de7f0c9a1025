"""Latency, bandwidth, jitter and loss of links."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
from gossamer.network import network
from link_play import pair_links, refusal


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_matrices_are_from_and_to(agents, seed):
    draws = np.random.default_rng(seed)
    latency, bandwidth = draws.random((agents, agents)), draws.random((agents, agents)) + 0.1
    links = pair_links(agents)
    times = gm.testbed(agents=agents, latency=latency, bandwidth=bandwidth).links(links, 0)
    for link, (sender, receiver) in enumerate(zip(links.senders.tolist(), links.receivers.tolist(), strict=True)):
        assert times.latency(link, 3) == round(latency[sender, receiver] * 1e9)
        assert times.busy(link, sender, 1000) == pytest.approx(1e12 / bandwidth[sender, receiver], abs=1)


def test_units_are_those_of_links_and_messages():
    times = gm.testbed(agents=2, latency="50ms", bandwidth="100Mbit/s").links(pair_links(), 0)
    assert times.latency(0, 0) == 50_000_000
    assert times.busy(0, 0, 13_600_000) == 1_088_000_000  # 13.6 MB are 108.8 Mbit
    for text, rate in (("10MB/s", 1e7), ("1Gbit/s", 1.25e8), ("8kbps", 1e3), ("1KiB/s", 1024), ("3", 3.0)):
        assert gm.testbed(agents=2, bandwidth=text).links(pair_links(), 0).bandwidth[0] == rate


def test_a_number_per_sender_is_that_of_all_its_links():
    links = pair_links(3)
    times = gm.testbed(agents=3, latency=["1s", "2s", "3s"]).links(links, 0)
    assert times.base_latency.tolist() == [(sender + 1) * 10**9 for sender in links.senders.tolist()]


def test_a_matrix_may_be_a_file(folder):
    (folder / "latency.csv").write_text("0,50ms\n0.1,0\n")
    times = gm.testbed(agents=2, latency="matrix:latency.csv").links(pair_links(), 0)
    assert times.base_latency.tolist() == [100_000_000, 50_000_000]  # 1 -> 0, then 0 -> 1


def test_an_uplink_bounds_the_rate_of_its_sender():
    links = pair_links()
    times = gm.testbed(agents=2, bandwidth=100.0, uplink=[10.0, 1000.0]).links(links, 0)
    assert [times.busy(k, sender, 100) for k, sender in enumerate(links.senders.tolist())] == [10**9, 10**10]


@pytest.mark.parametrize(
    ("jitter", "median"), [("5ms", 5e-3 * np.log(2)), ("lognormal:5ms,0.5", 5e-3 * np.exp(-0.125))]
)
def test_jitter_adds_its_mean_to_the_latency_and_never_takes_away(jitter, median):
    times = gm.testbed(agents=2, latency=1.0, jitter=jitter).links(pair_links(), 0)
    extra = np.array([times.latency(0, number) - 10**9 for number in range(20_000)]) / 1e9
    assert extra.min() >= 0 and extra.mean() == pytest.approx(5e-3, rel=0.03)
    assert np.median(extra) == pytest.approx(median, rel=0.03)


def test_messages_are_lost_with_their_probability():
    links = pair_links()
    times = gm.testbed(agents=2, loss=[[0, 0.1], [0.4, 0]]).links(links, 0)
    for link, sender in enumerate(links.senders.tolist()):
        share = np.mean([times.lost(link, number) for number in range(20_000)])
        assert share == pytest.approx((0.1, 0.4)[sender], abs=0.01)
    assert not any(gm.testbed(agents=2).links(links, 0).lost(0, number) for number in range(100))


def test_draws_depend_on_seed_link_and_number_alone():
    def drawn(seed, numbers):
        times = gm.testbed(agents=3, jitter=1.0, loss=0.5).links(pair_links(3), seed)
        return {(k, n): (times.latency(k, n), times.lost(k, n)) for n in numbers for k in range(6)}

    there = drawn(1, range(150))
    assert there == drawn(1, reversed(range(150))) and there != drawn(2, range(150))
    assert len({there[k, 0] for k in range(6)}) == 6


def test_ten_thousand_agents_need_numbers_for_their_links_only():
    graph = network("regular:10000,k=4")
    bed = gm.testbed("planet:10000;jitter=5ms;loss=0.01")
    times = bed.links(graph.pattern, 0)
    assert times.base_latency.shape == (40_000,) and times.latency(39_999, 7) > times.base_latency[39_999] > 0
    assert bed.latency.table.shape == (227, 227)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"latency": [[0, 1, 2], [1, 0, 2]]}, "latency has shape (2, 3); give one number, or a matrix [2, 2]"),
        ({"latency": [[0, "1s"], [1]]}, "rows of latency differ in length"),
        ({"latency": -1}, "latency must lie in [0, 1e+09], got -1"),
        ({"latency": "5 furlongs"}, "unknown unit of a time 'furlongs'"),
        ({"latency": "soon"}, "latency must be a time, got 'soon'; write it like 50ms"),
        ({"latency": "matrix:none.csv"}, "cannot read latency 'none.csv'"),
        ({"bandwidth": [[0, 5], [-5, 0]]}, "bandwidth from agent 1 to 0 must be above 0, got -5"),
        ({"bandwidth": [[0, 5], [None, 0]]}, "bandwidth from agent 1 to 0 is missing"),
        ({"bandwidth": 0}, "bandwidth must be above 0, got 0"),
        ({"bandwidth": "100Mbits"}, "unknown unit of a rate 'Mbits'; did you mean 'Mbit/s'?"),
        ({"bandwidth": float("nan")}, "bandwidth is missing"),
        ({"uplink": [1, 2, 3]}, "uplink has 3 numbers for 2 agents"),
        ({"uplink": [1, 0]}, "uplink of agent 1 must be above 0, got 0"),
        ({"loss": 1}, "loss must lie in [0, 0.99], got 1"),
        ({"loss": "5%"}, "loss has no unit, got '5%'"),
        ({"jitter": "-5ms"}, "jitter must lie in"),
        ({"jitter": "gauss:1"}, "unknown jitter 'gauss'"),
        ({"jitter": "lognormal:5ms"}, "write it like exponential:5ms or lognormal:5ms,0.5"),
    ],
)
def test_bad_links_are_refused_in_one_line(folder, settings, says):
    assert says in refusal(agents=2, **settings)


def test_a_testbed_is_for_a_network_of_its_size():
    with pytest.raises(gm.UserError, match="testbed lan:8 has 8 agents, the network 3"):
        gm.testbed("lan:8").links(pair_links(3), 0)
