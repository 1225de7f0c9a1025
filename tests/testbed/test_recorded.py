"""A recorded run as a testbed: its iterations in order, its messages by their numbers."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
from gossamer.errors import UserError
from gossamer.testbed.recorded_latency import LinkRecord

MS = 1_000_000
ROWS = ["0,0,1,0.010", "0,0,2,0.030", "1,1,1,0.050", "1,0,4,0.004", "1,0,9,0.009", "0,1,3,0.020"]
LIMITS = {"agents": 2, "tolerance": 1, "max_age": 5, "deadline": 7.0}


def write(folder, rows=ROWS, limits=LIMITS):
    (folder / "timing.csv").write_text("\n".join(["from,to,number,seconds", *rows]) + "\n")
    (folder / "timing.json").write_text(json.dumps(limits))
    return f"run:{folder}"


@given(numbers=st.lists(st.integers(0, 60), min_size=1, unique=True), wanted=st.integers(-5, 70))
def test_a_message_takes_as_long_as_the_nearest_recorded_one(numbers, wanted):
    record = LinkRecord(sorted(numbers), [1000 + number for number in sorted(numbers)])
    nearest = min(numbers, key=lambda number: (abs(number - wanted), number))
    assert record.nearest(wanted) == 1000 + nearest


def test_iterations_come_in_order_and_again_and_messages_by_number(folder):
    bed = gm.testbed(write(folder))
    clock = bed.iterations(0)
    assert [clock.end(0, k, 5) - 5 for k in range(5)] == [10 * MS, 30 * MS, 10 * MS, 30 * MS, 10 * MS]
    assert [clock.end(1, k, 0) for k in range(2)] == [50 * MS, 50 * MS]
    links = gm.network("complete:2").pattern  # of receiver 0 first
    times = bed.links(links, 0)
    assert [times.latency(0, number) for number in (0, 4, 6, 7, 99)] == [4 * MS, 4 * MS, 4 * MS, 9 * MS, 9 * MS]
    assert times.latency(1, 0) == 20 * MS and times.base_latency.tolist() == [6_500_000, 20 * MS]
    assert not times.lost(0, 1) and times.busy(0, 1, 10**9) == 0
    assert (bed.agents, bed.tolerance, bed.max_age, bed.deadline) == (2, 1, 5, 7.0)


def test_a_replay_keeps_unequal_step_counts(folder):
    def gradient(x, agents, iterations):
        return x - agents[:, None]

    line = gm.timeline("d-asgd", "complete:2", gradient, torch.zeros(2), testbed=gm.testbed(write(folder)), seconds=0.2)
    assert line.times[0] == pytest.approx([0.01, 0.04, 0.05, 0.08, 0.09, 0.12, 0.13, 0.16, 0.17, 0.2])
    assert line.times[1] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    # At 50 ms agent 1 has heard of agent 0's end at 10 ms; at 100 ms of that at 80 ms, its newest.
    assert line.ages[1][:2].tolist() == [[0], [0]]
    # Agent 0 ends at 80 ms, and 54 ms is when it hears of the end at 50 ms: its end at 50 ms counts, so age 1.
    assert line.ages[0][:4].tolist() == [[-1], [-1], [-1], [1]]


def test_a_link_that_was_silent_is_as_late_as_the_others_and_settings_come_on_top(folder):
    limits, rows = {**LIMITS, "agents": 3}, [*ROWS, "2,2,1,0.010"]
    bed = gm.testbed(write(folder, rows, limits) + ",tolerance=3,loss=0.5,jitter=1ms")
    times = bed.links(gm.network("complete:3").pattern, 0)
    assert bed.tolerance == 3 and bed.max_age == 5
    assert times.base_latency[1] == 11 * MS  # from 2 to 0: the mean of 4, 9 and 20
    assert times.latency(0, 4) > 4 * MS  # from 1 to 0, with jitter
    assert {times.lost(0, number) for number in range(40)} == {True, False}


@pytest.mark.parametrize(
    ("rows", "limits", "message"),
    [
        ([*ROWS, "0,2,1,0.5"], LIMITS, "line 8 .* names agents 0 and 2; the run has agents 0 to 1"),
        ([*ROWS, "0,1,1,-2"], LIMITS, r"seconds in line 8 .* must lie in \[0, "),
        ([*ROWS, "0,1,1"], LIMITS, "line 8 has 3 of 4 values"),
        (ROWS[:2], LIMITS, "no times of agent 1"),
        (ROWS, {"agents": 2}, "is damaged; record the run again"),
    ],
)
def test_a_damaged_record_is_refused(folder, rows, limits, message):
    with pytest.raises(UserError, match=message):
        gm.testbed(write(folder, rows, limits))


def test_a_folder_without_a_record_is_refused(folder):
    with pytest.raises(UserError, match="holds no recorded times; give the folder of a run with --record"):
        gm.testbed("run:here")
    with pytest.raises(UserError, match="write it like run:FOLDER"):
        gm.testbed("run:")
