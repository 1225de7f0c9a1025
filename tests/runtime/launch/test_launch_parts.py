"""The parts of a launch, one by one: restarts, the book's process, logs, traces, plans, and what is shown."""

import dataclasses
import json
import os
import signal
import stat
import sys

import pytest
from rich.console import Console

from gossamer.cli.launch_run import make_launch, parse_ranks
from gossamer.cli.launch_view import LaunchView, to_line, to_table
from gossamer.errors import UserError
from gossamer.network import Trace
from gossamer.run.agent_folder import Tail, last_words
from gossamer.runtime.age_trace import merge_traces
from gossamer.runtime.launch.agent_process import Restarts, describe_exit
from gossamer.runtime.launch.book_process import BookProcess
from gossamer.runtime.launch.launcher import Launcher
from launching import alive, make_job
from waiting import until

# The policy, with a clock of its own.


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def dies_after(restarts, clock, seconds):
    restarts.started()
    clock.now += seconds
    return restarts.ended()


def test_pauses_double_up_to_the_longest():
    clock = Clock()
    restarts = Restarts(100, clock)
    pauses = [dies_after(restarts, clock, 1) for _ in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30] and restarts.used == 9


def test_an_agent_that_was_well_for_a_minute_begins_with_the_first_pause_again():
    clock = Clock()
    restarts = Restarts(100, clock)
    assert [dies_after(restarts, clock, s) for s in (1, 59.9, 60, 1)] == [0.5, 1, 0.5, 1]


def test_restarts_are_counted_over_the_whole_run():
    clock = Clock()
    restarts = Restarts(2, clock)
    assert [dies_after(restarts, clock, 1000) for _ in range(4)] == [0.5, 0.5, None, None] and restarts.used == 2
    assert Restarts(0, clock).ended() is None


@pytest.mark.parametrize(
    ("status", "words"), [(3, "ended with status 3"), (-9, "was ended by SIGKILL"), (-99, "was ended by signal 99")]
)
def test_how_a_process_ended_is_said_in_words(status, words):
    assert describe_exit(status) == words


# The address book's process.

SERVES = """
import sys, time
print(f"{sys.argv[1]}:4711", flush=True)
print(f"asked for {sys.argv[2]}", file=sys.stderr, flush=True)
time.sleep(60)
"""


def serving(folder, code=SERVES, **values):
    def command(address, port):
        return [sys.executable, "-c", code, address, str(port)]

    return BookProcess(make_job(folder, "", 1, serves_book=True, **values), command)


def test_a_book_that_dies_comes_back_at_the_same_port(tmp_path):
    book = serving(tmp_path)
    assert book.start() == "127.0.0.1:4711" and not book.look()
    first = book.pid
    os.kill(first, signal.SIGKILL)
    until(book.look)
    assert book.pid != first and alive(book.pid)
    until(lambda: "asked for 4711" in (tmp_path / "book.log").read_text())
    second = book.pid
    book.stop()
    assert not alive(second)


def test_a_book_that_cannot_be_served_is_a_line_with_its_last_words(tmp_path):
    book = serving(tmp_path, "raise SystemExit('gossamer: the port is taken')")
    with pytest.raises(UserError, match=r"cannot start the address book at .* \(gossamer: the port is taken\); see "):
        book.start()


def test_waiting_for_a_book_can_be_broken_off(tmp_path):
    book = serving(tmp_path, "import time; time.sleep(60)")
    assert book.start(lambda: True) == ""
    first = book.pid
    book.stop()
    assert not alive(first)
    report = Launcher(dataclasses.replace(make_job(tmp_path, "", 2), serves_book=True), book=lambda job: book).run(
        lambda: True
    )
    assert report.interrupted and report.outcomes == []


def test_a_book_with_a_key_is_told_where_it_is(tmp_path):
    code = "import os; print(os.environ['GOSSAMER_KEY_FILE'] + ':1', flush=True)"
    keyed = dataclasses.replace(make_job(tmp_path, "", 1).run, key_file="the-key")
    book = serving(tmp_path, code, run=keyed)
    assert book.start() == "the-key:1"
    book.stop()


# Logs.


def test_a_log_is_read_along_line_by_line(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    tail = Tail(path)
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b"one\ntw")
        file.flush()
        assert tail.read() == ["one"] and tail.read() == []
        file.write("o\r\n\nté".encode()[:-1])  # a letter of two bytes, cut
        file.flush()
        assert tail.read() == ["two", ""]
        file.write("é".encode()[-1:])
    assert tail.read(whole=True) == ["té"] and tail.read(whole=True) == []
    assert Tail(tmp_path / "none").read() == []


def test_the_last_words_are_the_last_line_with_something_in_it(tmp_path):
    path = tmp_path / "log"
    assert last_words(path) == ""
    path.write_text("x" * 10_000 + "\nTraceback\nValueError: no\n\n  \n")
    assert last_words(path) == "ValueError: no"


# Traces.


def test_the_records_of_all_agents_become_one_trace_that_can_be_replayed(tmp_path):
    (tmp_path / "trace-0.csv").write_text("step,from,to,delay\n0,1,0,2\n5,1,0,3\n7,1,0,1")  # the last one is cut
    (tmp_path / "trace-10.csv").write_text("step,from,to,delay\n4,2,1,9\n3,2,step,from,to,delay\n2,2,1,4\n4,2,1,5\n")
    assert merge_traces(tmp_path, tmp_path / "all.csv") == 5
    assert (tmp_path / "all.csv").read_text().splitlines() == [
        *("step,from,to,delay", "0,1,0,2", "2,2,1,4", "4,2,1,9", "4,2,1,5", "5,1,0,3")
    ]
    assert Trace(tmp_path / "all.csv").largest == 5  # what an agent said last of a step counts


# Plans.


def planned(folder, ranks=None, out=None, **given):
    script = folder / "train.py"
    script.write_text("")
    return make_launch(script, [], given, ranks=ranks, out=out, record=False, max_restarts=3)


def test_the_number_of_agents_is_the_networks_unless_it_is_given(folder):
    job = planned(folder, network="clusters:3,5").job
    assert (job.run.agents, job.ranks, job.run.network) == (8, tuple(range(8)), "clusters:3,5")
    assert planned(folder, agents="3").job.run.network == "complete:3"
    assert job.folder == planned(folder, agents="3").job.folder == job.folder.__class__("runs/launch-train")
    assert job.run.run.startswith("train-") and job.run.run != planned(folder, agents="3").job.run.run


@pytest.mark.parametrize(
    ("text", "ranks"), [(None, (0, 1, 2, 3, 4)), ("0-2", (0, 1, 2)), ("4,0-1,1", (0, 1, 4)), ("3", (3,))]
)
def test_ranks_are_numbers_and_ranges(text, ranks):
    assert parse_ranks(text, 5) == ranks


@pytest.mark.parametrize("text", ["5", "-1", "2-1", "0-9", "a", "", "1-"])
def test_ranks_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="--ranks"):
        parse_ranks(text, 5)


def test_where_others_can_reach_the_agents_a_key_is_made_and_removed(folder):
    made = planned(folder, agents="2", address="10.0.0.1")
    key = folder / "runs/launch-train/key"
    assert made.job.run.key_file == str(key)
    made.prepare(pytest.fail)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(bytes.fromhex(key.read_text())) == 32
    made.clean()
    assert not key.exists() and (key.parent / "launch.json").exists()


def test_a_key_that_the_user_names_is_made_once_and_kept(folder):
    told = []
    part = {"agents": "4", "address": "10.0.0.1", "key_file": "key", "book": "10.0.0.1:1", "run": "x"}
    first = planned(folder, ranks="0-1", **part)
    first.prepare(told.append)
    first.clean()
    text = (folder / "key").read_text()
    again = planned(folder, ranks="2-3", out=folder / "elsewhere", **part)
    again.prepare(pytest.fail)
    assert (folder / "key").read_text() == text and "every machine of the run needs a copy" in told[0]
    (folder / "key").unlink()
    with pytest.raises(UserError, match="copy the run's key there"):  # and no second key
        again.prepare(pytest.fail)


def test_the_book_is_served_where_it_is_to_be_and_is_not_yet(folder):
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # kept to the end, so that no other process can serve there
        port = server.getsockname()[1]
        given = {"agents": "2", "book": f"127.0.0.1:{port}"}
        job = planned(folder, **given).job
        assert job.serves_book and job.book_port == port
        parts = [planned(folder, ranks=ranks, run="x", **given).job.serves_book for ranks in ("0", "1")]
        server.listen()
        assert not planned(folder, **given).job.serves_book
    assert parts == [True, False]  # the part with agent 0, or two that start together would both
    assert not planned(folder, agents="2", book="localhost:9").job.serves_book  # elsewhere, as far as one can tell


def test_a_folder_is_for_one_run(folder):
    planned(folder, agents="2", run="mine", out=folder / "out").prepare(pytest.fail)
    assert json.loads((folder / "out/launch.json").read_text())["run"] == "mine"
    planned(folder, agents="2", run="mine", out=folder / "out")
    for other in ({"run": "another"}, {}):
        with pytest.raises(UserError, match="already exists"):
            planned(folder, agents="2", out=folder / "out", **other)


# What is shown.

ROWS = [
    {"rank": 0, "state": "running", "restarts": 0, "step": 12, "loss": 0.5, "ages": {"1": 0, "2": 3}, "predict": 0.25},
    {"rank": 1, "state": "waiting", "restarts": 2, "step": 9, "loss": 1.5, "ages": {"0": -1}, "predict": None},
    {"rank": 2, "state": "elsewhere", "restarts": 0, "ages": {str(peer): peer for peer in range(9)}},
]


def test_the_state_of_a_run_in_one_line():
    assert to_line(ROWS) == "1 running, 1 waiting, 1 elsewhere, step 9 to 12, loss 1, 2 restarts"
    assert to_line(ROWS[2:]) == "1 elsewhere"


def test_the_table_has_a_row_an_agent():
    console = Console(width=100)
    with console.capture() as capture:
        console.print(to_table(ROWS))
    words = [line.split() for line in capture.get().splitlines() if line.strip()]
    assert words[2:] == [
        ["0", "running", "12", "0.5", "1:0", "2:3", "25%", "0"],
        ["1", "waiting", "9", "1.5", "0:-", "-", "2"],
        ["2", "elsewhere", "-", "-", "0", "to", "8,", "median", "4", "-", "0"],
    ]


def test_off_a_terminal_there_is_a_line_now_and_then_while_agents_run(capsys, monkeypatch):
    monkeypatch.setattr("gossamer.cli.launch_view.LINE_EVERY", 0.0)
    for json_ in (False, True):
        with LaunchView(None, 3, json=json_).shown() as view:
            view.status(ROWS)
            view.event("agent 1 died")
            view.status([{"rank": 0, "state": "done", "restarts": 0}])
        line = [] if json_ else [f"gossamer: {to_line(ROWS)}"]
        assert capsys.readouterr().err.splitlines() == [*line, "gossamer: agent 1 died"]


@pytest.mark.parametrize(
    ("logs", "json_", "heard"),
    [(None, False, [0]), (None, True, []), ("1", True, [1]), ("all", False, [0, 1, 2]), ("none", False, [])],
)
def test_whose_output_is_shown(logs, json_, heard):
    view = LaunchView(logs, 3, json=json_)
    assert [rank for rank in range(3) if view.listens_to(rank)] == heard


@pytest.mark.parametrize("logs", ["3", "-1", "some"])
def test_output_of_nobody_cannot_be_shown(logs):
    with pytest.raises(UserError, match="logs must be all, none or an agent from 0 to 2"):
        LaunchView(logs, 3, json=False)
