"""Threads: how many `auto` gives, that a run keeps its number, and how threads wait."""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flight import SOURCE
from gossamer.errors import UserError
from gossamer.run import cores
from gossamer.run.settings import Settings, make_settings


@pytest.fixture
def machine(monkeypatch):
    """Pretend a number of usable cores and a load."""

    def pretend(usable, load):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        cores.idle_cores.cache_clear()

    yield pretend
    monkeypatch.undo()
    cores.idle_cores.cache_clear()


@pytest.mark.parametrize(
    ("usable", "load", "threads"), [(4, 0.0, 4), (4, 0.4, 4), (4, 2.6, 1), (4, 2.4, 2), (2, 9.0, 1), (5000, 0.0, 1024)]
)
def test_auto_gives_a_large_model_the_idle_cores(machine, usable, load, threads):
    machine(usable, load)
    assert make_settings({"threads": "auto", "model": "preresnet:8"}).threads == threads


@pytest.mark.parametrize("model", ["linear", "mlp:64,32", None])
def test_auto_gives_a_small_model_one_thread(machine, model):
    machine(64, 0.0)
    values = {"threads": "auto"} if model is None else {"threads": "auto", "model": model}
    assert make_settings(values).threads == 1


def test_a_stored_run_keeps_the_number_that_auto_gave(machine):
    """Another number would change the last digits, so that a resumed run would differ."""
    machine(8, 0.0)
    first = make_settings({"threads": "auto", "model": "cnn"})
    machine(8, 6.0)
    assert make_settings(tomllib.loads(first.to_toml())) == first
    assert first.threads == 8


def test_all_runs_of_a_command_get_the_same_number(machine, monkeypatch):
    machine(8, 0.0)
    first = make_settings({"threads": "auto", "model": "cnn"})
    monkeypatch.setattr(os, "getloadavg", lambda: (5.0, 0.0, 0.0))  # its own load
    assert make_settings({"threads": "auto", "model": "cnn"}) == first


@given(st.integers(1025, 10**12))
def test_more_threads_than_torch_can_start_are_refused(number):
    with pytest.raises(UserError, match=f"threads must be at most 1024, got {number}; use auto or"):
        Settings(threads=number)


def environment(**more):
    return {"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin", **more}


SEEN = """
import json, os
from gossamer.cli.main import main
try:
    main(["--version"])
except SystemExit:
    print(json.dumps(dict(os.environ)))
"""


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}, {"KMP_BLOCKTIME": "1"}])
def test_the_users_choice_of_waiting_stays(own):
    command = [sys.executable, "-c", SEEN]
    done = subprocess.run(command, env=environment(**own), capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[1])
    assert {name: value for name, value in seen.items() if name in cores.WAITING} == own


def test_the_threads_of_a_command_sleep_while_they_wait():
    """OpenMP itself says so when torch starts it: too late a variable would not be read."""
    command = [sys.executable, "-m", "gossamer", "network", "ring:4", "--json"]
    done = subprocess.run(command, env=environment(OMP_DISPLAY_ENV="TRUE"), capture_output=True, text=True, check=True)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
