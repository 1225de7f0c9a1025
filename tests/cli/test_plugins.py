"""Rules of the user's own, in a file that gossamer is told of: no fork, no installation."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gossamer as gm
from flight import SOURCE
from gossamer.algorithms import plugins, registry
from gossamer.run.settings import make_settings, read_settings

RULE = '''
from dataclasses import dataclass

import gossamer as gm
from gossamer.algorithms.options import option


@gm.register("my-rule")
@dataclass(frozen=True, kw_only=True)
class MyRule(gm.Algorithm):
    """A part of the way to what was heard, current or late."""

    pull: float = option(0.5, "how far")

    def step(self, own, inbox, weights, noise):
        heard = weights.own[:, None] * own.x + weights.fresh @ inbox.fresh
        for late in inbox.late:
            heard = heard + late.weights @ late.message["x"]
        heard = heard / weights.mass[:, None]
        return gm.Update(self.descend(own, own.x + self.pull * (heard - own.x)))
'''

SHORT = ("--epochs", 4, "--delay", 3, "--model", "linear", "--eval-every", 6)


@pytest.fixture(autouse=True)
def lists_of_its_own(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))
    monkeypatch.setattr(plugins, "_LOADED", set())


@pytest.fixture
def rule(folder):
    path = folder / "my_rules.py"
    path.write_text(RULE)
    return path


def gossamer(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, where nothing is registered yet."""
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *map(str, words)],
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_the_rule_has_no_more_than_twenty_lines():
    assert len([line for line in RULE.splitlines() if line.strip()]) <= 20


@pytest.mark.timeout(600)
def test_a_run_with_a_rule_of_ones_own_can_be_stopped_and_goes_on_without_the_file(rule, folder):
    # Named: what two processes measure as the fastest may differ, and with it the last bits.
    named = ("--execution", "stacked", "--checkpoint-every", 1, "--json")
    words = ("--plugin", rule, "--algorithm", "my-rule/pull=0.7", *SHORT, *named)
    whole = gossamer("train", *words, "--out", "whole", cwd=folder)
    assert (whole.returncode, whole.stderr) == (0, "")
    summary = json.loads(whole.stdout)
    assert summary["algorithm"] == "my-rule" and summary["options"]["pull"] == 0.7
    assert summary["accuracy_mean"] > 0.5
    gossamer("train", *words, "--time-limit", 1e-6, "--out", "part", cwd=folder)
    rule.unlink()  # the folder has its own copy
    assert gossamer("train", "--resume", "part", cwd=folder).returncode == 0
    for name in ("config.toml", "plugins/my_rules.py"):
        assert (folder / "part" / name).read_text() == (folder / "whole" / name).read_text(), name
    part, whole = ((folder / name / "metrics.jsonl").read_text().splitlines() for name in ("part", "whole"))
    assert [json.loads(line)["loss"] for line in part] == [json.loads(line)["loss"] for line in whole]
    assert tomllib.loads((folder / "part/config.toml").read_text())["plugin"] == "plugins/my_rules.py"


@pytest.mark.timeout(600)
def test_processes_load_it_too(rule, folder):
    words = ("--plugin", rule, "--algorithm", "my-rule", *SHORT, "--network", "ring:3", "--json")
    ended = gossamer("train", *words, "--engine", "processes", "--lockstep", "--out", "run", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    simulated = gossamer("train", *words, cwd=folder)
    found, expected = json.loads(ended.stdout), json.loads(simulated.stdout)
    assert found["status"] == "finished"
    assert found["accuracy_per_agent"] == pytest.approx(expected["accuracy_per_agent"], abs=0.01)


def test_it_is_compared_tuned_and_described_by_name(rule, command):
    words = ("--plugin", rule, *SHORT, "--json")
    rows = command.well("compare", *words, "--algorithms", "d-asgd,my-rule/pull=1", "--seeds", 1, "--no-plots")
    plain, mine = rows.document["results"]
    assert mine["label"] == "my-rule/pull=1" and mine["accuracy_mean"] == pytest.approx(plain["accuracy_mean"])
    tuned = command.well("tune", *words, "--algorithms", "my-rule", "--rates", "0.05,0.1", "--validation", 0.2)
    assert list(tuned.document["best"]) == ["my-rule"]
    described = command.well("algorithms", "my-rule", "--plugin", rule, "--json").document
    assert described[0]["options"]["pull"] == {"default": 0.5, "choices": None, "help": "how far"}
    assert "my-rule" in command.well("algorithms", "--plugin", rule).out


def test_a_file_of_settings_names_a_plugin_beside_itself(rule, folder, command, monkeypatch):
    (folder / "run.toml").write_text('plugin = "my_rules.py"\nalgorithm = "my-rule"\n[options]\npull = 0.25\n')
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    summary = command.well("train", "../run.toml", *SHORT, "--json").document
    assert summary["options"]["pull"] == 0.25


def test_from_python(rule):
    for _ in range(2):  # what is loaded is not loaded again
        result = gm.simulate("digits", "ring:4", "d-asgd", plugin=str(rule), delay=2, epochs=1)
    assert result.summary["status"] == "finished" and gm.algorithm("my-rule", pull=1).name == "my-rule"


def test_settings_that_are_only_read_run_no_code(folder):
    (folder / "bad.py").write_text("raise SystemExit('this was run')")
    (folder / "config.toml").write_text('plugin = "bad.py"\nalgorithm = "d-asgd"\n')
    assert make_settings(read_settings(folder / "config.toml")).plugin == str(folder / "bad.py")


def test_bounds_take_one_too(rule, command):
    words = ("--plugin", rule, "--algorithm", "my-rule", *SHORT, "--probes", 1, "--draws", 2, "--examples", 16)
    assert command.well("bounds", *words, "--json").document["algorithm"] == "my-rule"


def test_a_module_is_named_like_one(folder, command, monkeypatch):
    (folder / "their_rules.py").write_text(RULE.replace("my-rule", "their-rule"))
    monkeypatch.syspath_prepend(str(folder))
    assert "their-rule" in command.well("algorithms", "--plugin", "their_rules").out
    assert "their-rule" in command.well("algorithms", "--plugin", "their_rules").out
    del sys.modules["their_rules"]


def test_a_class_defined_anew_takes_the_place_of_its_former_self(rule):
    plugins.load_plugins(str(rule))
    rule.write_text(RULE.replace("option(0.5", "option(0.125"))
    plugins.load_plugins(str(rule))
    assert gm.algorithm("my-rule").pull == 0.125


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "registers no algorithm; put @gm.register"),
        ("x = 1\ny = x / 0\n", "fails in line 2 (ZeroDivisionError: division by zero); mend it"),
        ("def f(:\n", "fails in line 1 (SyntaxError: invalid syntax); mend it"),
        ("import a_package_that_is_not_there\n", "fails in line 1 (ModuleNotFoundError"),
        (RULE.replace("my-rule", "pc-asgd"), "'pc-asgd' is already registered; choose another name); mend it"),
        ("raise SystemExit(0)\n", "fails in line 1 (SystemExit: 0); mend it"),
    ],
)
def test_a_file_that_is_no_plugin_is_one_line(folder, command, text, told):
    (folder / "bad.py").write_text(text)
    for words in (("train", *SHORT), ("compare", *SHORT), ("algorithms",)):
        error = command.refused(*words, "--plugin", "bad.py")
        assert "'bad.py'" in error and told in error
    assert not (folder / "runs").exists() and not (folder / "reports").exists()


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        ("missing.py", "cannot read plugin 'missing.py' (No such file or directory); give a Python file"),
        ("no_such_package.rules", "there is no module 'no_such_package.rules' to take a plugin from; install it"),
        ("a/x.py,b/x.py", "two plugins are named 'x.py'; rename one"),
    ],
)
def test_a_plugin_that_is_not_there_is_one_line(command, plugin, told):
    assert told in command.refused("train", *SHORT, "--plugin", plugin)


def test_the_help_says_that_code_is_run(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("train", "compare", "tune"):
        assert "this executes their code, so pass only code you trust" in command.well(name, "--help").out
