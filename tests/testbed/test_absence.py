"""Who goes down and comes back, and when."""

from itertools import islice, takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
from gossamer.network import network
from link_play import pair_links, refusal

SECOND = 10**9


def changes(schedule, agents=4, links=None, seed=0):
    bed = gm.testbed(agents=agents, schedule=schedule)
    return bed.schedule.changes(agents, pair_links(agents) if links is None else links, seed)


def as_rows(found):
    return [(each.time_ns / SECOND, each.what, each.number, each.up) for each in found]


def place(links, sender, receiver):
    pairs = list(zip(links.senders.tolist(), links.receivers.tolist(), strict=True))
    return pairs.index((sender, receiver))


def test_a_list_is_played_in_the_order_of_time():
    rows = [("2min", 1, True), (5, 3, 0), (5, 1, "down")]
    assert as_rows(changes(rows)) == [(5, "agent", 1, False), (5, "agent", 3, False), (120, "agent", 1, True)]


def test_a_link_goes_down_in_both_directions_unless_one_is_named(folder):
    (folder / "away.csv").write_text("time,agent,up\n1,0-2,0\n2,2>0,1\n3,3,0\n")
    links = network("ring:4").pattern
    with pytest.raises(gm.UserError, match="schedule names link 0-2, which the network does not have"):
        changes("list:away.csv", links=links)
    links = pair_links(4)
    there, back = place(links, 0, 2), place(links, 2, 0)
    expected = [*sorted([(1, "link", there, False), (1, "link", back, False)]), (2, "link", back, True)]
    assert as_rows(changes("list:away.csv")) == [*expected, (3, "agent", 3, False)]


def test_random_absences_alternate_with_exponential_times_of_their_means():
    until = list(takewhile(lambda each: each.time_ns < 20_000 * SECOND, changes("churn:30,10")))
    assert [each.time_ns for each in until] == sorted(each.time_ns for each in until)
    for agent in range(4):
        own = [each for each in until if each.number == agent]
        assert [each.up for each in own] == [number % 2 == 1 for number in range(len(own))]
        gaps = np.diff([0, *(each.time_ns for each in own)]) / SECOND
        up, down = gaps[0::2], gaps[1::2]
        assert up.mean() == pytest.approx(30, rel=0.2) and down.mean() == pytest.approx(10, rel=0.2)
        assert up.std() == pytest.approx(up.mean(), rel=0.25)  # as exponential times have it


def test_random_absences_of_links_take_both_directions():
    links = pair_links(4)
    found = list(islice(changes("link-churn:30,10"), 200))
    for one, other in zip(found[0::2], found[1::2], strict=True):
        assert (one.time_ns, one.up, one.what) == (other.time_ns, other.up, "link")
        assert links.reverse[one.number] == other.number


def test_random_absences_depend_on_the_seed_alone():
    assert list(islice(changes("churn:30,10"), 300)) == list(islice(changes("churn:30,10"), 300))
    assert list(islice(changes("churn:30,10"), 9)) != list(islice(changes("churn:30,10", seed=1), 9))


def test_schedules_are_merged_in_the_order_of_time(folder):
    (folder / "away.csv").write_text("time,agent,up\n5,3,0\n")
    found = list(islice(changes("churn:30,10+list:away.csv+link-churn:30,10"), 100))
    assert {each.what for each in found} == {"agent", "link"} and (5 * SECOND, 3) in {
        (e.time_ns, e.number) for e in found
    }
    assert [each.time_ns for each in found] == sorted(each.time_ns for each in found)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=20), st.integers(0, 1000))
def test_a_pool_keeps_as_many_agents_up_as_it_has_instances(sizes, seed):
    from gossamer.testbed.instance_pool import InstancePool

    pool = InstancePool(tuple(float(k) for k in range(len(sizes))), tuple(sizes))
    up, found = set(range(5)), list(pool.changes(5, pair_links(5), seed))
    for number, size in enumerate(sizes):
        for each in found:
            if each.time_ns == number * SECOND:
                assert (each.number in up) != each.up  # only who is down comes back
                up ^= {each.number}
        assert len(up) == min(size, 5)


def test_which_agents_leave_a_pool_is_drawn(folder):
    (folder / "pool.csv").write_text("time,size\n0,3\n")
    gone = {next(changes("pool:pool.csv", seed=seed)).number for seed in range(40)}
    assert gone == {0, 1, 2, 3}


def test_a_recorded_spot_pool_is_a_share_of_the_agents_and_may_be_faster():
    slow, fast = list(changes("spot:p2", agents=8)), list(changes("spot:p2*60", agents=8))
    assert [round(each.time_ns / 60) for each in slow] == pytest.approx([each.time_ns for each in fast], abs=1)
    first = [each for each in slow if each.time_ns == slow[0].time_ns]
    assert slow[0].time_ns == 158.4 * SECOND and len(first) == 4  # 8 of 16 instances left


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ([(1, 9, 0)], "schedule names agent 9; agents are numbered 0 to 3"),
        ([(1, "2-9", 0)], "schedule names agent 9"),
        ([(1, "two", 0)], "row 0 of the schedule names 'two'"),
        ([(1, 2, "maybe")], "write 1 for up or 0 for down"),
        ([(-1, 2, 0)], "a time of the schedule must lie in"),
        ([(1, 2)], "no list of (time, agent, up)"),
        (5, "no list of (time, agent, up)"),
        ("chrun:1,2", "did you mean 'churn'?"),
        ("churn:1", "write it like churn:600,60"),
        ("churn:0,1", "mean time up must lie in"),
        ("list:none.csv", "cannot read schedule 'none.csv'"),
        ("list:pool.csv", "its first line must be time,agent,up"),
        ("list:agents.csv", "schedule names agent 7"),
        ("pool:pool.csv", "times of a pool must not decrease"),
        ("spot:p3", "unknown spot pool 'p3'"),
        ("spot:p2*0", "speed of spot:p2 must lie in"),
    ],
)
def test_a_bad_schedule_is_refused_in_one_line(folder, schedule, says):
    (folder / "pool.csv").write_text("time,size\n5,3\n4,2\n")
    (folder / "agents.csv").write_text("time,agent,up\n5,7,0\n")
    assert says in refusal(agents=4, schedule=schedule)
