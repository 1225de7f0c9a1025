"""Agents that are forked from a process with torch: they begin, run and end as agents that Python itself starts."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import gossamer as gm
from gossamer.runtime.launch.child_processes import find_processes
from gossamer.runtime.launch.launcher import Launcher
from gossamer.runtime.launch.preload import can_preload
from launching import NOTES, Events, alive, lines_of, lives, make_job, pids
from waiting import until

BOTH = pytest.mark.parametrize("preload", [False, True], ids=["fresh", "forked"])


@pytest.fixture(autouse=True)
def imports(monkeypatch):
    """The fork server finds the package, wherever the tests were started."""
    monkeypatch.setenv("PYTHONPATH", str(Path(gm.__file__).parents[1]))


def launch(folder, preload, body, agents=1, *, name, stop=lambda: None, **values):
    folder = folder / name
    folder.mkdir()
    watcher = Events()
    report = Launcher(make_job(folder, body, agents, **values), watcher, preload=preload).run(stop)
    return folder, watcher, report


DESCRIBES = """
import random, threading
import numpy, torch
import __main__
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
note(
    "self",
    handlers={int(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
    blocked=sorted(number.name for number in blocked),
    wakeup=signal.set_wakeup_fd(-1),
    environ={name: value for name, value in os.environ.items() if name != "GOSSAMER_RUN"},
    argv=[sys.argv, sys.orig_argv, sys.path],
    main={name: repr(value) for name, value in vars(__main__).items() if name in ("__name__", "__file__", "__doc__",
          "__package__", "__spec__", "__cached__", "__builtins__")},
    loader=[type(__main__.__loader__).__name__, __main__.__loader__.path],
    streams=[os.readlink("/proc/self/fd/0"), sys.stdout.encoding, sys.stdout.write_through, sys.stderr.line_buffering],
    files=sorted(entry for entry in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{entry}")),
    place=[os.getcwd(), os.getsid(0) == os.getpid() == os.getpgid(0), os.umask(0o22), os.nice(0)],
    threads=[threading.active_count(), torch.get_num_threads()],
    cuda=[torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()],
)
note("random", python=random.random(), numpy=numpy.random.rand(), torch=torch.rand(1).item(), seed=torch.initial_seed())
"""


def test_a_forked_agent_begins_as_a_fresh_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_OF_ANOTHER", "kept")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told: list[list[dict]] = []
    draws = set()
    for preload in (False, True):
        folder, watcher, report = launch(tmp_path, preload, DESCRIBES, 2, name=f"{preload}", arguments=("--x", "a b"))
        assert not report.failed and watcher.events == []
        agents = [lines_of(folder / f"self-{rank}.jsonl")[0] for rank in range(2)]
        told.append(json.loads(json.dumps(agents).replace(str(folder), "FOLDER")))
        for rank in range(2):
            draws |= set(lines_of(folder / f"random-{rank}.jsonl")[0].values())
    assert told[0] == told[1]
    assert len(draws) == 16  # every agent has its own numbers


ENDS = """
import atexit, threading
atexit.register(print, "goodbye")
def fails():
    return 1 / 0
print("begun", end="")
if rank == "0":
    sys.exit("words")
if rank == "1":
    fails()
if rank == "2":
    os._exit(3)
if rank == "3":
    os.kill(os.getpid(), signal.SIGTERM)
if rank == "4":
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
if rank == "5":
    import multiprocessing
    if __name__ == "__main__":
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map(abs, [-1]))
    threading.Thread(target=lambda: [time.sleep(0.05), print("from a thread")]).start()
if rank == "6":
    sys.exit(7)
if rank == "7":
    os.abort()
"""
EXITS = [1, 1, 3, -signal.SIGTERM, -signal.SIGINT, 0, 7, -signal.SIGABRT]


def test_a_forked_agent_ends_as_a_fresh_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "")  # what is not flushed is lost in the same way
    outputs = []
    for preload in (False, True):
        folder, watcher, report = launch(tmp_path, preload, ENDS, 8, name=f"{preload}", max_restarts=0)
        assert [outcome.exit for outcome in report.outcomes] == EXITS
        assert sorted(event.split(" and ")[0] for event in watcher.events)[0] == "agent 0 ended with status 1"
        logs = [(folder / f"agent-{rank}.log").read_text() for rank in range(8)]
        outputs.append([log.replace(str(folder), "FOLDER") for log in logs])
    assert outputs[0] == outputs[1]
    assert "ZeroDivisionError" in outputs[1][1] and outputs[1][1].endswith("goodbye\n")


@BOTH
def test_a_script_that_cannot_be_read_says_so(tmp_path, preload):
    folder, _, report = launch(tmp_path, preload, "if", name="of", max_restarts=0)
    last = len(NOTES.splitlines()) + 1
    assert [outcome.exit for outcome in report.outcomes] == [1]
    log = (folder / "agent-0.log").read_text()
    assert log.startswith(f'  File "{folder}/script.py", line {last}\n    if\n') and "SyntaxError" in log


DIES = """
if rank == "1" and restarts < 2:
    if not os.fork():
        note("child", pid=os.getpid())
        time.sleep(60)
    while not count("child", 1) > restarts:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL) if restarts else sys.exit(3)
if restarts:
    for pid in [json.loads(line)["pid"] for line in open(os.path.join(folder, "child-1.jsonl"))]:
        try:
            os.kill(pid, 0)
            note("left", state=open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass
"""


def test_a_forked_agent_is_restarted_and_leaves_no_process(tmp_path):
    folder, watcher, report = launch(tmp_path, True, DIES, 2, name="of")
    assert [(o.exit, o.restarts) for o in report.outcomes] == [(0, 0), (0, 2)]
    assert [life["restarts"] for life in lives(folder, 1)] == [0, 1, 2]
    assert watcher.events == [
        "agent 1 ended with status 3; restart 1 of 3 in 0.5 s",
        "agent 1 was ended by SIGKILL; restart 2 of 3 in 1 s",
    ]
    assert all(line["state"] == "Z" for line in lines_of(folder / "left-1.jsonl"))


def test_agents_are_started_again_after_the_fork_server_was_killed(tmp_path):
    body = "if not restarts: wait_for_ever()"
    name, killed = tmp_path / "of", []

    def kills_the_server():
        if not killed and all((name / f"ready-{rank}.jsonl").exists() for rank in range(2)):
            agents = pids(name, 2)
            (server,) = set(find_processes(launcher=os.getpid())) - set(agents)
            os.kill(server, signal.SIGKILL)
            until(lambda: not any(alive(pid) for pid in agents))
            killed.append(server)

    _, watcher, report = launch(tmp_path, True, body, 2, name="of", stop=kills_the_server)
    assert [(o.exit, o.restarts) for o in report.outcomes] == [(0, 1), (0, 1)]
    assert sorted(watcher.events) == [
        "agent 0 was ended by SIGKILL; restart 1 of 3 in 0.5 s",
        "agent 1 was ended by SIGKILL; restart 1 of 3 in 0.5 s",
        "agents start without preload: the fork server died",
    ]


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("numpy.py", "raise ImportError('broken')", "ImportError: broken"),
        (
            "sitecustomize.py",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            "importing torch has started a thread",
        ),
        (
            "sitecustomize.py",
            "import sys\nif any('fork_server' in word for word in sys.orig_argv):\n"
            " import torch\n torch.cuda.is_initialized = lambda: True",
            "importing torch has initialised CUDA",
        ),
    ],
    ids=["unknown", "thread", "cuda"],
)
def test_where_a_fork_would_break_agents_are_fresh(tmp_path, monkeypatch, file, text, why):
    beside = tmp_path / "of" if file == "numpy.py" else tmp_path  # a script's own modules come first
    beside.mkdir(exist_ok=True)
    (beside / file).write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path)]))
    watcher = Events()
    report = Launcher(make_job(beside, "", 1), watcher, preload=True).run()
    assert not report.failed and watcher.events == [f"agents start without preload: {why}"]


def test_only_python_is_forked():
    assert can_preload([sys.executable, "train.py"]) and can_preload([sys.executable, "-m", "package.module"])
    assert not can_preload([sys.executable, "-c", "pass"]) and not can_preload(["torchrun", "train.py"])
    assert not can_preload([sys.executable])
