"""What an agent's start costs: packages that take seconds to import, and that it has no use for, are left alone."""

import importlib.util
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from flight import SOURCE
from gossamer.cli.descriptions import collect_descriptions, read_descriptions
from gossamer.data import load_digits

# As in a user's own loop, from the data to the checkpoint, and computing as a process of `gossamer train` does.
ONE_STEP = """
import sys, torch
import gossamer as gm
from gossamer.data import load_digits
from gossamer.run.machine import arithmetic
from gossamer.run.settings import make_settings
train, _ = load_digits()
model = torch.nn.Linear(64, 10)
optimizer = gm.optim.Decentralized(model.parameters(), lr=0.1, momentum=0.5)
with arithmetic(make_settings({})):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(train.x[:8]), train.y[:8]).backward()
    optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
print(*{"torch._dynamo", "sympy", "sklearn", "scipy", "matplotlib", "typer", "ray"} & set(sys.modules))
"""


def test_an_agent_trains_without_importing_what_it_does_not_use():
    environment = {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run([sys.executable, "-c", ONE_STEP], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == []


def test_digits_are_the_same_where_scikit_learn_keeps_its_file_elsewhere(tmp_path, monkeypatch):
    train, test = load_digits()
    elsewhere = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: elsewhere)
    again, other = load_digits()
    assert all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in [(train, again), (test, other)])


HEAVY = """
import contextlib, io, sys
def loaded():
    return {"torch", "matplotlib", "plotly", "networkx", "sklearn"} & set(sys.modules)
"""
HELP = """
from gossamer.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(%r)
"""


def run_python(code):
    environment = {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_the_package_and_its_help_import_nothing_heavy():
    assert run_python(HEAVY + "import gossamer\nprint(*loaded())") == []
    assert run_python(HEAVY + HELP % (["--help"],) + "print(*loaded())") == []


@pytest.mark.parametrize("command", [["algorithms"], ["algorithms", "pc-asgd"], ["algorithms", "--json"]])
def test_the_algorithms_are_listed_without_torch(command):
    assert run_python(HEAVY + HELP % (command,) + "print(*loaded())") == []


@pytest.mark.parametrize(
    "command",
    [
        *("train", "compare", "demo", "tune", "network", "stability", "bounds", "report", "watch"),
        *("bench", "launch", "reproduce"),
    ],
)
def test_the_help_of_a_command_imports_nothing_heavy(command):
    assert run_python(HEAVY + HELP % ([command, "--help"],) + "print(*loaded())") == []


def test_the_descriptions_on_file_are_those_of_the_code():
    """If not: python -m gossamer.cli.descriptions."""
    assert read_descriptions() == json.loads(json.dumps(collect_descriptions()))


def test_a_network_is_shown_without_matplotlib():
    assert "matplotlib" not in run_python(HEAVY + HELP % (["network", "ring:4"],) + "print(*loaded())")


def test_public_names_survive_the_import_of_submodules():
    code = """
import gossamer.network.graph, gossamer.theory.bounds, gossamer.nn
import gossamer as gm
assert gm.network("ring:4").num_agents == 4
assert all(hasattr(gm, name) for name in gm.__all__) and set(gm.__all__) <= set(dir(gm))
print(gm.optim.__name__, gm.theory.__name__, callable(gm.stack), callable(gm.algorithm))
"""
    assert run_python(code) == ["gossamer.optim", "gossamer.theory", "True", "True"]
