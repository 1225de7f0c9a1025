"""What a run writes for those who look on: seconds and ages in its metrics, and status.json."""

import itertools
import json
import os
import time

import pytest

import gossamer as gm
from gossamer.run import status
from gossamer.run.agent_folder import AgentFolder
from gossamer.run.folder import RunFolder
from gossamer.run.metric_rows import MOST_PAIRED
from gossamer.run.plan import make_plan
from gossamer.run.process_settings import ProcessSettings
from gossamer.run.settings import make_settings
from gossamer.run.status import StatusFile, read_status
from gossamer.runtime.launch.job import Watcher
from gossamer.train.processes.launch_status import Samples, StatusRecorder
from gossamer.train.processes.launched_training import train
from gossamer.train.processes.merged_rows import GrowingHistory
from runs import Crash, begin, crashing_at, take_up, training


def rows_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


# Rows of metrics.


def test_a_row_has_the_mean_age_of_every_link(folder):
    result = gm.simulate(network="clusters:2,2", delay=3, model="linear", epochs=2, eval_every=6, startup="full")
    first, later = result.history[0]["ages"], result.history[2]["ages"]
    assert first == [[None] * 4] * 4
    links = gm.network("clusters:2,2").links.tolist()
    for i in range(4):
        for j in range(4):
            expected = None if not links[i][j] else 0.0 if i // 2 == j // 2 else 3.0
            assert later[i][j] == expected


def test_ages_are_of_the_interval_since_the_last_row(folder):
    result = gm.simulate(network="ring:4", delay=4, model="linear", epochs=1, eval_every=4, startup="min")
    # With startup "min" the age of the first messages grows with the steps: 0, 1, 2, 3, then 4 for good.
    assert result.history[1]["ages"][0] == [None, 1.5, None, 1.5]
    assert result.history[2]["ages"][0] == [None, 4.0, None, 4.0]


def test_of_very_many_agents_no_ages_are_kept(folder):
    n = MOST_PAIRED + 1
    result = gm.simulate(network=f"ring:{n}", delay=1, model="linear", batch=1, epochs=1, algorithm="d-asgd", out="run")
    assert result.history[-1]["ages"] is None and result.history[-1]["message_age"] is not None
    written = read_status(folder / "run")
    assert written["ages"] is None and len(written["agents"]) == n


def test_seconds_grow_from_row_to_row_and_over_a_resume(folder):
    run, run_folder = begin(folder / "run", checkpoint_every=1)
    with pytest.raises(Crash):  # which leaves no summary
        run.run(run_folder, on_step=crashing_at(30))
    run, run_folder = take_up(folder / "run")
    run.run(run_folder)
    seconds = [row["seconds"] for row in rows_of(folder / "run")]
    assert all(one < next_one for one, next_one in itertools.pairwise(seconds))
    assert run.seconds >= seconds[-1]


def test_a_checkpoint_of_an_older_version_goes_on(folder):
    run, run_folder = begin(folder / "run")
    run.run(run_folder, stop=lambda: run.simulation.t >= 12)
    state = run_folder.load()
    new = {"tally.interval.ages", "tally.interval.heard"}
    assert new < set(state)
    run_folder.save({name: value for name, value in state.items() if name not in new})
    resumed, run_folder = take_up(folder / "run")
    assert resumed.run(run_folder).summary["status"] == "finished"


# The status of the simulator.


def test_a_run_says_how_far_it_is_and_how_it_ended(folder, monkeypatch):
    monkeypatch.setattr(status, "EVERY", 0.0)  # so that every step is told
    run, seen = training(), []
    run_folder = RunFolder.create(folder / "run", run.settings, run.network)
    run.run(run_folder, on_step=lambda step, row: seen.append(read_status(folder / "run")))
    assert [one["step"] for one in seen] == list(range(1, 25))
    one = seen[5]
    assert (one["steps"], one["epoch"], one["status"]) == (24, 0.5, "running")
    assert one["pid"] == os.getpid() and 0 < time.time() - one["time"] < 60
    assert one["agents"] == [{"state": "alive", "step": 6}] * 8
    assert len(one["losses"]) == 8 and all(0 < loss < 10 for loss in one["losses"])
    assert one["ages"][0][1] == 0 and one["ages"][0][0] is None
    last = read_status(folder / "run")
    assert (last["status"], last["step"], last["seconds"] > one["seconds"]) == ("finished", 24, True)


def test_a_run_that_diverges_says_so(folder):
    with pytest.warns(RuntimeWarning):
        gm.simulate(model="linear", epochs=2, lr=1e38, out="run")
    assert "the loss of agent" in read_status(folder / "run")["status"]


def test_a_status_is_written_once_a_second_at_most(tmp_path):
    file = StatusFile(tmp_path, steps=3)
    assert file.due()
    file.write(1, 0.1, [])
    assert not file.due()


def test_a_status_that_cannot_be_written_does_not_disturb(tmp_path):
    StatusFile(tmp_path / "gone", steps=3).write(1, 0.1, [])
    assert read_status(tmp_path / "gone") is None
    (tmp_path / "status.json").write_text('{"step"')
    assert read_status(tmp_path) is None


# The status of processes.


def row(rank, state="running", **said):
    return {"rank": rank, "state": state, "restarts": 0, **said}


def told(tmp_path, monkeypatch, also=None):
    monkeypatch.setattr(status, "EVERY", 0.0)
    return StatusRecorder(Watcher(), StatusFile(tmp_path, steps=None), also)


def test_agents_that_die_and_return_are_told(tmp_path, monkeypatch):
    one = told(tmp_path, monkeypatch)
    one.event("agent 1 was killed; restart 1 of 3 in 1 s")
    one.status([row(0, step=9, ages={"1": 4}), row(1, "waiting", step=3), row(2, restarts=1, step=8), row(3, "done")])
    written = read_status(tmp_path)
    assert [agent["state"] for agent in written["agents"]] == ["alive", "dead", "rejoined", "done"]
    assert [agent["step"] for agent in written["agents"]] == [9, 3, 8, 0]
    assert written["ages"][0] == [None, 4, None, None] and written["steps"] is None
    assert written["events"][0]["text"].startswith("agent 1 was killed")
    one.end("finished")
    assert read_status(tmp_path)["status"] == "finished"


def test_an_agent_elsewhere_that_falls_silent_counts_as_dead(tmp_path, monkeypatch):
    one, clock = told(tmp_path, monkeypatch), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    states = []
    for clock[0], seconds in ((100.0, 1.0), (109.0, 1.0), (111.0, 1.0), (112.0, 2.0)):
        one.status([row(0, "elsewhere", seconds=seconds)])
        states.append(read_status(tmp_path)["agents"][0]["state"])
    assert states == ["alive", "alive", "dead", "alive"]


def test_progress_is_the_slowest_living_agents_and_a_script_may_say_how_far_it_goes(tmp_path, monkeypatch):
    one = told(tmp_path, monkeypatch)
    one.status([row(0, "failed", step=2), row(1, step=7, steps=100), row(2, step=9, steps=100)])
    assert (read_status(tmp_path)["step"], read_status(tmp_path)["steps"]) == (7, 100)


def test_samples_of_a_script_are_rows_and_grow_further_apart(tmp_path):
    samples = Samples(tmp_path)
    for second in range(2000):
        said = [row(0, step=second, loss=1.5, sent=7, ages={"1": 2}), row(1, step=second + 1 if second < 9 else 0)]
        samples.take(said, float(second))  # agent 1 dies, and begins anew
    rows = rows_of(tmp_path)
    assert rows[1]["train_loss"] == [1.5, None] and rows[1]["bytes_sent"] == [7, 0] and rows[1]["message_age"] == 2
    assert rows[1]["ages"] == [[None, 2], [None, None]] and rows[1]["accuracy"] is None
    times = [one["seconds"] for one in rows]
    assert times[1] - times[0] == 2 and times[-1] - times[-2] >= 6 and 500 < len(times) < 700


def test_the_history_of_processes_grows_while_they_run(tmp_path):
    made = make_plan(make_settings({"model": "linear", "network": "complete:2"}))
    folder = RunFolder.create(tmp_path / "run", made.settings, made.network)
    growing, agents = GrowingHistory(folder, 2), [AgentFolder(tmp_path / "run", rank) for rank in range(2)]
    common = {"epoch": 0.0, "lr": 0.1, "accuracy": 0.5, "loss": 1.0, "train_loss": None, "predict": None}
    common |= {"message_age": 3.0, "bytes_sent": 5}

    def write(rank, step, seconds):
        agents[rank].append({"step": step, "seconds": seconds, "ages": {str(1 - rank): 1.0 + rank}, **common})

    write(0, 0, 1.0)
    growing.look()
    assert rows_of(tmp_path / "run") == []
    write(1, 0, 2.0)
    write(0, 5, 3.0)
    growing.look()
    growing.look()
    rows = rows_of(tmp_path / "run")
    assert [one["step"] for one in rows] == [0] and rows[0]["seconds"] == 2.0
    assert rows[0]["ages"] == [[None, 1.0], [2.0, None]] and rows[0]["message_age"] == 3.0
    resumed = GrowingHistory(folder, 2)  # writes nothing twice
    write(1, 5, 4.0)
    resumed.look()
    assert [one["step"] for one in rows_of(tmp_path / "run")] == [0, 5]


@pytest.mark.timeout(600)
def test_processes_tell_their_status_and_ages(tmp_path):
    made = make_plan(
        make_settings({"network": "complete:2", "delay": "0", "model": "linear", "epochs": 3, "algorithm": "d-asgd"})
    )
    how = ProcessSettings(engine="processes", lockstep=True)
    train(made, RunFolder.create(tmp_path / "run", made.settings, made.network), how)
    written, rows = read_status(tmp_path / "run"), rows_of(tmp_path / "run")
    assert (written["status"], written["step"], written["steps"]) == ("finished", made.steps, made.steps)
    assert [agent["state"] for agent in written["agents"]] == ["done", "done"]
    assert rows[-1]["ages"] == [[None, 0.0], [0.0, None]] and rows[-1]["seconds"] > rows[0]["seconds"] > 0
