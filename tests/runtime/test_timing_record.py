"""The times that a run records: of iterations, without the waiting, and of messages, from the stamp to the arrival."""

import statistics
import time

import torch

import gossamer as gm
from fleet import in_threads
from gossamer.run.process_settings import LinkSettings
from gossamer.runtime.timing_record import TimingRecord, merge_timings

SLEEPS = (0.005, 0.05)


def recorded(folder, steps, **settings):
    """Let two agents sleep for so many steps; return the rows of what they recorded."""

    def work(agent):
        x = torch.nn.Parameter(torch.zeros(2))
        optimizer = gm.optim.Decentralized([x], lr=0.1, algorithm="d-asgd", agent=agent)
        for _ in range(steps):
            time.sleep(SLEEPS[agent.rank])
            x.grad = torch.zeros(2)
            optimizer.step()

    in_threads(gm.network("complete:2"), work, record=True, folder=str(folder), **settings)
    merge_timings(folder, 2, LinkSettings())
    lines = (folder / "timing.csv").read_text().splitlines()
    assert lines[0] == "from,to,number,seconds"
    rows = [line.split(",") for line in lines[1:]]
    return [(int(sender), int(receiver), int(number), float(seconds)) for sender, receiver, number, seconds in rows]


def test_the_time_of_an_iteration_is_without_the_waiting(tmp_path):
    rows = recorded(tmp_path, 8, lockstep=True)
    iterations = [[row[2:] for row in rows if row[0] == row[1] == agent] for agent in (0, 1)]
    assert [[number for number, _ in of_one] for of_one in iterations] == [list(range(1, 8))] * 2
    medians = [statistics.median(seconds for _, seconds in of_one) for of_one in iterations]
    assert SLEEPS[0] <= medians[0] < SLEEPS[1] <= medians[1]  # in lock step agent 0 waits for agent 1


def test_messages_are_recorded_with_the_time_from_the_stamp_to_the_arrival(tmp_path):
    rows = recorded(tmp_path, 30, faults="delay:30ms@0>1")
    late, quick = ([row[2:] for row in rows if row[:2] == link] for link in ((0, 1), (1, 0)))
    numbers = [number for number, _ in late]
    assert numbers == sorted(set(numbers)) and 0 <= numbers[0] < numbers[-1] < 30
    # Not when agent 1 looks, every 50 ms, but when the message was there.
    assert all(seconds >= 0.03 for _, seconds in late)
    assert statistics.median(seconds for _, seconds in late) < 0.045
    assert statistics.median(seconds for _, seconds in quick) < 0.005


def test_rows_that_a_killed_agent_has_cut_off_do_not_count(tmp_path):
    for rank in (0, 1):
        record = TimingRecord(tmp_path, rank)
        record.add(3, 10**9, {1 - rank: (2, 5_000)})
        record.close()
    with (tmp_path / "timing-0.csv").open("a") as file:
        file.write("0,0,4,1.5\n0,0,5,1.")
    merge_timings(tmp_path, 2, LinkSettings(tolerance=4))
    assert (tmp_path / "timing.csv").read_text().split() == [
        "from,to,number,seconds",
        *("0,0,3,1.000000", "1,0,2,0.000005", "0,0,4,1.5", "1,1,3,1.000000", "0,1,2,0.000005"),
    ]
    assert gm.testbed(f"run:{tmp_path}").tolerance == 4
