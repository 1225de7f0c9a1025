import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer as gm
from command import files_under
from gossamer.algorithms import describe_algorithms
from gossamer.cli.main import COMMANDS, load_command, main
from runs import timeless

SHORT = ("--epochs", 2, "--delay", 5, "--model", "linear")

SUMMARY_KEYS = {
    *("algorithm", "network", "delay", "task", "model", "seed", "epochs", "iterations", "accuracy_mean"),
    *("accuracy_std", "accuracy_per_agent", "consensus_distance", "predict_fraction", "bytes_sent", "seconds"),
    "run_dir",
}

# The flags that train and compare share: settings of a run, then options of the algorithms.
ON_A_TESTBED = ("--testbed", "--step-seconds", "--seconds", "--eval-seconds", "--target")
SHARED_FLAGS = (
    *("--algorithm", "--batch", "--checkpoint-every", "--clip-weights", "--clusters", "--delay", "--delay-unit"),
    *(
        "--device",
        "--dtype",
        "--epoch-unit",
        "--epochs",
        "--eval-every",
        "--eval-examples",
        "--init",
        "--lazy",
        "--loss",
        "--lr",
    ),
    *("--mixing", "--model", "--momentum", "--nesterov", "--network", "--no-lazy", "--no-nesterov", "--partition"),
    *("--reliable-delay", "--schedule", "--seed", "--startup", "--task", "--warmup", "--weight-decay"),
    *("--graph-schedule", *ON_A_TESTBED),
    *("--consensus-steps", "--criterion", "--curvature", "--gain", "--gradient-at", "--granularity", "--horizon"),
    *("--lam", "--lam-form", "--no-self-consistent", "--scope", "--self-consistent", "--source", "--test-batch"),
    *("--theta", "--threads", "--augment", "--compile", "--no-compile", "--data-dir", "--deterministic"),
    *("--no-deterministic", "--execution", "--history", "--norm-stats", "--precision", "--validation", "--plugin"),
    *("--alpha", "--beta", "--every", "--lam0", "--limit", "--look-ahead", "--no-look-ahead", "--mode", "--ms-decay"),
    *("--mu", "--outer-lr", "--outer-momentum", "--rho", "--rule", "--server", "--server-momentum"),
    *("--damping", "--lag", "--predictor", "--descends", "--exchange", "--exchange-steps", "--merge"),
)

FLAGS = {
    "train": {
        *(*SHARED_FLAGS, "--preset", "--out", "--resume", "--time-limit", "--json", "--log"),
        *("--engine", "--transport", "--compress", "--lockstep", "--no-lockstep", "--faults", "--deadline"),
        *("--tolerance", "--max-age", "--max-restarts", "--record"),
    },
    "compare": {
        *(set(SHARED_FLAGS) - {"--algorithm"}),
        *("--algorithms", "-a", "--seeds", "--preset", "--out", "--plots", "--no-plots", "--json", "--tuned"),
        "--log",
    },
    "tune": {
        *(set(SHARED_FLAGS) - {"--algorithm", "--lr"}),
        *("--algorithms", "-a", "--rates", "--search", "--seeds", "--out", "--json"),
    },
    "network": {
        *("--delay", "--clusters", "--loss", "--mixing", "--lazy", "--no-lazy", "--clip-weights", "--discover"),
        *("--no-discover", "--seed", "--save", "--picture", "--json"),
    },
    "testbed": {"--message", "--step-seconds", "--network", "--out", "--json"},
    "algorithms": {"--plugin", "--json"},
    "bounds": {*(set(SHARED_FLAGS) - {*ON_A_TESTBED}), "--probes", "--draws", "--examples", "--constant", "--json"},
    "stability": {
        *("--network", "--clusters", "--delay", "--mixing", "--lazy", "--no-lazy", "--clip-weights"),
        *(
            "--reliable-delay",
            "--algorithm",
            "--lr",
            "--momentum",
            "--nesterov",
            "--no-nesterov",
            "--picture",
            "--json",
        ),
        *SHARED_FLAGS[SHARED_FLAGS.index("--consensus-steps") : SHARED_FLAGS.index("--theta") + 1],
        *SHARED_FLAGS[SHARED_FLAGS.index("--alpha") :],
    },
    "demo": {"--out", "--seeds", "--json"},
    "reproduce": {
        *("--scale", "--protocol", "--seeds", "--only", "--time-limit", "--device", "--out", "--import"),
        *("--pages", "--no-pages", "--list", "--json"),
    },
    "report": {"--out", "-o", "--figures", "--open"},
    "watch": {"--host", "--port", "--token", "--open", "--no-open", "--json"},
    "bench": {"--device", "--cases", "--steps", "--precision", "--quick", "--out", "--json"},
    "launch": {
        *("--agents", "--network", "--clusters", "--delay", "--loss", "--mixing", "--lazy", "--no-lazy"),
        *("--clip-weights", "--startup", "--run", "--seed", "--algorithm", "--book", "--key-file", "--address"),
        *("--host", "--preload", "--no-preload"),
        *("--transport", "--compress", "--faults", "--deadline", "--tolerance", "--meet", "--lockstep"),
        *("--no-lockstep", "--max-age", "--ray-address", "--cpus-per-agent", "--gpus-per-agent", "--placement"),
        *("--ranks", "--max-restarts", "--out", "--record", "--torchrun", "--ray", "--logs", "--json"),
    },
}


# What there is.


def test_the_commands_and_their_flags_are_these():
    found = {
        name: {
            flag
            for parameter in made.params
            if parameter.param_type_name == "option"
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        - {"--help"}
        for name, made in ((name, load_command(name)) for name in COMMANDS)
    }
    assert found == FLAGS


@pytest.mark.parametrize("name", [None, *FLAGS])
def test_every_help_exits_0_with_an_example(command, name):
    outcome = command.well(*([name] if name else []), "--help")
    assert "Example" in outcome.out and "Usage: gossamer" in outcome.out


def test_the_help_of_train_names_every_default(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    lines = command.well("train", "--help").out.splitlines()
    for flag, default in (("--lr", "0.1"), ("--network", "paper-1"), ("--theta", "auto"), ("--batch", "16")):
        assert any(flag in line and f"(default {default})" in line for line in lines), flag


def test_the_help_of_tune_names_its_own_default(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    (line,) = (line for line in command.well("tune", "--help").out.splitlines() if "--validation " in line)
    assert "(default 0.2)" in line


def test_the_help_gives_every_meaning_of_an_option_with_its_algorithms():
    shown = {parameter.name: parameter.help for parameter in load_command("train").params}
    rules = describe_algorithms()
    for rule in rules:
        for name, about in rule["options"].items():
            meaning = about["help"][1:]  # the first letter is a capital
            owners = re.search(rf"{re.escape(meaning)} \(([^()]*)\)", shown[name])
            shared_by_all = all(name in other["options"] for other in rules)
            assert meaning in shown[name], (rule["name"], name)
            assert shared_by_all or (owners and rule["name"] in owners[1].split(", ")), (rule["name"], name)


def test_the_version_is_printed(command):
    assert command.well("--version").out == f"{gm.__version__}\n"


# train.


def test_train_json_is_one_object_with_the_promised_keys(command, tmp_path):
    summary = command.well("train", *SHORT, "--json", "--out", "run").document
    assert set(summary) >= SUMMARY_KEYS
    assert (summary["algorithm"], summary["network"], summary["delay"], summary["task"]) == (
        *("pc-asgd", "paper-1", 5, "digits"),
    )
    assert (summary["epochs"], summary["iterations"], summary["seed"], summary["run_dir"]) == (2, 24, 0, "run")
    assert len(summary["accuracy_per_agent"]) == 8 and summary["status"] == "finished"
    assert json.loads((tmp_path / "run/summary.json").read_text()) == summary


def test_train_is_simulate(command, tmp_path):
    command.well("train", *SHORT, "--theta", "pv", "--momentum", 0.9, "--out", "run")
    gm.simulate(epochs=2, delay=5, model="linear", theta="pv", momentum=0.9, out=tmp_path / "api")
    assert timeless(tmp_path / "run/metrics.jsonl") == timeless(tmp_path / "api/metrics.jsonl")
    assert (tmp_path / "run/config.toml").read_bytes() == (tmp_path / "api/config.toml").read_bytes()


def test_train_for_people_says_what_came_out_and_where(command):
    lines = command.well("train", *SHORT).out.splitlines()
    words = {line.split()[0]: line for line in lines}
    assert list(words) == [
        "execution",
        "memory",
        "algorithm",
        "accuracy",
        "spread",
        "predicts",
        "sent",
        "time",
        "folder",
    ]
    assert words["folder"].endswith("runs/pc-asgd-paper-1-delay5-seed0") and "24.3 %" in words["predicts"]  # theta auto
    assert command.well("train", *SHORT).out.rstrip().endswith("runs/pc-asgd-paper-1-delay5-seed0-2")


def test_a_folder_with_brackets_in_its_name_is_named_rightly(command):
    assert command.well("train", *SHORT, "--out", "run[red]").out.rstrip().endswith("run[red]")


def test_flags_win_over_the_file(command, tmp_path):
    (tmp_path / "run.toml").write_text(
        'lr = 0.3\nepochs = 2\ndelay = "5"\nmodel = "linear"\n[options]\ntheta = 0.7\nlam = 2.0\n'
    )
    summary = command.well("train", "run.toml", "--lr", 0.1, "--theta", "pv", "--json").document
    assert (summary["lr"], summary["epochs"], summary["delay"]) == (0.1, 2, 5)
    assert summary["options"]["theta"] == "pv" and summary["options"]["lam"] == 2.0


def test_a_flag_may_take_back_what_the_file_switched_on(command, tmp_path):
    (tmp_path / "run.toml").write_text('lazy = true\nepochs = 2\ndelay = "5"\n')
    command.well("train", "run.toml", "--out", "lazy")
    command.well("train", "run.toml", "--no-lazy", "--out", "awake")
    assert "lazy = true" in (tmp_path / "lazy/config.toml").read_text()
    assert "lazy = false" in (tmp_path / "awake/config.toml").read_text()


def test_the_default_preset_changes_nothing(command, tmp_path):
    command.well("train", *SHORT, "--out", "plain")
    command.well("train", *SHORT, "--preset", "default", "--out", "preset")
    for name in ("config.toml", "metrics.jsonl"):
        assert timeless(tmp_path / "plain" / name) == timeless(tmp_path / "preset" / name)


@pytest.mark.parametrize(
    ("preset", "extra", "expected"),
    [
        ("paper", ("--epochs", 3, "--batch", 64), {"theta": "pv", "criterion": "literal"}),
        ("public-code", ("--epochs", 3, "--batch", 64), {"criterion": "public-code", "granularity": "tensor"}),
    ],
)
def test_flags_win_over_a_preset(command, tmp_path, preset, extra, expected):
    arguments = ("train", "--preset", preset, *extra, "--delay", 1, "--model", "linear", "--json", "--out", "run")
    summary = command.well(*arguments).document
    assert summary["epochs"] == 3 and summary["options"].items() >= expected.items()
    config = (tmp_path / "run/config.toml").read_text()
    assert "batch = 64" in config and 'mixing = "uniform"' in config


def test_the_options_in_a_file_win_over_a_preset(command, tmp_path):
    (tmp_path / "run.toml").write_text('epochs = 2\ndelay = "5"\n[options]\ntheta = 0.7\n')
    summary = command.well("train", "run.toml", "--preset", "default", "--json").document
    assert summary["options"]["theta"] == 0.7


DELAYS = {
    "3": 3,
    "uniform:1,6": "uniform:1,6",
    "geometric:0.4": "geometric:0.4",
    "gilbert:0.05,0.5,4": "gilbert:0.05,0.5,4",
    "trace:trace.csv": "trace:trace.csv",
    "matrix:matrix.csv": "matrix:matrix.csv",
    "matrix:matrix.npy": "matrix:matrix.npy",
}


@pytest.mark.parametrize("delay", DELAYS)
def test_every_form_of_delay_trains_with_losses(command, tmp_path, delay):
    (tmp_path / "trace.csv").write_text("step,from,to,delay\n0,0,3,5\n4,0,3,2\n0,3,0,1\n")
    matrix = np.random.default_rng(0).integers(0, 6, (8, 8))
    np.savetxt(tmp_path / "matrix.csv", matrix, fmt="%d", delimiter=",")
    np.save(tmp_path / "matrix.npy", matrix)
    arguments = ("train", "--epochs", 1, "--model", "linear", "--delay", delay, "--algorithm", "d-asgd", "--json")
    summary = command.well(*arguments).document
    assert summary["delay"] == DELAYS[delay] and summary["message_age"] > 0
    lossy = command.well(*arguments, "--loss", 0.3).document
    assert lossy["accuracy_per_agent"] != summary["accuracy_per_agent"]


def test_clusters_are_discovered_and_said_so(command):
    summary = command.well("train", *SHORT, "--network", "ring:4", "--json").document
    assert summary["clusters_discovered"] and summary["clusters"] == [[0], [1], [2], [3]]
    outcome = command.well("train", *SHORT, "--network", "ring:4")
    assert "1+1+1+1" in outcome.out and "discovered from message ages" in outcome.out
    assert not command.well("train", *SHORT, "--json").document["clusters_discovered"]


def test_a_run_that_diverges_ends_with_status_1_and_still_one_object(command, tmp_path):
    outcome = command("train", "--epochs", 2, "--delay", 5, "--lr", 1e30, "--json", "--out", "run")
    summary = outcome.document
    assert outcome.status == 1 and summary["loss_mean"] is None
    assert (
        summary["status"].startswith("the loss of agent ") and f"at step {summary['iterations']}" in summary["status"]
    )
    assert outcome.err == f"gossamer: {summary['status']}; the metrics so far are in run\n"
    assert (tmp_path / "run/metrics.jsonl").read_text().count("\n") == 2
    assert command("train", "--epochs", 2, "--delay", 5, "--lr", 1e30).status == 1


def test_a_warning_is_one_line_and_the_run_goes_on(command):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        outcome = command("train", *SHORT, "--algorithm", "dm-asgd", "--gain", 1, "--json")
    assert outcome.err.splitlines()[0].startswith("gossamer: warning: dm-asgd's gain 1 reaches the stability limit")
    assert outcome.document["algorithm"] == "dm-asgd"


def _in_a_shell(folder, *arguments):
    package = str(Path(gm.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_mistake_in_a_shell_is_one_line_with_status_2(tmp_path):
    outcome = _in_a_shell(tmp_path, "train", "--algorithm", "pc-asdg")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("gossamer: unknown algorithm 'pc-asdg'") and outcome.stderr.count("\n") == 1
    assert not files_under(tmp_path)


def test_the_demo_is_a_comparison_of_the_family(command, tmp_path, monkeypatch):
    monkeypatch.setattr("gossamer.cli.compare.DEMO", {"epochs": "2", "delay": "5", "model": "linear"})
    document = command.well("demo", "--seeds", 1, "--json").document
    assert len(document["results"]) == 8 and document["report_dir"] == "reports/demo"
    assert list((tmp_path / "reports/demo").glob("*.png")) and (tmp_path / "reports/demo/results.json").is_file()


@pytest.mark.timeout(600)
def test_json_is_plain_ascii_and_a_terminal_without_signs_is_no_reason_to_fail():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for arguments in (["network", "--json"], ["network", "paper-1"], ["algorithms"], ["train", "--help"]):
        command = [sys.executable, "-m", "gossamer", *arguments]
        ended = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert ended.stdout.isascii()


def test_the_table_keeps_its_columns_on_a_narrow_terminal(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = command.well("compare", "-a", "sync,dm-asgd", *SHORT, "--seeds", 1, "--no-plots").out
    assert re.search(r"dm-asgd +\d+\.\d ± 0\.0 ", out) and "predict" in out


def test_clipping_counts_the_messages_that_are_current_when_clusters_are_discovered(command):
    ring = ("--network", "ring:6", "--delay", "gilbert:0.1,0.3,5", "--epochs", 5, "--json")
    clipped, heard = (
        command.well("train", "--algorithm", name, *ring).document["bytes_sent"] for name in ("c-asgd", "d-asgd")
    )
    assert 0.4 * heard < clipped < heard  # a link is good, hence current, three quarters of the time


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.23 GiB. GPU 0 has a total"), "on the device"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory for this"),
        (MemoryError(), "memory for this"),
    ],
)
def test_a_lack_of_memory_is_told_in_a_line(command, monkeypatch, error, where):
    def fail(*_):
        raise error

    monkeypatch.setattr("gossamer.cli.training_run.make_training", fail)
    outcome = command("train", *SHORT)
    assert outcome.status == 2 and len(outcome.err.splitlines()) == 1
    assert where in outcome.err and "use a smaller model" in outcome.err


def test_other_errors_are_not_hidden(command, monkeypatch):
    def fail(*_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("gossamer.cli.training_run.make_training", fail)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main(["train", *map(str, SHORT)])
