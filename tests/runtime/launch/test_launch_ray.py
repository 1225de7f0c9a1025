"""Agents as actors of a Ray that is started for these tests."""

import math
import signal
import sys

import pytest

from gossamer.errors import UserError
from gossamer.runtime.launch.ray_agent import RestartCounter, run_script, write_if_missing
from gossamer.runtime.launch.ray_cluster import RayResources, connected, run_on_ray
from launching import Events, alive, lives, make_job, pids

HALF = RayResources(cpus_per_agent=0.5)
NEVER = lambda: None  # noqa: E731


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """One Ray for all tests here, made and ended as a launch does."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with connected(HALF, make_job(tmp_path_factory.mktemp("ray"), "", 2)) as made:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        yield made
    assert not made.is_initialized()


ONE_IS_KILLED = """
import beside
print("argument", *sys.argv[1:], beside.VALUE)
if rank == "1" and not restarts:
    os.kill(os.getpid(), signal.SIGKILL)
while rank == "0" and count("lives", 1) < 2:  # lives through the death of the other
    time.sleep(0.01)
sys.exit(0 if rank == "0" else None)
"""


def test_a_killed_agent_is_started_again_by_ray_and_the_other_goes_on(ray, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7")
    watcher = Events(0)
    job = make_job(tmp_path, ONE_IS_KILLED, 2, arguments=("x y",))
    report = run_on_ray(job, watcher, HALF, NEVER)
    assert [(o.rank, o.exit, o.restarts) for o in report.outcomes] == [(0, 0, 0), (1, 0, 1)]
    (steady,), (first, second) = lives(tmp_path, 0), lives(tmp_path, 1)
    assert first["pid"] != second["pid"] and [first["restarts"], second["restarts"]] == [0, 1]
    own = {
        name: value
        for name, value in steady["environ"].items()
        if name.startswith("GOSSAMER_") and name != "GOSSAMER_DATA"
    }
    assert own == {
        "GOSSAMER_RANK": "0",
        "GOSSAMER_AGENTS": "2",
        "GOSSAMER_RUN": job.run.run,
        "GOSSAMER_BOOK": job.run.book,
        "GOSSAMER_FOLDER": str(tmp_path),
    }
    assert watcher.lines == [(0, "argument x y 7")] and (tmp_path / "agent-1.log").read_text() == "argument x y 7\n" * 2
    assert "agent 1 died and was restarted by Ray (restart 1 of 3)" in watcher.events
    assert [(row["state"], row["restarts"]) for row in watcher.rows[-1]] == [("done", 0), ("done", 1)]


def test_an_agent_that_fails_for_good_fails_alone(ray, tmp_path):
    watcher = Events()
    job = make_job(tmp_path, "raise ValueError('of agent 1') if rank == '1' else SystemExit", 2, max_restarts=0)
    report = run_on_ray(job, watcher, HALF, NEVER)
    assert [o.exit for o in report.outcomes] == [0, 1] and not report.interrupted
    assert (tmp_path / "agent-1.log").read_text().splitlines()[-1] == "ValueError: of agent 1"
    (event,) = [event for event in watcher.events if "agent" in event]  # not that the machine was waited for
    assert event.startswith("agent 1 failed and is not restarted (")
    assert event.endswith(f"its log is {tmp_path / 'agent-1.log'}")


CLEANS_UP = """
try:
    wait_for_ever()
finally:
    note("cleaned")
"""


def test_stopped_agents_clean_up_and_end(ray, tmp_path, monkeypatch):
    monkeypatch.setattr("gossamer.runtime.launch.ray_cluster.FINAL", 60.0)  # a slow machine's agents need time
    report = run_on_ray(
        make_job(tmp_path, CLEANS_UP, 2),
        Events(),
        HALF,
        lambda: all((tmp_path / f"ready-{rank}.jsonl").exists() for rank in range(2)),
    )
    assert report.interrupted and not any(alive(pid) for pid in pids(tmp_path, 2))
    assert all((tmp_path / f"cleaned-{rank}.jsonl").exists() for rank in range(2))


def test_more_than_the_machine_has_is_refused(ray, tmp_path):
    with pytest.raises(UserError, match=r"2 agents with 1000 CPU each need 2000, this machine has \d+; use less"):
        run_on_ray(make_job(tmp_path, "", 2), Events(), RayResources(cpus_per_agent=1000.0), NEVER)


# Without Ray.


def test_without_ray_there_is_a_line_that_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'Ray is not installed; install it with: pip install "gossamer\[ray\]"'):
        run_on_ray(make_job(tmp_path, "", 2), Events(), HALF, NEVER)


@pytest.mark.parametrize(
    "values", [{"cpus_per_agent": -1.0}, {"gpus_per_agent": math.inf}, {"placement": "AROUND"}], ids=str
)
def test_resources_out_of_range_are_refused(values):
    with pytest.raises(UserError):
        RayResources(**values)


def test_a_share_is_what_ray_calls_it():
    assert RayResources(cpus_per_agent=0.5, gpus_per_agent=0.25).of_one() == {"CPU": 0.5, "GPU": 0.25}
    assert RayResources(cpus_per_agent=2.0).of_one() == {"CPU": 2.0}
    assert RayResources(cpus_per_agent=0.0).of_one()  # Ray takes no empty share


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(5)", 5),
        ("raise SystemExit('words')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 1),
        ("assert __name__ == '__main__'", 0),
    ],
)
def test_a_script_ends_with_the_status_that_python_would_end_with(tmp_path, capsys, body, status):
    (tmp_path / "script.py").write_text(body)
    assert run_script(str(tmp_path / "script.py")) == status
    assert ("words" in capsys.readouterr().err) == ("words" in body)


def test_the_counter_counts_how_often_an_agent_was_started_before():
    counter = RestartCounter()
    assert [counter.arrive(3, pid, "here") for pid in (10, 11, 12)] == [0, 1, 2] and counter.arrive(0, 13, "there") == 0
    assert {rank: (place.pid, place.node) for rank, place in counter.places().items()} == {
        3: (12, "here"),
        0: (13, "there"),
    }


def test_a_key_is_written_for_its_owner_alone_and_never_over_another(tmp_path):
    path = tmp_path / "new" / "key"
    write_if_missing(path, "first")
    write_if_missing(path, "second")
    assert path.read_text() == "first" and path.stat().st_mode & 0o777 == 0o600
