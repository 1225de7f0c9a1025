"""Messages that are seen later: by time, by iterations, at random; never an older one after a newer one."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.runtime.transport.base import KEPT
from gossamer.runtime.transport.faults import MOST_UNDER_WAY
from wires import MS, Agent


def test_a_message_is_seen_when_its_time_has_passed_since_it_was_taken():
    agent = Agent("delay:50ms")
    agent.send(0)
    assert [agent.shown_at(ms * MS) for ms in (0, 49, 50)] == [None, None, 0]
    agent.send(1)  # taken at 50 ms, but seen first at 90 ms
    assert [agent.shown_at(ms * MS) for ms in (90, 99, 100, 400)] == [0, 0, 1, 1]


def test_a_receiver_that_looks_seldom_sees_a_message_as_soon_as_one_that_looks_often():
    agent = Agent("delay:50ms")
    for sequence, ms in enumerate((0, 20, 40)):
        agent.now = agent.start + ms * MS
        agent.send(sequence)
    assert [agent.shown_at(ms * MS) for ms in (45, 75, 95)] == [None, 1, 2]  # message 1 arrived at 70 ms


@pytest.mark.parametrize(
    ("text", "arrived"),
    [("delay:50ms", 50), ("delay:50ms;delay:2", 75), ("delay:1ms;partition:0/1@0s..0.07s", 75), ("loss:0", 30)],
)
def test_a_message_is_said_to_have_arrived_when_it_could_be_seen_first(text, arrived):
    agent = Agent(text)
    agent.send(0)
    agent.wire.letters[0][0].arrived = agent.start + 30 * MS
    agent.shown_at(45 * MS)
    agent.faulty.tick(0)
    agent.now = agent.start + 75 * MS
    agent.faulty.tick(2)
    assert agent.faulty.latest(0).arrived == agent.start + arrived * MS


@pytest.mark.parametrize(("offset", "seen"), [(-7 * MS, 43), (30 * MS, 80)])
def test_times_are_told_from_the_sender_s_clock(offset, seen):
    agent = Agent("delay:50ms", offset=offset)
    agent.send(0)
    assert [agent.shown_at(at * MS) for at in (0, seen - 1, seen)] == [None, None, 0]


def test_while_clocks_cannot_be_compared_time_runs_from_the_first_look():
    agent = Agent("delay:50ms", offset=None)
    agent.wire.send(0, 0, now=0)  # of another clock
    assert [agent.shown_at(at * MS) for at in (20, 69, 70)] == [None, None, 0]


def test_a_delay_in_iterations_counts_those_of_the_receiver():
    agent = Agent("delay:3")
    assert agent.run(10) == [None, None, None, 0, 1, 2, 3, 4, 5, 6]
    for step in (10, 11, 12, 13):  # the sender is silent now
        agent.faulty.tick(step)
    assert agent.shows() == 9


def test_iterations_count_from_the_first_tick_at_which_a_message_was_there():
    agent = Agent("delay:3")
    agent.send(0)
    agent.shows()
    for step in range(1, 4):
        agent.send(step)
        agent.faulty.tick(step)
    assert agent.shows() == 0
    agent.faulty.tick(4)
    assert agent.shows() == 1  # there at tick 1, looked at only now


def test_a_message_that_was_written_over_below_is_shown_as_it_was():
    agent = Agent("delay:1")
    agent.send(0)
    agent.shows()
    agent.wire.letters[0][0].payload.fill_(77)
    agent.faulty.tick(1)
    letter = agent.faulty.latest(0)
    assert letter.payload.tolist() == [0] * 21 and letter.intact()
    assert letter.stamp == agent.wire.letters[0][0].stamp


def test_a_message_that_is_written_over_during_the_copy_is_dropped_and_counted():
    agent = Agent("delay:0")
    agent.send(1, torn=True)
    assert agent.shows() is None and agent.faulty.counts["torn"] == 1
    agent.wire.letters[0][-1] = replace(agent.wire.letters[0][-1], intact=lambda: True)
    assert agent.shows() == 1


def delays_of(agent, messages=300):
    """Each message's delay in milliseconds, as the first of many looks that sees it."""
    found = []
    for sequence in range(messages):
        agent.send(sequence)
        begin = agent.now
        while agent.shows() != sequence:
            agent.now += MS
        found.append((agent.now - begin) / MS)
    return found


def test_random_delays_fill_their_span_and_are_the_same_again():
    found = delays_of(Agent("delay:10ms..80ms"))
    assert min(found) >= 10 and max(found) <= 80 and min(found) < 12 and max(found) > 78
    assert abs(sum(found) / len(found) - 45) < 4
    assert found == delays_of(Agent("delay:10ms..80ms"))
    assert found != delays_of(Agent("delay:10ms..80ms", seed=1))


def test_random_delays_in_iterations_include_both_ends():
    agent, waits = Agent("delay:2..5"), []
    step = 0
    for sequence in range(200):
        agent.send(sequence)
        begin = step
        while agent.shows() != sequence:
            step += 1
            agent.faulty.tick(step)
        waits.append(step - begin)
    assert set(waits) == {2, 3, 4, 5}


@pytest.mark.parametrize(
    "text", ["delay:50ms;delay:2@0>1", "delay:2@0>1;delay:50ms;delay:10ms", "delay:10ms;delay:2@0>1;delay:50ms;delay:0"]
)
def test_a_message_waits_for_all_delays_of_its_link(text):
    agent = Agent(text)
    agent.send(0)
    agent.faulty.tick(0)
    agent.send(0, peer=2)
    assert agent.shown_at(50 * MS) is None and agent.shows(2) == 0
    agent.faulty.tick(2)
    assert agent.shows() == 0
    agent.send(1)
    agent.shows()
    agent.faulty.tick(9)
    assert agent.shown_at(99 * MS) == 0 and agent.shown_at(100 * MS) == 1


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    text=st.sampled_from(["delay:0ms..40ms", "delay:0..30", "delay:3..9;loss:0.3", "loss:0.5"]),
    gaps=st.lists(st.integers(0, 30), min_size=5, max_size=40),
)
def test_nothing_older_than_before_is_ever_shown(seed, text, gaps):
    agent, seen = Agent(text, seed=seed), []
    for step, gap in enumerate(gaps):
        # Started again half way: from then on its iterations count anew, and older messages may still be under way.
        again = step > len(gaps) // 2
        agent.send(step % (len(gaps) // 2 + 1), incarnation=2 if again else 1)
        agent.faulty.tick(step)
        agent.now += gap * MS
        letter = agent.faulty.latest(0)
        seen += [] if letter is None else [letter.stamp.order]
    assert all(before <= after for before, after in pairwise(seen))
    agent.now += 10**12
    agent.faulty.tick(10**6)
    if "loss" not in text:  # and nothing is stuck
        assert agent.faulty.latest(0).stamp.order == agent.wire.latest(0).stamp.order


def test_copies_are_bounded_and_a_long_delay_still_ends():
    agent, seen = Agent("delay:1s"), []
    for sequence in range(4000):  # a message a millisecond: a thousand are under way
        agent.send(sequence)
        seen.append(agent.shows())
        agent.now += MS
    link = agent.faulty._links[0]
    assert len(link.under_way) <= MOST_UNDER_WAY
    assert agent.faulty.counts["overflow"] >= 4000 - 1000 - MOST_UNDER_WAY
    later = [step - sequence for step, sequence in enumerate(seen) if step >= 1100]
    assert min(later) >= 1000 and max(later) <= 1000 + 3 * 1000 / MOST_UNDER_WAY


def test_what_was_overtaken_is_not_kept():
    agent = Agent("delay:0..60")
    agent.run(500)
    link = agent.faulty._links[0]
    assert link.under_way and all(held.order > link.visible[0].stamp.order for held in link.under_way)
    assert len(link.visible) == KEPT


def test_delays_that_fit_overflow_nothing():
    agent = Agent(f"delay:{MOST_UNDER_WAY - 1}")
    assert agent.run(300)[-1] == 300 - MOST_UNDER_WAY and not agent.faulty.counts["overflow"]
