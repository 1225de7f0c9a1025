"""The benchmark of agents as processes: it compares like with like, and leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest
import torch

from fleet import fresh_run_id
from gossamer.bench import CASES, choose_cases, make_request, runtime_cases
from gossamer.bench.cases import Request
from gossamer.bench.results import to_facts, to_text_table
from gossamer.bench.runtime_cases import MIXING, SHARED, SOCKETS, Message, to_rows, without_one
from gossamer.bench.runtime_fleet import Fleet
from gossamer.bench.runtime_worker import Gossip, Mixing, measure, private_memory
from gossamer.errors import UserError
from gossamer.runtime.transport.shared_memory import remove_leftovers
from launching import alive

PLAN = make_request("cpu", None, None, quick=True)


@pytest.fixture
def fleets(monkeypatch):
    """Every fleet that is started, with the processes and the folder that it has then."""
    started = []
    enter = Fleet.__enter__

    def noting(self):
        enter(self)
        started.append((self.pids, self.folder))
        return self

    monkeypatch.setattr(Fleet, "__enter__", noting)
    return started


def assert_nothing_is_left(fleets):
    assert fleets
    for pids, folder in fleets:
        assert len(pids) == 4 and not any(map(alive, pids))
        assert not folder.exists()
    assert not list(Path("/dev/shm").glob(f"gossamer-bench-{os.getpid()}-*"))


def answer(*milliseconds, cpu=0.001, age=None, sent=0.0, memory=()):
    seconds = [value / 1000 for value in milliseconds]
    return {"seconds": seconds, "cpu": cpu, "age": age, "sent": sent, "memory": list(memory)}


# The whole case.


def test_a_quick_look_has_all_figures_and_leaves_nothing(command, fleets):
    outcome = command("bench", "runtime", "--device", "cpu", "--quick", "--out", "b", "--json")
    assert outcome.status == 0, outcome.err
    (record,) = outcome.document["cases"]
    mixing, *others = record["rows"]
    assert mixing["label"] == f"0.04 MB, {MIXING}" and mixing["sent"] is None and mixing["age"] is None
    assert [row["label"] for row in others] == [f"0.04 MB, {way}" for way in (SHARED, SOCKETS, "sockets, encrypted")]
    for row in others:
        assert set(row) == {"label", "ms", "low", "high", "cpu", "age", "sent", "extra", "times_mixing"}
        assert row["low"] <= row["ms"] <= row["high"] and row["cpu"] > 0 and row["sent"] == 3 * 40_000
        assert row["extra"] == pytest.approx(row["ms"] - mixing["ms"])
        assert row["times_mixing"] == pytest.approx(row["extra"] / mixing["ms"]) and row["age"] >= 0
    facts = record["facts"]
    assert facts["worst_shared"] == others[0]["times_mixing"]
    for name in ("stopped_shared", "stopped_sockets"):
        assert facts[name]["steps"] == 20 and facts[name]["memory_end"] > 1_000_000
        assert facts[name]["growth"] < 20 * 40_000 < facts[name]["memory_start"]  # what a message a step would make
    assert "extra over mixing" in to_text_table(record)[0] and len(to_facts(record)) == 3
    assert record["command"] == "gossamer bench --cases runtime --device cpu --precision float32 --quick"
    assert len(fleets) == 1
    assert_nothing_is_left(fleets)


def test_ctrl_c_keeps_the_rows_so_far_and_ends_all_agents(ctrl_c, fleets):
    def interrupt(text):
        if f"{SOCKETS}, round 1 of" in text:
            os.kill(os.getpid(), signal.SIGINT)

    measured = CASES["runtime"].run(PLAN.saying(interrupt))
    assert measured.interrupted and [row["label"] for row in measured.rows] == [
        "0.04 MB, " + MIXING,
        "0.04 MB, " + SHARED,
    ]
    assert_nothing_is_left(fleets)


def test_ctrl_c_ends_an_agent_that_is_stopped(ctrl_c, fleets, monkeypatch):
    stop = Fleet.stop

    def stop_and_interrupt(self, rank):
        stop(self, rank)
        assert list(Path("/dev/shm").glob(f"gossamer-bench-{os.getpid()}-*"))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Fleet, "stop", stop_and_interrupt)
    monkeypatch.setattr(Fleet, "go_on", lambda self, rank: None)
    measured = CASES["runtime"].run(PLAN)
    assert measured.interrupted and len(measured.rows) == 4
    assert_nothing_is_left(fleets)


def test_what_an_agent_cannot_do_is_passed_on_and_a_dead_one_is_told():
    with Fleet(2) as fleet:
        with pytest.raises(UserError, match="smoke"):
            fleet.tell(do="open", label="a", size=1, settings={"run": fleet.new_run(), "transport": "smoke"})
        fleet.tell(do="open", label="a", size=1, settings=None)  # it goes on
        os.kill(fleet.pids[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="agent 0 of the benchmark has ended"):
            fleet.tell(do="rest")


def test_a_size_for_which_there_is_no_memory_is_left_out(fleets, monkeypatch):
    monkeypatch.setattr(runtime_cases, "free_bytes", lambda device: 1_000_000)
    (row,) = CASES["runtime"].run(PLAN).rows
    assert row["label"] == "0.04 MB" and "needs 12 MB of memory, 1 MB are free" in row["note"]
    assert not fleets


# The comparison is honest.


def test_the_mixing_alone_is_the_mean_of_all_agents():
    states = torch.cat([Mixing(rank, 4, 5)._x for rank in range(4)])
    for rank in range(4):
        one = Mixing(rank, 4, 5)
        assert one.step() > 0
        torch.testing.assert_close(one._x, states.mean(dim=0, keepdim=True))


def test_a_gossip_step_sends_hears_and_mixes_what_the_mixing_alone_mixes():
    run = fresh_run_id()
    agents = [Gossip(rank, 4, 5, {"run": run, "transport": "shared", "meet": 0.0}) for rank in range(4)]
    try:
        first = [agent._x for agent in agents]
        for agent in agents:
            agent.step()
        last = agents[-1]
        assert last.ages == [0, 0, 0] and last.sent == 3 * 4 * 5 + 3 * 4  # 5 numbers are filled up to 24 bytes
        torch.testing.assert_close(last._x, torch.cat(first).mean(dim=0, keepdim=True))
        assert agents[0].ages == []  # nobody had said anything yet
    finally:
        for agent in agents:
            agent._agent.close()
        remove_leftovers(run)


class Steps(Mixing):
    """A contestant that needs no time."""

    def __init__(self):
        self.ages, self.sent = [1, 3], 10

    def step(self):
        return 0.25


def test_a_block_ends_with_its_steps_or_its_time():
    found = measure(Steps(), 5, 60.0, memory=True)
    assert found["seconds"] == [0.25] * 5 and (found["age"], found["sent"]) == (2, 10) and len(found["memory"]) == 5
    assert measure(Steps(), 5, 0.0, memory=False)["seconds"] == [0.25]  # one there is always


def test_private_memory_counts_what_is_touched():
    before = private_memory()
    block = torch.ones(10_000_000)
    assert 0.9 * block.nbytes < private_memory() - before < 1.5 * block.nbytes


# Arithmetic.


def test_rows_compare_medians_over_steps_and_agents():
    mixing = [[answer(1, 2, 3), answer(2, 2, 9)], [answer(4, 4, 4), answer(4, 4, 4)]]
    shared = [[answer(5, 9, 9, cpu=0.004, age=1.0, sent=60), answer(9, 9, 9, cpu=0.002, age=2.0, sent=60)]]
    rows = to_rows(Message(100, 1, 1), {MIXING: mixing, SHARED: shared, SOCKETS: []})
    assert [row["label"] for row in rows] == ["0.0004 MB, mixing alone", "0.0004 MB, shared memory"]
    assert (rows[0]["ms"], rows[0]["low"], rows[0]["high"]) == (pytest.approx(4), pytest.approx(2), pytest.approx(4))
    assert (rows[1]["extra"], rows[1]["times_mixing"]) == (pytest.approx(5), pytest.approx(1.25))
    assert (rows[1]["cpu"], rows[1]["age"], rows[1]["sent"]) == (pytest.approx(3), 1.5, 60)


def test_growth_is_that_of_the_agent_whose_memory_grew_most():
    before = [answer(2, 2, memory=[70, 70]), answer(2, 2, memory=[80, 90, 100]), answer(2, 2, memory=[1])]
    steady = answer(*[3] * 20, memory=[50] * 20)
    growing = answer(*range(20), memory=range(100, 120))
    found = without_one(before, [steady, growing])
    assert (found["memory_before"], found["memory_start"], found["memory_end"]) == (90, 100.5, 118.5)
    assert found["growth"] == 18 and found["steps"] == 20 and found["ms_before"] == pytest.approx(2)
    assert (found["low"], found["high"]) == (pytest.approx(2), pytest.approx(10.5))


# How it is asked for.


def test_cases_are_named_with_and_without_a_flag(command, monkeypatch):
    asked = []
    monkeypatch.setattr("gossamer.cli.bench_run.choose_cases", lambda text, plan: asked.append(text) or [])
    command("bench", "runtime", "mlp", "--cases", "thousand,memory", "--device", "cpu")
    command("bench", "--cases", "runtime", "--device", "cpu")
    command("bench", "--device", "cpu")
    assert asked == ["runtime,mlp,thousand,memory", "runtime", None]


def test_it_runs_when_it_is_asked_for_and_on_a_cpu_alone(command):
    assert "did you mean 'runtime'" in command.refused("bench", "runtim", "--device", "cpu")
    assert "runtime" not in [one.name for one in choose_cases(None, PLAN)]
    with pytest.raises(UserError, match="--device cpu"):
        choose_cases("runtime", Request("cuda", "float32"))
