"""The ages that a testbed implies, against a link played message by message."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.network import network
from gossamer.testbed.implied_ages import SteadyLinks, clusters_of, implied_ages
from link_play import pair_links, played_ages

TICK = 1e-3  # seconds; times are whole ticks


def bed_of(period, own, busy, latency):
    """Agent 0 sends to agent 1 messages of 1 byte that keep the link busy for so many ticks."""
    return gm.testbed(
        agents=2,
        compute=[period * TICK, own * TICK],
        latency=latency * TICK,
        bandwidth=1 / (busy * TICK) if busy else np.inf,
    )


def link_from_0(values):
    (place,) = (k for k, sender in enumerate(pair_links().senders.tolist()) if sender == 0)
    return values[place]


ticks = st.integers(1, 12)


@settings(max_examples=150)
@given(period=ticks, own=ticks, busy=st.integers(0, 12), latency=st.integers(0, 30))
def test_a_link_that_keeps_up_has_the_played_range_of_ages(period, own, busy, latency):
    busy = min(busy, period)
    least, largest = SteadyLinks.of(bed_of(period, own, busy, latency), pair_links(), 1).ages()
    ages = played_ages(period, own, busy, latency)
    assert (link_from_0(least), link_from_0(largest)) == (min(ages), max(ages))


@settings(max_examples=150)
@given(period=ticks, busy=st.integers(1, 40), latency=st.integers(0, 30))
def test_at_equal_speeds_a_crowded_link_has_the_played_largest_age(period, busy, latency):
    ages = played_ages(period, period, busy, latency)
    assert link_from_0(implied_ages(bed_of(period, period, busy, latency), pair_links(), 1)) == max(ages)


@settings(max_examples=150)
@given(period=ticks, own=ticks, busy=st.integers(1, 40), latency=st.integers(0, 30))
def test_no_age_lies_outside_the_range(period, own, busy, latency):
    least, largest = SteadyLinks.of(bed_of(period, own, busy, latency), pair_links(), 1).ages()
    ages = played_ages(period, own, busy, latency)
    assert link_from_0(least) <= min(ages) and max(ages) <= link_from_0(largest)


@given(tau=st.integers(0, 60), step=st.sampled_from([0.2, 1.0, 1 / 3]))
def test_a_latency_of_whole_steps_is_that_age(tau, step):
    bed = gm.testbed(agents=3, step_seconds=step, latency=tau * round(step * 1e9) / 1e9)
    assert set(implied_ages(bed, pair_links(3), 1e9)) == {tau}


def test_an_uplink_is_shared_by_the_messages_of_a_sender():
    bed = gm.testbed(agents=3, uplink="1MB/s")
    # Two messages of 0.6 s each go up in 1.2 s: a cycle longer than an iteration of 1 s, so the link always sends.
    steady = SteadyLinks.of(bed, pair_links(3), 600_000)
    assert set(steady.busy) == {600_000_000} and set(steady.cycle) == {1_200_000_000}
    # The message waits up to 1 s, is under way for 0.6 s, and the next one comes 1.2 s after it: below 2.8 s.
    assert set(steady.ages()[1]) == {2}


def test_clusters_are_agents_with_current_links_in_both_directions():
    latency = np.full((4, 4), 5.0)
    latency[0, 1] = latency[1, 0] = latency[2, 3] = 0  # 3 -> 2 is late
    bed, links = gm.testbed(agents=4, latency=latency), pair_links(4)
    ages = implied_ages(bed, links, 1)
    assert clusters_of(links, ages, 0) == [[0, 1], [2], [3]]
    assert clusters_of(links, ages, 5) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("compute", "latency", "bandwidth", "seconds"),
    [
        ([1, 1], 0.5, np.inf, 1.5),  # compute, and wait for a message
        ([1, 3], 0.5, np.inf, 3.0),  # the slow agent waits for nobody: there and back is 1 + 3 + 2 * 0.5 in two rounds
        ([1, 3], 2.0, np.inf, 4.0),
        ([1, 1], 0.0, 0.25, 5.0),  # a message of 1 byte takes 4 s
        ([1, 1], 0.0, [[1, 0.1], [np.inf, 1]], 10.0),  # one way takes 10 s, there and back only 12 in two rounds
    ],
)
def test_a_synchronous_round_is_the_slowest_cycle(compute, latency, bandwidth, seconds):
    steady = SteadyLinks.of(
        gm.testbed(agents=2, compute=compute, latency=latency, bandwidth=bandwidth), pair_links(), 1
    )
    assert steady.round_seconds() == pytest.approx(seconds)


def test_a_round_on_a_ring_is_its_largest_cycle_mean():
    # 0 -> 1 -> 2 -> 0 is fast, the way back slow.
    latency = np.zeros((3, 3))
    latency[1, 0] = latency[2, 1] = latency[0, 2] = 4
    bed = gm.testbed(agents=3, latency=latency)
    assert SteadyLinks.of(bed, network("complete:3").pattern, 1).round_seconds() == pytest.approx(1 + 4)
    latency[0, 2] = 0  # now two slow links of three: more than one of two
    bed = gm.testbed(agents=3, latency=latency)
    assert SteadyLinks.of(bed, network("complete:3").pattern, 1).round_seconds() == pytest.approx(1 + 8 / 3)
