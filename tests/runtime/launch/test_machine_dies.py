"""What happens when machines die, stall or are cut off: the others go on as if nothing had happened."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from flight import Flight, flight, gaps
from gossamer.runtime.launch.child_processes import find_processes

pytestmark = pytest.mark.alone  # gaps are measured, so nothing else may run beside it

WARM = 50  # steps before the first fault, in which the usual gaps are seen
POINT = 0.01


def assert_undisturbed(run: Flight, survivors: list[int], calm_until: float, fault: float, until: float) -> None:
    """Survivors' longest gap after a fault is no longer than twice their longest before the first fault.

    What the machine itself stood still meanwhile (others share it) is not the agents' and comes on top.
    """
    stall = run.stalls.longest(fault, until)
    for rank in survivors:
        times = run.times(rank)
        before, after = gaps(times, times[5], calm_until), gaps(times, fault, until)
        assert len(after) > 20, f"agent {rank} made {len(after)} steps"
        found = f"agent {rank}: {max(after):.3f} s after, {max(before):.3f} s before, the machine stood {stall:.3f} s"
        assert max(after) <= 2 * max(before) + stall, found


def shared_memory_of(run_id: str) -> list[Path]:
    return list(Path("/dev/shm").glob(f"*{run_id}*"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The accuracy of a run without faults."""
    with flight(tmp_path_factory.mktemp("undisturbed")) as run:
        run.end()
        return run.accuracy()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["shared", "sockets"])
def test_an_agent_stands_still_and_two_die_one_after_the_other(tmp_path, transport, undisturbed):
    """In one run, as starting four agents takes longer than most faults. With sockets the address book dies as well."""
    with flight(tmp_path, "--transport", transport, script=("--saver", "3")) as run:

        def goes_on(rank: int) -> None:
            step = run.step(rank)
            run.wait(lambda: run.step(rank) > step + 10, f"agent {rank} to go on")

        def dies_and_returns(rank: int) -> float:
            died = run.kill(rank)
            run.wait(lambda: len(run.starts(rank)) == 2, f"agent {rank} to return")
            run.wait(lambda: run.step(rank) > run.starts(rank)[-1]["at"] + 25, f"agent {rank} to go on")
            return died

        run.wait_for_step(WARM)
        stopped = run.kill(2, signal.SIGSTOP)
        time.sleep(5)
        run.kill(2, signal.SIGCONT)
        goes_on(2)
        book_died = time.monotonic()
        if transport == "sockets":
            os.kill(book_of(run), signal.SIGKILL)
            time.sleep(1)  # an agent that returns must find the others, and they it, in a book that was empty
        died = dies_and_returns(1)
        died_next = dies_and_returns(3)
        result = run.end()
        assert_undisturbed(run, [0, 1, 3], stopped, stopped, stopped + 5)
        assert_undisturbed(run, [0, 2], stopped, book_died, died_next)
        assert_undisturbed(run, [0, 2], stopped, died, run.watched_until)
        assert [agent["restarts"] for agent in result["agents"]] == [0, 1, 0, 1]
        # Without a checkpoint an agent goes on from a neighbour's newest state.
        neighbours, own = run.starts(1)[-1], run.starts(3)[-1]
        assert neighbours["from"] == "neighbour" and neighbours["at"] > WARM
        assert own["from"] == "checkpoint" and own["at"] % 20 == 0 and own["at"] >= WARM - 20
        assert run.accuracy() >= undisturbed - POINT
        assert not shared_memory_of(result["run"])


def book_of(run: Flight) -> int:
    """The process of a run's address book: the child of its fork server that is no agent."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    processes = set(find_processes(launcher=run.process.pid)) - {run.pid(rank) for rank in range(run.agents)}
    (server,) = {pid for pid in processes if parent(pid) == run.process.pid}
    (book,) = {pid for pid in processes if parent(pid) == server}
    return book


@pytest.mark.timeout(600)
def test_a_partition_heals(tmp_path, undisturbed):
    faults = f"partition:0,1/2,3@{WARM}..{WARM + 90}"
    watched = WARM + 150  # later steps are not paced, and then a glance of the scheduler elsewhere is many steps long
    with flight(tmp_path, "--faults", faults, "--record", str(tmp_path / "t.csv"), script=("--pace", "0.04")) as run:
        run.wait_for_step(watched)
        run.end()
        rows = [tuple(map(int, line.split(","))) for line in (tmp_path / "t.csv").read_text().splitlines()[1:]]
        rows = [row for row in rows if row[0] <= watched]
        across = {(sender, to): [] for sender in range(4) for to in range(4) if (sender < 2) != (to < 2)}
        for step, sender, to, age in rows:
            across.get((sender, to), []).append((step, age))
        for ages in across.values():
            apart = [age for step, age in ages if WARM + 40 <= step < WARM + 80]
            assert apart and min(apart) > 30  # up to the largest age, at which a neighbour counts as gone
            healed = [age for step, age in ages if step >= WARM + 80]  # a row is written where an age changes
            assert healed and min(healed) <= 5 and healed[-1] < 30
        for sender, to in ((0, 1), (1, 0), (2, 3), (3, 2)):
            changes = {row[0]: row[3] for row in rows if row[1:3] == (sender, to)}
            ages = [changes[max(at for at in changes if at <= step)] for step in range(max(10, min(changes)), watched)]
            assert sorted(ages)[len(ages) // 2] <= 2
        assert run.accuracy() >= undisturbed - POINT


@pytest.mark.timeout(600)
def test_twelve_random_kills_over_one_run(tmp_path, undisturbed):
    chance = random.Random(5)
    with flight(tmp_path, "--max-restarts", "12", script=("--pace", "0.1")) as run:
        run.wait_for_step(WARM)
        kills = [0] * run.agents
        while sum(kills) < 12:
            alive = [r for r in range(run.agents) if len(run.starts(r)) == kills[r] + 1 and run.times(r)]
            if len(alive) > 1:  # one must be left to remember what was learnt
                rank = chance.choice(alive)
                run.kill(rank)
                kills[rank] += 1
            time.sleep(chance.uniform(0.1, 1.2))
        run.wait(lambda: all(len(run.starts(r)) == kills[r] + 1 for r in range(run.agents)), "all to return")
        result = run.end()
        assert [agent["restarts"] for agent in result["agents"]] == kills
        assert run.accuracy() >= undisturbed - POINT
        assert not shared_memory_of(result["run"])
