"""Agents as processes: started, started again, given up, and ended without a trace."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gossamer.runtime.book.address_book import Book, serve_book
from gossamer.runtime.environment import Run
from gossamer.runtime.launch import agent_process, launcher
from gossamer.runtime.launch.book_process import AgentStatuses
from gossamer.runtime.launch.launcher import Launcher
from launching import Events, alive, lines_of, lives, make_job, pids
from waiting import until

# Agents.


def test_every_agent_is_told_who_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_COMPRESS", "bf16")  # of a run around this one
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("gossamer.runtime.launch.job.cores", lambda: 7)
    watcher = Events(0)
    job = make_job(tmp_path, "print('hello', *sys.argv[1:]); print('cut', end='')", 3, arguments=("--x", "a b"))
    report = Launcher(job, watcher).run()
    assert [(o.rank, o.exit, o.restarts) for o in report.outcomes] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert not report.failed and not report.interrupted and watcher.events == []
    for rank in range(3):
        (life,) = lives(tmp_path, rank)
        own = {
            name: value
            for name, value in life["environ"].items()
            if name.startswith("GOSSAMER_") and name != "GOSSAMER_DATA"
        }
        assert own == {
            "GOSSAMER_RANK": str(rank),
            "GOSSAMER_AGENTS": "3",
            "GOSSAMER_RUN": job.run.run,
            "GOSSAMER_BOOK": job.run.book,
            "GOSSAMER_FOLDER": str(tmp_path),
            "GOSSAMER_LAUNCHER": str(os.getpid()),
        }
        assert life["environ"]["OMP_NUM_THREADS"] == "2" and life["argv"][1:] == ["--x", "a b"]
        assert (tmp_path / f"agent-{rank}.log").read_text() == "hello --x a b\ncut"
    assert watcher.lines == [(0, "hello --x a b"), (0, "cut")]
    assert [row["state"] for row in watcher.rows[-1]] == ["done"] * 3


def test_threads_that_the_user_has_set_are_left_alone(tmp_path):
    job = make_job(tmp_path, "", 2)
    assert job.environment(0, 0, {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert "TORCHELASTIC_RESTART_COUNT" not in job.environment(0, 0, {"TORCHELASTIC_RESTART_COUNT": "2"})


DIES_TWICE = """
if rank == "1" and restarts < 2:
    os.kill(os.getpid(), signal.SIGKILL) if restarts else sys.exit(3)
"""


def test_an_agent_that_dies_is_started_again_and_the_others_never_notice(tmp_path):
    watcher = Events()
    report = Launcher(make_job(tmp_path, DIES_TWICE, 3), watcher).run()
    assert [(o.exit, o.restarts) for o in report.outcomes] == [(0, 0), (0, 2), (0, 0)] and not report.failed
    assert [life["restarts"] for life in lives(tmp_path, 1)] == [0, 1, 2]
    assert len(lives(tmp_path, 0)) == len(lives(tmp_path, 2)) == 1
    assert watcher.events == [
        "agent 1 ended with status 3; restart 1 of 3 in 0.5 s",
        "agent 1 was ended by SIGKILL; restart 2 of 3 in 1 s",
    ]
    assert "--- agent 1 is restarted (2) ---" in (tmp_path / "agent-1.log").read_text()


ONE_FAILS = """
if rank == "1":
    sys.exit(1)
while rank == "2" and count("lives", 1) < 2:  # outlives all restarts of agent 1
    time.sleep(0.01)
"""


def test_an_agent_that_has_used_up_its_restarts_fails_alone(tmp_path):
    watcher = Events()
    report = Launcher(make_job(tmp_path, ONE_FAILS, 3, max_restarts=1), watcher).run()
    assert [o.exit for o in report.outcomes] == [0, 1, 0] and [o.rank for o in report.failed] == [1]
    assert len(lives(tmp_path, 1)) == 2 and not report.hopeless
    log = tmp_path / "agent-1.log"
    assert watcher.events[-1] == f"agent 1 ended with status 1 and is not restarted; its log is {log}"
    assert [row["state"] for row in watcher.rows[-1]] == ["done", "failed", "done"]


def test_agents_that_all_fail_at_their_start_are_not_tried_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_process, "BEGINNING", 60.0)  # a start takes longer on a machine that stands still
    watcher, begun = Events(), time.monotonic()
    job = make_job(tmp_path, "import nothing_of_that_name", 3, max_restarts=50)
    report = Launcher(job, watcher).run()
    # Twice each, and perhaps some more while the slowest of them, which is tried twice only, is still at it.
    tries = [len(lives(tmp_path, rank)) for rank in range(3)]
    assert time.monotonic() - begun < 60 and min(tries) == 2 and max(tries) <= 6
    assert report.hopeless == (
        "every agent ended with status 1 at its start (ModuleNotFoundError: No module named 'nothing_of_that_name'); "
        f"see {tmp_path / 'agent-0.log'}"
    )
    assert len(report.failed) == 3 and "restart 1 of 50 in 0.5 s" in watcher.events[0]


FAILS_ONCE_SEEN = """
while not os.path.exists(os.path.join(folder, "seen")):
    time.sleep(0.01)
sys.exit(1)
"""


class Seeing(Events):
    """Leaves a file once the launcher has read of a step."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def status(self, rows):
        super().status(rows)
        if rows[0].get("step"):
            self._path.touch()


def test_agents_that_fail_after_steps_have_no_mistake_in_common(tmp_path):
    server = serve_book("127.0.0.1")
    job = make_job(tmp_path, FAILS_ONCE_SEEN, 1, max_restarts=2)  # or it might fail twice before it is read of
    job = job.with_book(server.endpoint)
    client = Book(server.endpoint, job.run.run, 0)
    client.post("status/0", {"step": 5, "loss": 0.5, "done": True})
    until(lambda: client.connected)
    watcher = Seeing(tmp_path / "seen")
    try:
        report = Launcher(job, watcher).run()
    finally:
        client.close()
        server.close()
    assert report.hopeless is None and len(lives(tmp_path, 0)) == 3
    assert report.outcomes[0].status == {"step": 5, "loss": 0.5, "done": True}
    assert watcher.rows[-1] == [{"rank": 0, "state": "failed", "restarts": 2, "step": 5, "loss": 0.5, "done": True}]


def test_the_last_words_of_agents_are_waited_for_a_moment(monkeypatch):
    monkeypatch.setattr("gossamer.runtime.launch.book_process.LAST_LOOK", 60.0)  # a slow machine's moment
    server = serve_book("127.0.0.1")
    client, board = Book(server.endpoint, "x", 0), AgentStatuses(Run(agents=3, run="x", book=server.endpoint))
    try:
        client.post("status/0", {"step": 5, "done": False})
        until(lambda: board.newest() == {0: {"step": 5, "done": False}})
        later = threading.Timer(0.3, client.post, ("status/0", {"step": 6, "done": True}))
        begun = time.monotonic()
        later.start()
        board.settle([0, 1])  # of agent 1 there was never a word
        assert time.monotonic() - begun < 60
        later.join()
        assert board.newest() == {0: {"step": 6, "done": True}}
    finally:
        client.close()
        board.close()
        server.close()


def test_only_some_agents_of_a_run(tmp_path):
    watcher = Events()
    report = Launcher(make_job(tmp_path, "", 4, ranks=(1, 3)), watcher).run()
    assert [o.rank for o in report.outcomes] == [1, 3]
    assert [len(lives(tmp_path, rank)) for rank in range(4)] == [0, 1, 0, 1]
    assert [row["state"] for row in watcher.rows[-1]] == ["elsewhere", "done", "elsewhere", "done"]


LEAVES_A_CHILD = """
import subprocess
if restarts:
    with open(os.path.join(folder, "child-0.jsonl")) as file:
        child = json.loads(file.read())["pid"]
    try:
        there = open(f"/proc/{child}/cmdline").read() != ""  # one that has ended but was not waited for has none
    except (FileNotFoundError, ProcessLookupError):
        there = False
    note("left", there=there)
    sys.exit(0)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
note("child", pid=child.pid)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_an_agent_has_started_is_gone_before_it_is_started_again(tmp_path):
    assert not Launcher(make_job(tmp_path, LEAVES_A_CHILD, 1)).run().failed
    assert lines_of(tmp_path / "left-0.jsonl") == [{"there": False}]


# Ending.


def stop_when_ready(folder, agents):
    return lambda: all((folder / f"ready-{rank}.jsonl").exists() for rank in range(agents))


CLEANS_UP = """
try:
    wait_for_ever()
except KeyboardInterrupt:
    note("cleaned")
    sys.exit(0)
"""


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def test_stopped_agents_may_clean_up(tmp_path, monkeypatch, handler):
    monkeypatch.setattr(launcher, "POLITE", 60.0)
    monkeypatch.setattr(launcher, "FINAL", 120.0)
    begun = time.monotonic()
    before = signal.signal(signal.SIGINT, handler)  # a shell has it ignored by what it runs in the background
    try:
        report = Launcher(make_job(tmp_path, CLEANS_UP, 2)).run(stop_when_ready(tmp_path, 2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert report.interrupted and [o.exit for o in report.outcomes] == [0, 0]
    assert (tmp_path / "cleaned-0.jsonl").exists() and (tmp_path / "cleaned-1.jsonl").exists()
    assert time.monotonic() - begun < launcher.POLITE


def test_agents_that_do_not_listen_are_pressed_and_then_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "POLITE", 0.2)
    monkeypatch.setattr(launcher, "FINAL", 5.0)  # long enough for SIGTERM to end one of them on a busy machine
    body = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
if rank == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait_for_ever()
"""
    report = Launcher(make_job(tmp_path, body, 2)).run(stop_when_ready(tmp_path, 2))
    assert [o.exit for o in report.outcomes] == [-signal.SIGTERM, -signal.SIGKILL] and report.interrupted
    assert not any(alive(pid) for pid in pids(tmp_path, 2))


def test_agents_are_pressed_at_once_where_the_launcher_is_to_end_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "POLITE", 60.0)
    monkeypatch.setattr(launcher, "FINAL", 120.0)
    monkeypatch.setattr(launcher, "HURRIED", (0.2, 60.0))
    body = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwait_for_ever()"
    ready = stop_when_ready(tmp_path, 1)
    begun = time.monotonic()
    report = Launcher(make_job(tmp_path, body, 1)).run(lambda: ready() and launcher.HURRY)
    assert report.interrupted and [o.exit for o in report.outcomes] == [-signal.SIGTERM]
    assert time.monotonic() - begun < 60


def test_shared_memory_is_removed_unless_others_of_the_run_still_use_it(tmp_path):
    job = make_job(tmp_path, "wait_for_ever()", 2, ranks=(0,))
    name = tmp_path / "ours"
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={"GOSSAMER_RUN": job.run.run})
    removed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "remove_leftovers", lambda run, folder: removed.append((run, folder)))
        until(lambda: launcher.find_processes(run=job.run.run) == [other.pid])
        launcher.remove_shared_memory(job.run.run, name)
        assert removed == []
        other.kill()
        other.wait()
        launcher.remove_shared_memory(job.run.run, name)
        assert removed == [(job.run.run, name)]
