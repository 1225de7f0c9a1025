"""`gossamer launch` as a user meets it: output, exit statuses, signals, and nothing left behind."""

import json
import math
import os
import signal
import time
from pathlib import Path

import pytest

import gossamer as gm
from command import files_under
from gossamer.runtime.launch.child_processes import find_processes
from launching import alive, in_a_shell, lives, pids, write_script
from waiting import until

# An address book elsewhere that nobody serves, and no torch: these agents need neither, and both take seconds.
BOOK = ("--book", "localhost:9", "--no-preload")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """However slow the machine is: no lines about agents that take long, and a start remains a start."""
    monkeypatch.setattr("gossamer.cli.launch_view.LINE_EVERY", math.inf)
    monkeypatch.setattr("gossamer.runtime.launch.agent_process.BEGINNING", 60.0)


def shared_memory(run):
    return [path.name for path in Path("/dev/shm").iterdir() if run in path.name]


def test_launch_json_is_one_object_and_nothing_is_left(command, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(gm.__file__).parents[1]))  # for the address book
    write_script(folder, "print('hello', *sys.argv[1:])")
    document = command.well(
        "launch", "--agents", 2, "--out", "out", "--json", "script.py", "--json", "--agents"
    ).document
    assert document["agents"] == [{"rank": rank, "exit": 0, "restarts": 0, "status": None} for rank in range(2)]
    assert (document["network"], document["algorithm"]) == ("complete:2", "pc-asgd") and document["seconds"] > 0
    assert (document["failed"], document["interrupted"], document["run_dir"]) == ([], False, "out")
    (life,) = lives(folder / "out", 1)
    assert life["argv"][1:] == ["--json", "--agents"]  # what follows the script is the script's
    host, port = life["environ"]["GOSSAMER_BOOK"].split(":")
    assert host == "127.0.0.1" and int(port) > 0 and life["environ"]["GOSSAMER_RUN"] == document["run"]
    assert find_processes(run=document["run"]) == [] and shared_memory(document["run"]) == []
    names = {path.name for path in (folder / "out").glob("*.log")}
    assert names == {"agent-0.log", "agent-1.log", "book.log"}


def test_launch_for_people_shows_the_first_agent_and_says_where_the_rest_is(command, folder):
    write_script(folder, "print('I am', rank)")
    out = command.well("launch", "--agents", 2, *BOOK, "script.py").out.splitlines()
    assert out[0] == "I am 0" and len(out) == 2
    assert out[1].startswith("2 agents finished after ") and out[1].endswith("; their logs are in runs/launch-script")
    shown = command.well("launch", "--agents", 2, *BOOK, "--logs", "all", "script.py").out.splitlines()
    assert sorted(shown[:2]) == ["[0] I am 0", "[1] I am 1"] and shown[2].endswith("runs/launch-script-2")


def test_settings_reach_the_agents(command, folder):
    write_script(folder, "")
    command.well(
        *("launch", "--network", "clusters:1,2", "--delay", 3, "--loss", 0.1, "--algorithm", "pc-asgd/theta=pv"),
        *("--transport", "sockets", "--compress", "topk:0.01", "--deadline", 7, "--lockstep", "--tolerance", 2),
        *("--max-age", 9, "--seed", 5, "--faults", "loss:0.1", "--run", "my-run", *BOOK, "--out", "out", "script.py"),
    )
    own = {
        key: value
        for key, value in lives(folder / "out", 2)[0]["environ"].items()
        if key.startswith("GOSSAMER_") and key != "GOSSAMER_DATA"
    }
    del own["GOSSAMER_LAUNCHER"]
    expected = {
        "RANK": "2",
        "AGENTS": "3",
        "RUN": "my-run",
        "NETWORK": "clusters:1,2",
        "DELAY": "3",
        "LOSS": "0.1",
        "ALGORITHM": "pc-asgd/theta=pv",
        "TRANSPORT": "sockets",
        "COMPRESS": "topk:0.01",
        "DEADLINE": "7.0",
        "LOCKSTEP": "1",
        "TOLERANCE": "2",
        "MAX_AGE": "9",
        "SEED": "5",
        "FAULTS": "loss:0.1",
        "BOOK": "localhost:9",
        "FOLDER": str(folder / "out"),
    }
    assert own == {f"GOSSAMER_{name}": value for name, value in expected.items()}


def test_a_part_of_a_run(command, folder):
    write_script(folder, "")
    part = ("launch", "--agents", 4, *BOOK, "--run", "both", "--out", "out")
    command.well(*part, "--ranks", "2-3", "script.py")
    assert [len(lives(folder / "out", rank)) for rank in range(4)] == [0, 0, 1, 1]
    document = command.well(*part, "--ranks", "0,1", "--json", "script.py").document  # into the same folder
    assert [one["rank"] for one in document["agents"]] == [0, 1]
    assert [len(lives(folder / "out", rank)) for rank in range(4)] == [1, 1, 1, 1]


def test_an_agent_that_fails_for_good_is_named_and_the_status_is_1(command, folder):
    write_script(folder, "if rank == '1': sys.exit(7)")
    outcome = command("launch", "--agents", 2, *BOOK, "--max-restarts", 0, "--logs", "none", "script.py")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [
        "gossamer: agent 1 ended with status 7 and is not restarted; its log is runs/launch-script/agent-1.log",
        "gossamer: agent 1 of 2 failed; see runs/launch-script/agent-1.log",
    ]
    document = command("launch", "--agents", 2, *BOOK, "--max-restarts", 0, "--json", "script.py").document
    assert document["failed"] == [1] and document["agents"][1]["exit"] == 7


def test_a_mistake_that_all_agents_have_in_common_is_told_soon(command, folder):
    (folder / "script.py").write_text("1 / 0")
    outcome = command("launch", "--agents", 2, *BOOK, "--max-restarts", 90, "--logs", "none", "script.py")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines()[-1] == (
        "gossamer: every agent ended with status 1 at its start (ZeroDivisionError: division by zero); "
        "see runs/launch-script/agent-0.log"
    )


def test_ages_are_recorded_in_one_file(command, folder):
    body = (
        "open(os.path.join(folder, f'trace-{rank}.csv'), 'w').write(f'step,from,to,delay\\n{9 - int(rank)},1,0,4\\n')"
    )
    write_script(folder, body)
    outcome = command.well("launch", "--agents", 2, *BOOK, "--record", "ages.csv", "--logs", "none", "script.py")
    assert (folder / "ages.csv").read_text() == "step,from,to,delay\n8,1,0,4\n9,1,0,4\n"
    ages, times = outcome.out.splitlines()[:2]
    assert ages == "2 ages are in ages.csv; gossamer train --delay trace:ages.csv replays them in steps"
    assert times.startswith("the times are in ") and times.endswith(" replays them in seconds")
    assert "ages.csv" in command.refused("launch", "--agents", 2, "--record", "ages.csv", "script.py")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agents", 2, "missing.py"), "there is no script 'missing.py'"),
        (("script.py",), "the number of agents is missing"),
        (("--agents", "two", "script.py"), "agents must be a whole number, got 'two'"),
        (("--agents", 0, "script.py"), "the number of agents is missing"),
        (("--agents", 3, "--network", "ring:4", "script.py"), "'ring:4' has 4 agents but the run has 3"),
        (("--agents", 2, "--compress", "zip", "script.py"), "unknown compression 'zip'"),
        (("--agents", 2, "--faults", "rain", "script.py"), "unknown fault 'rain'"),
        (("--agents", 2, "--algorithm", "pc-asgd/theta", "script.py"), "'theta' in 'pc-asgd/theta' is not an option"),
        (("--agents", 2, "--algorithm", "pc-asgd/wrong=1", "script.py"), "unknown option of pc-asgd 'wrong'"),
        (("--agents", 2, "--max-restarts", -1, "script.py"), "max-restarts must be 0 or more, got -1"),
        (("--agents", 2, "--logs", 2, "script.py"), "logs must be all, none or an agent from 0 to 1, got '2'"),
        (("--agents", 4, "--ranks", "0-1", "script.py"), "give --book and --run as well"),
        (("--agents", 4, "--ranks", "0-4", "script.py"), "--ranks 0-4 must lie between 0 and 3"),
        (("--agents", 2, "--torchrun", "--ray", "script.py"), "--torchrun and --ray cannot both"),
        (("--agents", 2, "--cpus-per-agent", 1, "script.py"), "--cpus-per-agent is for agents on Ray; add --ray"),
        (("--agents", 2, "--ray", "--ranks", "0", "script.py"), "Ray places all agents"),
        (("--agents", 2, "--key-file", "script.py", "script.py"), "key file"),
        ((), "Missing argument 'SCRIPT'"),
    ],
)
def test_mistakes_are_refused_before_anything_is_started(command, folder, arguments, words):
    (folder / "script.py").write_text("")
    assert words in command.refused("launch", *arguments)
    assert not [name for name in files_under(folder) if name.endswith(".log")]


# Signals.

WAITS = "wait_for_ever()"
DEAF = """
signal.signal(signal.SIGINT, lambda *_: note("told"))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait_for_ever()
"""


@pytest.fixture
def launched(folder):
    """Starts two agents in a shell, and returns the launcher and the name of the run once they are at work."""
    processes = []

    def launch(body, *arguments):
        write_script(folder, body)
        run = f"test-{os.getpid()}-{time.monotonic_ns()}"
        made = in_a_shell(folder, "--agents", 2, "--out", "out", "--run", run, *arguments, "script.py")
        processes.append(made)
        until(lambda: all((folder / f"out/ready-{rank}.jsonl").exists() for rank in range(2)), 120)
        assert set(pids(folder / "out", 2)) <= set(find_processes(run=run))
        return made, run

    yield launch
    for process in processes:
        process.kill()
        process.communicate()


def test_sigterm_ends_all_agents_and_the_book(folder, launched):
    process, run = launched(WAITS, "--json")
    everyone = find_processes(run=run)
    assert len(everyone) == 4  # the address book and the fork server too
    Path(f"/dev/shm/gossamer-{run}-0").write_bytes(b"left by an agent")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143 and err == "gossamer: interrupted; the logs are in out\n"
    document = json.loads(out)
    assert document["interrupted"] and [one["exit"] for one in document["agents"]] == [-signal.SIGINT] * 2
    assert not any(alive(pid) for pid in everyone) and find_processes(run=run) == shared_memory(run) == []


def test_a_second_interrupt_ends_agents_that_do_not_listen_at_once(folder, launched):
    process, run = launched(DEAF, *BOOK)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    until(lambda: all((folder / f"out/told-{rank}.jsonl").exists() for rank in range(2)))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.endswith("gossamer: interrupted\n")
    assert time.monotonic() - begun < 60  # before they would have been pressed
    assert not any(alive(pid) for pid in pids(folder / "out", 2)) and find_processes(run=run) == []


def test_agents_and_book_do_not_outlive_a_launcher_that_is_killed(folder, launched):
    process, run = launched(DEAF)
    everyone = find_processes(run=run)
    assert len(everyone) == 4
    process.kill()
    until(lambda: not any(alive(pid) for pid in everyone))
