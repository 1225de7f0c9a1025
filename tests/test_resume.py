import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

import gossamer as gm
from command import Command, files_under
from gossamer.cli.interrupt import Interrupt
from gossamer.engine import Training
from gossamer.engine.folder import RunFolder
from gossamer.engine.history import Drift
from gossamer.engine.settings import make_settings

BASE = {"model": "linear", "epochs": 3, "delay": "5", "lr": 0.1, "eval_every": 5}  # 36 steps, evaluated at 5, 10, …

# Every algorithm, every kind of delay, every part of the state: momentum, sliding sums, many ages, chance.
CASES = {
    "sync": {"algorithm": "sync", "momentum": 0.9},
    "d-asgd, gilbert and loss": {"algorithm": "d-asgd", "delay": "gilbert:0.2,0.3,6", "loss": 0.2},
    "d-asgd, late inside clusters": {"algorithm": "d-asgd", "reliable_delay": 1},
    "p-asgd": {"algorithm": "p-asgd", "momentum": 0.9, "nesterov": True},
    "p-asgd, uniform": {"algorithm": "p-asgd", "delay": "uniform:1,8"},
    "c-asgd": {"algorithm": "c-asgd", "weight_decay": 1e-3},
    "c-asgd, late inside clusters": {"algorithm": "c-asgd", "reliable_delay": 2},
    "pc-asgd": {"algorithm": "pc-asgd"},
    "pc-asgd, float64": {"algorithm": "pc-asgd", "dtype": "float64", "momentum": 0.5},
    "pc-asgd, pv, fresh batch": {"algorithm": "pc-asgd", "theta": "pv", "test_batch": "fresh", "momentum": 0.9},
    "pc-asgd, bernoulli, uniform, loss": {
        "algorithm": "pc-asgd",
        "theta": "bernoulli:0.5",
        "delay": "uniform:1,8",
        "loss": 0.3,
    },
    "pc-asgd, gilbert": {"algorithm": "pc-asgd", "theta": "uniform", "delay": "gilbert:0.2,0.3,6,1", "loss": 0.1},
    "pc-asgd, geometric, ring": {"algorithm": "pc-asgd", "delay": "geometric:0.5", "network": "ring:8"},
    "pc-asgd, trace": {"algorithm": "pc-asgd", "theta": "pv", "delay": "trace:trace.csv", "momentum": 0.9},
    "pc-asgd, matrix": {"algorithm": "pc-asgd", "delay": "matrix:matrix.csv"},
    "pc-asgd, delay in epochs": {"algorithm": "pc-asgd", "delay": "1", "delay_unit": "epoch"},
    "dm-asgd": {"algorithm": "dm-asgd", "schedule": "cosine", "warmup": 0.5},
    "dm-asgd, trace and loss": {"algorithm": "dm-asgd", "delay": "trace:trace.csv", "loss": 0.2},
    "dm-asgd, startup full": {"algorithm": "dm-asgd", "startup": "full", "delay": "uniform:2,6"},
}

# Before the first step, before the first late message, on and between evaluations, past two rebuilds, near the end.
STOPS = (0, 3, 5, 16, 17, 35)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pairs = [(i, k) for i in range(8) for k in range(8) if i != k]
    rows = [f"{step},{i},{k},{rng.integers(0, 7)}" for step in range(0, 20, 4) for i, k in pairs]
    (tmp_path / "trace.csv").write_text("\n".join(["step,from,to,delay", *rows]) + "\n")
    np.savetxt(tmp_path / "matrix.csv", rng.integers(0, 7, (8, 8)), fmt="%d", delimiter=",")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capsys):
    return Command(capsys)


def begin(path, **values):
    training = Training(make_settings({**BASE, **values}))
    return training, RunFolder.create(path, training.settings, training.network)


def take_up(path):
    folder, settings = RunFolder.open(path)
    training = Training(settings)
    training.resume(folder)
    return training, folder


def outcome(path):
    return {name: (path / name).read_bytes() for name in ("metrics.jsonl", "checkpoint.npz")}


def run_in_pieces(path, stops, **values):
    training, folder = begin(path, **values)
    for stop in stops:
        result = training.run(folder, stop=lambda training=training, stop=stop: training.simulation.t >= stop)
        assert (result.summary["status"], result.summary["iterations"]) == ("interrupted", stop)
        training, folder = take_up(path)
    return training.run(folder)


@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_anywhere_and_resumed_ends_byte_for_byte_the_same(folder, monkeypatch, case):
    monkeypatch.setattr(Drift, "REBUILD", 6)
    training, run_folder = begin(folder / "whole", **CASES[case])
    whole = training.run(run_folder)
    pieces = run_in_pieces(folder / "pieces", STOPS, **CASES[case])
    assert outcome(folder / "pieces") == outcome(folder / "whole")
    varying = ("seconds", "run_dir", "network", "delay")  # a copied file has another name
    assert {**pieces.summary, **dict.fromkeys(varying)} == {**whole.summary, **dict.fromkeys(varying)}
    assert torch.equal(pieces.x, whole.x) and pieces.history == whole.history
    assert not list(folder.rglob("*tmp*"))


def test_the_sliding_sums_are_in_the_checkpoint_and_matter(folder, monkeypatch):
    """A resumed run that summed anew would round otherwise: the case above can go red."""
    run_in_pieces(folder / "sums", [9], algorithm="pc-asgd")
    training, run_folder = begin(folder / "cut", algorithm="pc-asgd")
    training.run(run_folder, stop=lambda: training.simulation.t >= 9)
    state = run_folder.load()
    assert {"simulation.mailbox.drift.sum.5", "simulation.mailbox.drift.position"} <= set(state)
    state["simulation.mailbox.drift.sum.5"] += 1e-3
    run_folder.save(state)
    resumed, run_folder = take_up(folder / "cut")
    resumed.run(run_folder)
    assert outcome(folder / "cut") != outcome(folder / "sums")


def test_seconds_add_up_over_the_parts_of_a_run(folder):
    training, run_folder = begin(folder / "run")
    first = training.run(run_folder, stop=lambda: training.simulation.t >= 20).summary["seconds"]
    resumed, run_folder = take_up(folder / "run")
    assert resumed.run(run_folder).summary["seconds"] > first > 0


class Crash(Exception):
    pass


def _crash_at(crash_at):
    def crash(step, row):
        if step == crash_at:
            raise Crash

    return crash


@pytest.mark.parametrize("crash_at", [13, 24, 30])
def test_after_a_crash_the_rows_behind_the_last_checkpoint_are_dropped_and_made_again(folder, crash_at):
    values = {"algorithm": "pc-asgd", "checkpoint_every": 1, "eval_every": 1}
    training, run_folder = begin(folder / "whole", **values)
    training.run(run_folder)

    training, run_folder = begin(folder / "crashed", **values)
    with pytest.raises(Crash):
        training.run(run_folder, on_step=_crash_at(crash_at))
    resumed, run_folder = take_up(folder / "crashed")
    assert resumed.simulation.t == crash_at // 12 * 12
    resumed.run(run_folder)
    assert outcome(folder / "crashed") == outcome(folder / "whole")


def test_resuming_a_finished_run_changes_nothing(folder, command):
    command.well("train", "--epochs", 2, "--delay", 5, "--out", "run")
    before = files_under(folder)
    resumed = command("train", "--resume", "run", "--json")
    assert files_under(folder) == before
    assert resumed.err == "gossamer: the run in run has finished already; this is its summary\n"
    kept = json.loads((folder / "run/summary.json").read_text())
    assert resumed.status == 0 and {**resumed.document, "seconds": 0} == {**kept, "seconds": 0}


def test_a_run_killed_before_its_last_summary_gets_one(folder, command):
    command.well("train", "--epochs", 2, "--delay", 5, "--out", "run")
    before = outcome(folder / "run")
    (folder / "run/summary.json").unlink()
    assert command.well("train", "--resume", "run", "--json").document["status"] == "finished"
    assert (folder / "run/summary.json").exists() and outcome(folder / "run") == before


def test_resuming_a_diverged_run_changes_nothing(folder, command):
    assert command("train", "--epochs", 2, "--delay", 5, "--lr", 1e6, "--out", "run").status == 1
    before = outcome(folder / "run")
    assert command("train", "--resume", "run").status == 1
    assert outcome(folder / "run") == before


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
def test_the_config_of_a_run_repeats_it(folder, monkeypatch, case):
    monkeypatch.setattr(Drift, "REBUILD", 6)
    training, run_folder = begin(folder / "first", **CASES[case])
    training.run(run_folder)
    for name in ("trace.csv", "matrix.csv"):
        (folder / name).unlink()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = RunFolder.open(folder / "first")[1]
    again = Training(settings)
    again.run(RunFolder.create(elsewhere / "again", again.settings, again.network))
    assert outcome(elsewhere / "again") == outcome(folder / "first")


def path_graph():
    return nx.relabel_nodes(nx.path_graph(5), dict(enumerate("abcde")))


NETWORKS = {
    "graph": lambda: gm.network(path_graph(), 4),
    "graph with clusters": lambda: gm.network(path_graph(), 4, clusters="2,3"),
    "graph with a matrix": lambda: gm.network(path_graph(), np.triu(np.full((5, 5), 3))),
    "matrix on clusters": lambda: gm.network("clusters:2,3", np.arange(25).reshape(5, 5) % 6, clusters="1,4"),
    "trace of rows": lambda: gm.network("ring:4", gm_trace()),
    "trace on a graph": lambda: gm.network(nx.cycle_graph(4), gm_trace(), loss=0.2, clusters="2,2"),
    "one cluster": lambda: gm.network("ring:4", 3, clusters=[4]),
    "reliable but lossy": lambda: gm.network("random:6,p=0.7,seed=1", 3, loss=0.3, mixing="uniform", lazy=True),
}


def gm_trace():
    from gossamer.network import Trace

    return Trace([(0, 0, 1, 2), (3, 0, 1, 5), (2, 1, 2, 1)])


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_config_repeats_a_run_on_a_network_given_as_an_object(folder, command, monkeypatch, kind):
    gm.simulate(network=NETWORKS[kind](), algorithm="pc-asgd", epochs=1, model="linear", out="first")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    command.well("train", folder / "first/config.toml", "--out", "again")
    assert outcome(elsewhere / "again") == outcome(folder / "first")


def test_the_config_repeats_a_run_on_a_network_with_discovered_clusters(folder, command):
    found = gm.network("complete:4", 3).with_clusters(((0, 1), (2, 3)))
    gm.simulate(network=found, algorithm="d-asgd", epochs=1, out="first")
    command.well("train", "first/config.toml", "--out", "again")
    assert outcome(folder / "again") == outcome(folder / "first")


def test_files_of_the_same_name_in_the_present_folder_do_not_disturb_a_run(folder, command):
    (folder / "net.json").write_text(json.dumps({"agents": 4, "links": [[0, 1], [1, 2], [2, 3]]}))
    (folder / "late.csv").write_text("step,from,to,delay\n0,0,1,3\n")
    arguments = ("--epochs", 1, "--network", "file:net.json", "--delay", "trace:late.csv")
    command.well("train", *arguments, "--out", "first")
    (folder / "network.json").write_text(json.dumps({"agents": 2, "links": [[0, 1]]}))
    (folder / "trace.csv").write_text("step,from,to,delay\n0,1,0,1\n")
    command.well("train", "first/config.toml", "--out", "again")
    assert outcome(folder / "again") == outcome(folder / "first")
    assert command("train", "--resume", "first").status == 0
    assert outcome(folder / "again") == outcome(folder / "first")


def test_a_run_folder_can_be_moved(folder, command):
    (folder / "net.json").write_text(json.dumps({"agents": 3, "links": [[0, 1], [1, 2]], "delay": [[3] * 3] * 3}))
    training, _ = begin(folder / "here", network="file:net.json", delay=None, clusters=None)
    training.run(RunFolder(folder / "here"), stop=lambda: training.simulation.t >= 10)
    (folder / "net.json").unlink()
    (folder / "here").rename(folder / "there")
    summary = command.well("train", "--resume", "there", "--json").document
    assert (summary["status"], summary["agents"], summary["run_dir"]) == ("finished", 3, "there")


class Signals:
    """Sends this process a signal on each of some calls of a method."""

    def __init__(self, monkeypatch, owner, name, sent):
        self.calls, self._real, self._sent = 0, getattr(owner, name), sent
        monkeypatch.setattr(owner, name, lambda *arguments: self._call(*arguments))

    def _call(self, *arguments):
        self.calls += 1
        if self.calls in self._sent:
            os.kill(os.getpid(), self._sent[self.calls])
        return self._real(*arguments)


LONG = ("--model", "linear", "--epochs", 5, "--eval-every", 6, "--delay", 5)  # 60 steps, 11 rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_iteration_saves_and_ends_well_with_the_command_to_go_on(
    folder, command, monkeypatch, number
):
    command.well("train", *LONG, "--out", "whole")
    with monkeypatch.context() as patch:
        Signals(patch, RunFolder, "append", {4: number})  # at step 18
        cut = command("train", *LONG, "--out", "my run's", "--json")
    assert cut.status == 0 and (cut.document["status"], cut.document["iterations"]) == ("interrupted", 18)
    assert json.loads((folder / "my run's/summary.json").read_text())["status"] == "interrupted"
    words = cut.err.removesuffix("\n")
    assert words == """gossamer: stopped at step 18 of 60; continue with: gossamer train --resume 'my run'"'"'s'"""
    shown = words.partition("continue with: ")[2]
    listed = subprocess.run(
        ["sh", "-c", f'gossamer() {{ printf "%s\\n" "$@"; }}; {shown}'], capture_output=True, text=True
    )
    command.well(*listed.stdout.splitlines())  # what a shell makes of it
    assert outcome(folder / "my run's") == outcome(folder / "whole")


def test_a_second_signal_ends_at_once_and_what_was_saved_goes_on(folder, command, monkeypatch):
    values = (*LONG, "--checkpoint-every", 1)
    command.well("train", *values, "--out", "whole")
    with monkeypatch.context() as patch:
        Signals(patch, RunFolder, "append", {5: signal.SIGINT})  # at step 24
        Signals(patch, RunFolder, "save", {2: signal.SIGTERM})  # the one that the first signal asked for
        cut = command("train", *values, "--out", "run")
    assert (cut.status, cut.err) == (130, "gossamer: interrupted\n") and "accuracy" not in cut.out
    assert not (folder / "run/summary.json").exists()
    command.well("train", "--resume", "run")
    assert outcome(folder / "run") == outcome(folder / "whole")


def test_a_time_limit_saves_and_ends_well_as_often_as_it_is_given(folder, command, monkeypatch):
    command.well("train", *LONG, "--out", "whole")
    clock = iter(range(10_000))
    monkeypatch.setattr("gossamer.cli.interrupt.time.monotonic", lambda: float(next(clock)))  # a second an iteration
    first = command("train", *LONG, "--time-limit", 20.5, "--out", "run", "--json")
    # It was looked at 20 times before: the limit ends the run at the first boundary after it.
    assert (first.status, first.document["status"], first.document["iterations"]) == (0, "time limit", 20)
    assert first.err == "gossamer: time limit reached at step 20 of 60; continue with: gossamer train --resume run\n"
    assert json.loads((folder / "run/summary.json").read_text())["status"] == "time limit"
    second = command("train", "--resume", "run", "--time-limit", 30, "--json")
    assert (second.status, second.document["status"], second.document["iterations"]) == (0, "time limit", 49)
    last = command.well("train", "--resume", "run", "--time-limit", 1e9, "--json").document
    assert last["status"] == "finished" and outcome(folder / "run") == outcome(folder / "whole")
    assert "time" not in (folder / "run/config.toml").read_text()  # it is not part of what the run is


@pytest.mark.parametrize("value", ["0", "-1", "nan"])
def test_a_time_limit_that_is_none_is_refused_before_anything_is_made(folder, command, value):
    before = files_under(folder)
    assert "time limit must be more than 0 seconds" in command.refused("train", "--time-limit", value, "--out", "run")
    command.refused("train", "--time-limit", "soon", "--out", "run")
    assert files_under(folder) == before


def test_a_run_killed_before_its_first_checkpoint_begins_again(folder, command):
    command.well("train", *LONG, "--out", "whole")
    training, run_folder = begin(folder / "run", epochs=5, eval_every=6)
    with pytest.raises(Crash):
        training.run(run_folder, on_step=_crash_at(20))
    assert not (folder / "run/checkpoint.npz").exists() and _lines(folder / "run/metrics.jsonl") == 4
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        resumed = command("train", "--resume", "run")
    assert resumed.status == 0
    assert resumed.err == "gossamer: warning: 'run' was never saved; training it from its first step\n"
    assert outcome(folder / "run") == outcome(folder / "whole")


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_run_whose_newest_checkpoint_is_bad_goes_on_from_the_one_before(folder, command, harm):
    values = {"epochs": 5, "eval_every": 1, "checkpoint_every": 1}
    training, run_folder = begin(folder / "whole", **values)
    training.run(run_folder)
    training, run_folder = begin(folder / "run", **values)
    with pytest.raises(Crash):
        training.run(run_folder, on_step=_crash_at(30))
    newest = folder / "run/checkpoint.npz"
    newest.write_bytes(newest.read_bytes()[:-40]) if harm == "damaged" else newest.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        resumed = command("train", "--resume", "run")
    said = f"checkpoint 'run/checkpoint.npz' is {harm}; going on from the previous one, 'run/checkpoint.previous.npz'"
    assert (resumed.status, resumed.err) == (0, f"gossamer: warning: {said}\n")
    assert outcome(folder / "run") == outcome(folder / "whole")


def _python(folder, *arguments, **pipes):
    """Start Python in another process, which may not be in this one's folder."""
    package = str(Path(gm.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes},
    )


def _lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def test_an_interrupted_command_says_how_to_go_on_and_then_ends_the_same(folder, command):
    arguments = (
        *("--model", "linear", "--epochs", 60, "--eval-every", 12, "--delay", 5, "--momentum", 0.9, "--lr", 0.01),
        *("--execution", "stacked"),  # not what each process finds fastest
    )
    process = _python(folder, "-m", "gossamer", "train", *arguments, "--out", "cut", "--json")
    try:
        deadline = time.monotonic() + 90
        while _lines(folder / "cut/metrics.jsonl") < 4 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert err.startswith("gossamer: stopped"), err
    summary = json.loads(out)
    assert process.returncode == 0 and summary["status"] == "interrupted" and 36 <= summary["iterations"] < 720
    stopped = f"gossamer: stopped at step {summary['iterations']} of 720; continue with: gossamer train --resume cut\n"
    assert err == stopped
    command.well("train", "--resume", "cut")
    command.well("train", *arguments, "--out", "whole")
    assert outcome(folder / "cut") == outcome(folder / "whole")
    finished = json.loads((folder / "cut/summary.json").read_text())
    assert finished["status"] == "finished" and set(files_under(folder / "cut")) == {
        str(folder / "cut" / name)
        for name in ("config.toml", "metrics.jsonl", "summary.json", "checkpoint.npz", "checkpoint.previous.npz")
    }


# An iteration is an epoch here, and each one is saved: most of the time goes into saving.
ALWAYS_SAVING = (
    *("--model", "linear", "--batch", 180, "--epochs", 300, "--checkpoint-every", 1, "--eval-every", 50),
    *("--delay", 5, "--momentum", 0.9, "--lr", 0.01, "--execution", "stacked"),  # not what each process finds fastest
)

# Imports once, also what a run would import late, then runs each command that it reads in a process of its own, and
# says which one that is. It must not compute before: autograd does not survive a fork.
COMMANDS = """
import json, os, sys
import sklearn.datasets, torch._dynamo
from gossamer.cli.main import main
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            main(json.loads(line))
        finally:
            os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_run_killed_again_and_again_ends_byte_for_byte_the_same(folder, command):
    command.well("train", *ALWAYS_SAVING, "--out", "whole")
    chance, run, reached = random.Random(0), folder / "run", []
    commands = _python(folder, "-c", COMMANDS, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for number in range(16):
            arguments = ("--resume", "run") if number else (*ALWAYS_SAVING, "--out", "run")
            print(json.dumps(["train", *map(str, arguments)]), file=commands.stdin, flush=True)
            child = int(commands.stdout.readline())
            _wait_for_a_moment_to_kill(run, number, chance)
            os.kill(child, signal.SIGKILL)
            assert int(commands.stdout.readline()) == signal.SIGKILL
            reached.append(_step_reached(run))
    finally:
        commands.kill()
        commands.communicate()
    assert reached == sorted(reached) and 0 <= reached[0] < reached[-1] < 300
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert command("train", "--resume", "run").status == 0
    assert outcome(run) == outcome(folder / "whole")
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, folder / "whole")]
    assert len({json.dumps({**summary, "seconds": 0, "run_dir": ""}) for summary in summaries}) == 1
    assert {path.name for path in run.iterdir()} == {path.name for path in (folder / "whole").iterdir()}


def _wait_for_a_moment_to_kill(run, number, chance):
    """Wait until the run can be resumed, then until it has saved; then a random time, or until it is seen to save."""
    newest, deadline = run / "checkpoint.npz", time.monotonic() + 90
    before = _changed(newest)
    while not ((run / "config.toml").exists() if number == 0 else _changed(newest) > before):
        assert time.monotonic() < deadline
    time.sleep(chance.uniform(0, 0.1) if number else 0)
    while number % 2 and not (run / "checkpoint.npz.tmp").exists():
        assert time.monotonic() < deadline


def _changed(path):
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # before the first save, or between two renames
        return 0


def _step_reached(run):
    folder = RunFolder(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may have died between two renames
        return 0 if folder.never_saved else int(folder.load()["simulation.t"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_remembered_and_the_second_ends_the_program(number):
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert not interrupt()
        os.kill(os.getpid(), number)
        assert interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_an_interrupt_outside_training_is_one_line_with_status_130(command, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gossamer.cli.network.broadcast", interrupted)
    outcome = command("network", "ring:8", "--discover")
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "gossamer: interrupted\n"
