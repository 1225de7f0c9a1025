"""`gossamer train --engine processes`: the simulator's tasks with one process an agent."""

import json
import signal
import subprocess
import sys
import time

import pytest
import torch

import gossamer as gm
from command import Command
from flight import SOURCE
from gossamer.run.agent_folder import AgentFolder
from gossamer.run.folder import RunFolder
from gossamer.run.plan import make_plan
from gossamer.run.process_settings import ProcessSettings
from gossamer.run.settings import make_settings
from gossamer.train.processes.launched_training import train

SETTINGS = {"network": "paper-1", "delay": "5", "lr": 0.1, "seed": 3, "batch": 16, "epochs": 8}


def in_processes(folder, how=None, **settings):
    made = make_plan(make_settings({**SETTINGS, **settings}))
    return train(
        made, RunFolder.create(folder, made.settings, made.network), how or ProcessSettings(engine="processes")
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algorithm", "transport", "network", "epochs"),
    [("pc-asgd", "shared", "clusters:1,2", 4), ("dm-asgd", "sockets", "clusters:2,2", 3)],
)
def test_a_whole_digits_run_is_the_simulators(tmp_path, algorithm, transport, network, epochs):
    settings = {**SETTINGS, "algorithm": algorithm, "momentum": 0.5, "network": network, "epochs": epochs}
    settings |= {"eval_examples": 100}
    trace = tmp_path / "trace.csv"
    how = ProcessSettings(engine="processes", lockstep=True, transport=transport, record=str(trace))
    summary = in_processes(tmp_path / "run", how, **settings)
    expected = gm.simulate(**settings)
    assert summary["status"] == "finished" and summary["iterations"] == expected.summary["iterations"]
    assert summary["accuracy_per_agent"] == pytest.approx(expected.accuracy, abs=0.004)  # one example of the 359
    for name in ("loss_mean", "consensus_distance", "accuracy_average_model", "message_age"):
        assert summary[name] == pytest.approx(expected.summary[name], rel=1e-3), name
    assert summary["bytes_sent"] == expected.summary["bytes_sent"]
    assert summary["parameters"] == expected.summary["parameters"] and summary["execution"] == "loop"
    assert summary["accuracy_best"] == pytest.approx(expected.summary["accuracy_best"], abs=0.01)
    of_processes = {"engine", "lockstep", "transport", "compress", "restarts"}
    assert set(summary) - set(expected.summary) == of_processes and set(expected.summary) <= set(summary)
    predict = expected.summary["predict_fraction"]
    assert summary["predict_fraction"] == (predict if predict is None else pytest.approx(predict, rel=1e-6))
    recorded = gm.network(network, delay=f"trace:{trace}")  # what was recorded can be replayed
    assert torch.equal(recorded.late_links, gm.network(network, delay=5).late_links) and recorded.delay.largest == 5
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [row["step"] for row in expected.history]
    for row, same in zip(rows, expected.history, strict=True):  # on the same 100 examples, and at last on all
        assert row["loss"] == pytest.approx(same["loss"], rel=1e-3)


@pytest.mark.timeout(600)
def test_free_running_agents_learn_and_one_that_kills_itself_returns_from_its_checkpoint(tmp_path):
    how = ProcessSettings(engine="processes", faults="kill:1@60")
    settings = {"network": "clusters:1,2", "delay": "0", "algorithm": "dm-asgd", "epochs": 8, "checkpoint_every": 1}
    summary = in_processes(tmp_path / "run", how, **settings)
    assert summary["status"] == "finished" and summary["restarts"] == [0, 1, 0]
    assert summary["accuracy_mean"] > 0.5  # how far depends on how busy the machine is
    steps = sorted(AgentFolder(tmp_path / "run", 1).rows())
    assert steps[-1] == summary["iterations"]


@pytest.mark.timeout(600)
def test_a_run_that_diverges_says_so(tmp_path):
    summary = in_processes(tmp_path / "run", network="complete:2", delay="0", algorithm="d-asgd", lr=1e30, epochs=2)
    assert "use a smaller --lr" in summary["status"]


@pytest.mark.timeout(600)
def test_ctrl_c_saves_and_resume_goes_on(tmp_path, capsys):
    folder = tmp_path / "run"
    flags = [
        "--network",
        "complete:2",
        "--delay",
        "0",
        "--epochs",
        "4000",
        "--algorithm",
        "d-asgd",
        "--out",
        str(folder),
    ]
    command = [sys.executable, "-m", "gossamer", "train", "--engine", "processes", *flags]
    process = subprocess.Popen(
        command,
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 180
    # Both of them: one that still starts would end without having saved.
    while not folder.exists() or min(len(AgentFolder(folder, rank).rows()) for rank in range(2)) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, process.kill()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0 and "continue with: gossamer train --resume" in err
    saved = AgentFolder(folder, 0)
    reached = int(saved.checkpoints.load()["node.t"])
    assert reached > 0 and saved.status == "interrupted"
    config = (folder / "config.toml").read_text().replace("epochs = 4000", "epochs = 1")
    (folder / "config.toml").write_text(config)  # so that the rest is short
    result = Command(capsys)("train", "--resume", folder, "--json")
    assert result.status == 0, result.err
    assert result.document["engine"] == "processes"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lockstep"], "add --engine processes"),
        (["--engine", "threads"], "choose one of: processes, simulator"),
        (["--engine", "processes", "--precision", "bf16"], "precision=bf16 needs the simulator"),
        (["--engine", "processes", "--faults", "delay:fast"], "delay"),
        (["--engine", "processes", "--compress", "zip"], "unknown"),
        (["--engine", "processes", "--transport", "pigeon"], "choose one of: auto, shared, sockets"),
        (["--engine", "processes", "--max-restarts", "-1"], "max_restarts must be 0 or more"),
        (["--engine", "processes", "--theta", "pv", "--scope", "network"], "simulator"),
    ],
)
def test_mistakes_are_told_in_one_line_and_nothing_is_written(tmp_path, capsys, flags, message):
    out = tmp_path / "run"
    result = Command(capsys)("train", *flags, "--epochs", "2", "--out", out)
    assert result.status == 2 and message in result.err and result.err.count("\n") == 1
    assert not out.exists()
