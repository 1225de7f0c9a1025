"""`gossamer watch`: a run's folder followed, and the page's server."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from flight import SOURCE
from gossamer.errors import UserError
from gossamer.report.watch import follower as follower_module
from gossamer.report.watch.follower import Follower
from gossamer.report.watch.run_state import Health, seconds_left
from gossamer.report.watch.watched_folder import newest_run
from gossamer.run.status import StatusFile
from runs import begin, outcome
from waiting import until
from watching import PATIENCE, events, get, serving

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Look as often as asked: nobody waits a second for a file."""
    monkeypatch.setattr(follower_module, "EVERY", 0.0)
    monkeypatch.setattr(follower_module, "SELDOM", 0.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("watch") / "run"
    run, folder = begin(path, algorithm="pc-asgd")
    run.run(folder)
    return path


@pytest.fixture
def run(finished, tmp_path):
    """A run that has been going on for some rows."""
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    (path / "summary.json").unlink()
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(lines[:4]))
    tell(path, 20)
    return path, lines[4:]


def tell(path, step, status="running", agents=None, **more):
    agents = agents or [{"state": "alive", "step": step}] * 8
    StatusFile(path, steps=36, steps_per_epoch=12).write(step, 2.0 * step, agents, status=status, **more)


def add(path, text):
    with (path / "metrics.jsonl").open("a") as file:
        file.write(text)


def steps_of(follower):
    return follower.model[1]["runs"][0]["places"]["iterations"]


# Following a folder.


def test_rows_come_as_they_are_written_and_half_a_line_waits(run):
    path, rest = run
    follower = Follower(path)
    assert steps_of(follower) == [0, 5, 10, 15]
    add(path, rest[0][:30])
    follower.look()
    assert steps_of(follower) == [0, 5, 10, 15]
    add(path, rest[0][30:] + rest[1])
    follower.look()
    assert steps_of(follower) == [0, 5, 10, 15, 20, 25]


def test_only_what_is_new_is_read(run, monkeypatch):
    path, rest = run
    follower, read = Follower(path), []
    real = follower_module.json.loads
    monkeypatch.setattr(follower_module.json, "loads", lambda text: read.append(text) or real(text))
    for row in rest[:2]:
        add(path, row)
        follower.look()
    assert [text + "\n" for text in read if "accuracy" in text] == rest[:2]


def test_nothing_new_makes_no_new_number(run):
    path, rest = run
    follower = Follower(path)
    before = follower.model[0], follower.live[0]
    follower.look()
    assert (follower.model[0], follower.live[0]) == before
    add(path, rest[0])
    follower.look()
    assert follower.model[0] > before[0] and follower.live[0] == before[1]
    tell(path, 21)
    follower.look()
    assert follower.live[0] > before[1]


def test_a_resumed_run_drops_the_rows_behind_its_checkpoint(run):
    path, _ = run
    follower = Follower(path)
    kept = (path / "metrics.jsonl").read_text().splitlines(keepends=True)[:2]
    (path / "new").write_text("".join(kept))
    (path / "new").replace(path / "metrics.jsonl")
    follower.look()
    assert steps_of(follower) == [0, 5]


def test_a_run_without_a_row_yet_can_be_followed(run):
    path, _ = run
    (path / "metrics.jsonl").write_text("")
    (path / "status.json").unlink()
    follower = Follower(path)
    assert steps_of(follower) == [] and follower.live[1]["state"] == "waiting"
    assert all(not chart["curves"] for chart in follower.model[1]["charts"])


def test_a_folder_that_vanishes_is_told_and_may_come_back(run):
    path, _ = run
    follower = Follower(path)
    path.rename(path.with_name("elsewhere"))
    follower.look()
    assert follower.live[1]["state"] == "vanished" and steps_of(follower) == [0, 5, 10, 15]
    path.with_name("elsewhere").rename(path)
    follower.look()
    assert follower.live[1]["state"] == "running"


def test_a_folder_that_goes_away_while_it_is_read_anew_is_told_too(run, monkeypatch):
    path, _ = run
    follower = Follower(path)
    (path / "config.toml").unlink()  # the first file that goes makes it read anew

    def read(folder):
        shutil.rmtree(folder)
        return any(folder.iterdir())

    monkeypatch.setattr(follower_module, "read_any", read)
    follower.look()
    follower.look()
    assert follower.live[1]["state"] == "vanished" and steps_of(follower) == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("status", "state"), [("finished", "ended"), ("interrupted", "ended"), ("the loss of agent 3 is nan", "failed")]
)
def test_a_run_that_ends_is_told_with_how(run, status, state):
    path, _ = run
    follower = Follower(path)
    tell(path, 36, status)
    follower.look()
    assert follower.live[1]["state"] == state and status in follower.live[1]["words"]


def test_a_run_that_was_killed_is_told(run):
    path, _ = run
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    document = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps({**document, "pid": dead.pid}))
    assert Follower(path).live[1]["state"] == "gone"
    (path / "status.json").write_text(json.dumps({**document, "host": "another", "time": time.time() - 60}))
    assert Follower(path).live[1]["state"] == "silent"


def test_the_newest_run_is_found(tmp_path):
    with pytest.raises(UserError, match="there is no run in"):
        newest_run(tmp_path)
    for age, name in enumerate(("late/config.toml", "compared/runs/early/config.toml", "launched/launch.json")):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("")
        os.utime(file, (1000 - age, 1000 - age))
    assert newest_run(tmp_path) == tmp_path / "late"
    (tmp_path / "compared/runs/early/status.json").write_text("{}")
    assert newest_run(tmp_path) == tmp_path / "compared/runs/early"


# What is said of a run and its agents.


def test_time_left_is_the_rest_at_the_pace_so_far():
    status = {"step": 100, "steps": 400, "seconds": 50.0}
    assert seconds_left(status, None) == 150.0
    # The first part was run elsewhere, and slower: what was seen counts.
    assert seconds_left(status, {"step": 20, "seconds": 30.0}) == 75.0
    assert seconds_left(status, {"step": 90, "seconds": 40.0}) == 150.0  # too short to tell
    assert seconds_left({**status, "steps": None}, None) is None
    assert seconds_left({**status, "step": 0}, None) is None


def rows(losses, distances=()):
    distances = distances or [1.0] * len(losses)
    return [
        {"step": 5 * k, "loss": [1.0, loss], "consensus": [1.0, distance]}
        for k, (loss, distance) in enumerate(zip(losses, distances, strict=True))
    ]


@pytest.mark.parametrize(
    ("history", "newest", "flags"),
    [
        (rows([2.0, 1.0, 0.1, 1.9]), None, []),  # many times its best, but it began higher
        (rows([2.0, 1.0, 0.1, 2.1]), None, ["diverging"]),
        (rows([2.0, 1.0, 0.1, 0.2]), 2.1, ["diverging"]),
        (rows([2.0, 3.0, 9.0, 15.0]), None, []),  # worse, by less than ten times
        (rows([2.0, 1.0, None]), None, ["not finite"]),
        (rows([1.0] * 5, [0.0, 1.0, 1.0, 1.0, 101.0]), None, ["diverging"]),
        (rows([1.0] * 5, [0.0, 1e-9, 1.0, 1.0, 99.0]), None, []),
    ],
)
def test_agents_in_trouble_are_flagged(history, newest, flags):
    health = Health(2)
    for row in history:
        health.add(row)
    assert health.flags(0, None, nonfinite=False) == [] and health.flags(1, newest, nonfinite=False) == flags
    assert health.flags(0, None, nonfinite=True) == ["not finite"]


@pytest.mark.parametrize(
    "change", [{"status": 3}, {"time": "now"}, {"agents": [{}]}, {"ages": [[1]]}, {"losses": "?"}, {"events": [1]}]
)
def test_a_status_that_no_run_has_written_is_passed_over(run, change):
    path, _ = run
    document = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps({**document, **change}))
    live = Follower(path).live[1]
    assert live["state"] == "waiting" and [agent["state"] for agent in live["agents"]] == ["alive"] * 8


# Bad input.


def foreign(path):
    (path / "notes.txt").write_text("mine")


def half_a_config(path):
    (path / "config.toml").write_text('task = "digits"\nnetwork = "clus')


def foreign_config(path):
    (path / "config.toml").write_text("[tool]\nname = 1\n")


def half_a_note(path):
    (path / "launch.json").write_text('{"run": "x", "sett')


@pytest.mark.parametrize("spoil", [lambda path: None, foreign, half_a_config, foreign_config, half_a_note])
def test_a_folder_that_is_no_run_gives_one_line_that_names_it(folder, command, spoil):
    (folder / "there").mkdir()
    spoil(folder / "there")
    assert "there" in command.refused("watch", "there")


def test_what_is_not_there_gives_one_line_that_names_it(folder, command):
    assert "'gone'" in command.refused("watch", "gone")
    (folder / "file").write_text("")
    assert "'file' is a file" in command.refused("watch", "file")
    assert "'runs'" in command.refused("watch")


# Who may look.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "without a token only 127.0.0.1 is allowed"),
        (["--host", "::"], "without a token only 127.0.0.1 is allowed"),
        (["--host", "example.org"], "without a token only 127.0.0.1 is allowed"),
        (["--host", "0.0.0.0", "--token", "short"], "at least 16"),
        (["--token", "0123456789abcdé "], "at least 16"),
        (["--port", "65536"], "between 0 and 65535"),
        (["--host", "203.0.113.7", "--token", TOKEN], "cannot listen on 203.0.113.7"),
    ],
)
def test_a_place_that_is_not_allowed_is_refused_in_one_line(run, command, arguments, words):
    assert words in command.refused("watch", run[0], *arguments)


def test_a_port_that_is_taken_is_told(run, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in command.refused("watch", run[0], "--port", taken.getsockname()[1])


def test_the_page_answers_to_its_own_names_only(run):
    with serving(run[0]) as url:
        port = url.rstrip("/").rpartition(":")[2]
        assert get(url)[0] == get(url, Host=f"localhost:{port}")[0] == 200
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            assert get(url, Host=name)[0] == get(url, "/events", Host=name)[0] == 400


def test_without_the_token_nothing_is_shown(run):
    with serving(run[0], token=TOKEN) as url:
        for path in ("/", "/events", "/nothing", "/?token=0123456789abcdeF", "/?token="):
            status, _, text = get(url, path)
            assert status == 401 and "gossamer" not in text
        assert get(url, Authorization=f"Bearer {TOKEN}x")[0] == 401
        assert get(url, Authorization=f"Bearer {TOKEN}")[0] == 200
        status, headers, _ = get(url, f"/?token={TOKEN}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert get(url, Cookie=cookie.partition(";")[0])[0] == 200
        assert get(url, Cookie="gossamer-watch=wrong")[0] == 401


# The page and its events.


def test_the_page_holds_the_run_and_asks_nothing_of_others(run):
    with serving(run[0]) as url:
        status, headers, text = get(url)
        assert status == 200 and headers["cache-control"] == "no-store"
        assert "connect-src 'self'" in text and "default-src 'none'" in text
        assert '"iterations":[0,5,10,15]' in text and "EventSource" in text
        assert get(url, "/nothing")[0] == 404


def test_events_tell_what_is_new_and_nothing_else(run):
    path, rest = run
    with serving(path) as url, events(url) as stream:
        assert [kind for kind, _ in (next(stream), next(stream))] == ["model", "status"]
        tell(path, 25)
        kind, live = next(stream)
        assert (kind, live["step"], live["left"]) == ("status", 25, 22.0)
        add(path, rest[0])
        kind, model = next(stream)
        assert (kind, model["runs"][0]["places"]["iterations"][-1]) == ("model", 20)
        tell(path, 36, "finished")
        assert next(stream)[1]["words"] == "The run has ended: finished."


@pytest.mark.timeout(600)
def test_a_watched_run_ends_the_same_when_its_watcher_is_killed(folder, command):
    """And Ctrl+C ends a page in order, with somebody still looking at it."""
    flags = [*("--model", "linear", "--epochs", "100", "--delay", "5", "--eval-every", "30", "--execution", "stacked")]
    command.well("train", *flags, "--out", "alone")
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    train = subprocess.Popen([sys.executable, "-m", "gossamer", "train", *flags, "--out", "run"], env=environment)
    until((folder / "run/status.json").exists, 120)
    for number in (signal.SIGKILL, signal.SIGINT):
        watch = [sys.executable, "-m", "gossamer", "watch", "run", "--json"]
        page = subprocess.Popen(watch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = json.loads(page.stdout.readline())["url"]
        with events(url) as stream:
            assert next(stream)[0] == "model"
            page.send_signal(number)
            out, err = page.communicate(timeout=PATIENCE)
    assert (page.returncode, out, err) == (0, "", "")
    assert train.wait(300) == 0
    assert outcome(folder / "run") == outcome(folder / "alone")
