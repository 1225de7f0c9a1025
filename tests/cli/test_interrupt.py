"""Runs that end early: by a signal, by a time limit, by being killed; and how they go on."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import gossamer as gm
from command import files_under
from gossamer.cli.interrupt import Interrupt
from gossamer.engine.metrics import Evaluator
from gossamer.run.folder import RunFolder
from runs import Crash, begin, crashing_at, outcome
from waiting import until


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
    # A second an iteration; for nobody else, as a thread of another test that looks at the time would move it.
    monkeypatch.setattr("gossamer.cli.interrupt.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    first = command("train", *LONG, "--time-limit", 20.5, "--out", "run", "--json")
    # It was looked at 20 times before, at every step and every batch of an evaluation, which is broken off.
    assert (first.status, first.document["status"], first.document["iterations"]) == (0, "time limit", 18)
    assert first.err == "gossamer: time limit reached at step 18 of 60; continue with: gossamer train --resume run\n"
    assert json.loads((folder / "run/summary.json").read_text())["status"] == "time limit"
    second = command("train", "--resume", "run", "--time-limit", 30, "--json")
    assert (second.status, second.document["status"], second.document["iterations"]) == (0, "time limit", 42)
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
        training.run(run_folder, on_step=crashing_at(20))
    assert not (folder / "run/checkpoint.npz").exists() and _lines(folder / "run/metrics.jsonl") == 4
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        resumed = command("train", "--resume", "run")
    assert resumed.status == 0
    assert resumed.err == "gossamer: warning: 'run' has no checkpoint yet; starting again from step 0\n"
    assert outcome(folder / "run") == outcome(folder / "whole")


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_run_whose_newest_checkpoint_is_bad_goes_on_from_the_one_before(folder, command, harm):
    values = {"epochs": 5, "eval_every": 1, "checkpoint_every": 1}
    training, run_folder = begin(folder / "whole", **values)
    training.run(run_folder)
    training, run_folder = begin(folder / "run", **values)
    with pytest.raises(Crash):
        training.run(run_folder, on_step=crashing_at(30))
    newest = folder / "run/checkpoint.npz"
    newest.write_bytes(newest.read_bytes()[:-40]) if harm == "damaged" else newest.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        resumed = command("train", "--resume", "run")
    said = f"checkpoint 'run/checkpoint.npz' is {harm}; continuing from the previous one, 'run/checkpoint.previous.npz'"
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


# `gossamer`, but a run does not go on after its fourth row of metrics before it has been told to stop: it might have
# ended before the test comes to look.
WAITS_TO_BE_TOLD = """
import pathlib, time
from gossamer.cli.main import main
from gossamer.run.folder import RunFolder
rows, append = [], RunFolder.append
def append_and_wait(folder, row):
    append(folder, row)
    rows.append(row)
    while len(rows) == 4 and not pathlib.Path("told").exists():
        time.sleep(0.005)
RunFolder.append = append_and_wait
main()
"""


@pytest.mark.timeout(600)
def test_an_interrupted_command_says_how_to_go_on_and_then_ends_the_same(folder, command):
    arguments = (
        *("--model", "linear", "--epochs", 30, "--eval-every", 12, "--delay", 5, "--momentum", 0.9, "--lr", 0.01),
        *("--execution", "stacked"),  # not what each process finds fastest
    )
    process = _python(folder, "-c", WAITS_TO_BE_TOLD, "train", *arguments, "--out", "cut", "--json")
    try:
        until(lambda: _lines(folder / "cut/metrics.jsonl") >= 4 or process.poll() is not None, 120)
        process.send_signal(signal.SIGINT)
        (folder / "told").touch()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert err.startswith("gossamer: stopped"), err
    summary = json.loads(out)
    assert process.returncode == 0 and summary["status"] == "interrupted" and 36 <= summary["iterations"] < 360
    stopped = f"gossamer: stopped at step {summary['iterations']} of 360; continue with: gossamer train --resume cut\n"
    assert err == stopped
    command.well("train", "--resume", "cut")
    command.well("train", *arguments, "--out", "whole")
    assert outcome(folder / "cut") == outcome(folder / "whole")
    finished = json.loads((folder / "cut/summary.json").read_text())
    assert finished["status"] == "finished" and set(files_under(folder / "cut")) == {
        str(folder / "cut" / name)
        for name in ("config.toml", "metrics.jsonl", "summary.json", "status.json", "checkpoint.npz")
    } | {str(folder / "cut/checkpoint.previous.npz")}


# An iteration is an epoch here, and each one is saved: most of the time goes into saving.
ALWAYS_SAVING = (
    *("--model", "linear", "--batch", 180, "--epochs", 170, "--checkpoint-every", 1, "--eval-every", 50),
    *("--delay", 5, "--momentum", 0.9, "--lr", 0.01, "--execution", "stacked"),  # not what each process finds fastest
)

# Imports once, also what a run would import late, then runs each command that it reads in a process of its own, and
# says which one that is. It must not compute before: autograd does not survive a fork. A process that has saved often
# waits in the middle of a save: whoever is to kill it may come late, and it must not have ended before.
MOST_SAVES = 18
COMMANDS = f"""
import json, os, sys, time
import sklearn.datasets, torch._dynamo
from gossamer.cli.main import main
from gossamer.state import checkpoint
saves, write = [], checkpoint._write
def write_and_wait(file, state):
    write(file, state)
    saves.append(None)
    while len(saves) > {MOST_SAVES}:
        time.sleep(0.01)
checkpoint._write = write_and_wait
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


@pytest.mark.timeout(600)
def test_a_run_killed_again_and_again_ends_byte_for_byte_the_same(folder, command):
    command.well("train", *ALWAYS_SAVING, "--out", "whole")
    chance, run, reached = random.Random(0), folder / "run", []
    commands = _python(folder, "-c", COMMANDS, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for number in range(9):
            arguments = ("--resume", "run") if number else (*ALWAYS_SAVING, "--out", "run")
            before = _changed(run / "checkpoint.npz")
            print(json.dumps(["train", *map(str, arguments)]), file=commands.stdin, flush=True)
            child = int(commands.stdout.readline())
            _wait_for_a_moment_to_kill(run, number, before, chance)
            os.kill(child, signal.SIGKILL)
            assert int(commands.stdout.readline()) == signal.SIGKILL
            reached.append(_step_reached(run))
    finally:
        commands.kill()
        commands.communicate()
    assert reached == sorted(reached) and 0 <= reached[0] < reached[-1] < 170
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert command("train", "--resume", "run").status == 0
    assert outcome(run) == outcome(folder / "whole")
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, folder / "whole")]
    assert len({json.dumps({**summary, "seconds": 0, "run_dir": ""}) for summary in summaries}) == 1
    assert {path.name for path in run.iterdir()} == {path.name for path in (folder / "whole").iterdir()}


def _wait_for_a_moment_to_kill(run, number, before, chance):
    """Wait until the run can be resumed, then until it has saved; then a random time, or until it is seen to save."""
    newest, deadline = run / "checkpoint.npz", time.monotonic() + 120
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


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])  # ignored: a job in the background of a script
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_remembered_and_the_second_ends_the_program(number, before):
    found = signal.signal(number, before)
    try:
        with Interrupt() as interrupt:
            assert not interrupt()
            os.kill(os.getpid(), number)
            assert interrupt()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, found)


def test_an_interrupt_outside_training_is_one_line_with_status_130(command, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["gossamer.network"], "broadcast", interrupted)
    outcome = command("network", "ring:8", "--discover")
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "gossamer: interrupted\n"


def test_a_signal_breaks_an_evaluation_off_and_the_resumed_run_makes_it_up(folder, command, monkeypatch):
    monkeypatch.setattr("gossamer.engine.metrics.EVALUATION_EXAMPLES", 9 * 100)  # of 359: four batches
    monkeypatch.setattr("gossamer.engine.metrics.LARGE_BATCH", 1)
    values = (*LONG, "--execution", "vmap")
    command.well("train", *values, "--out", "whole")
    with monkeypatch.context() as patch:
        Signals(patch, Evaluator, "_measure", {10: signal.SIGTERM})  # in the third evaluation, at step 12
        cut = command("train", *values, "--out", "run")
    assert cut.status == 0 and "stopped at step 12" in cut.err and "(at step 6)" in cut.out
    assert len((folder / "run/metrics.jsonl").read_text().splitlines()) == 2
    command.well("train", "--resume", "run")
    assert outcome(folder / "run") == outcome(folder / "whole")
