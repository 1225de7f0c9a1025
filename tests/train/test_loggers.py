"""`--log`: the rows of metrics.jsonl, in the files of others; the run does not depend on any of them."""

import csv
import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer as gm
from flight import SOURCE
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings
from gossamer.train.loggers import logged, spreadsheet
from gossamer.train.loggers.logged_values import flatten

SHORT = ("--epochs", 2, "--delay", 5, "--model", "linear", "--eval-every", 6, "--network", "clusters:2,2")


def rows_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def table(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def records(run: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """The config and the row of history in each record that the files of an offline run hold, the newest file last."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for path in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        for data in stored(path.read_bytes()):
            record = Record.FromString(data)
            config = {item.key: item.value_json for item in record.run.config.update}
            history = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found.append((config, history))
    return found


def stored(data: bytes) -> Iterator[bytes]:
    """The records of a file: in blocks of 32 KiB, a checksum, a length and 1 (whole), 2 (first), 3 or 4 (last)."""
    place, whole = 7, b""  # after the header
    while place + 7 <= len(data):
        if (left := -place % 32768) and left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole = (b"" if kind in (1, 2) else whole) + data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole


# What becomes of a row.


def test_a_row_is_flattened_whatever_it_holds():
    row = {
        "step": 3,
        "accuracy": [0.25, 0.75],
        "loss": [1.0, math.nan],
        "predict": [None, 0.5],
        "message_age": None,
        "ages": [[None, 2.0], [4.0, None], [None, None]],
        "note": "text",
        "parts": {"a": 1, "b": [1, 3]},
    }
    found = " ".join(f"{'/'.join(name)}={number:g}" for name, number in flatten(row).items())
    assert found == (
        "step=3 accuracy/mean=0.5 accuracy/0=0.25 accuracy/1=0.75 "
        "loss/0=1 predict/mean=0.5 predict/1=0.5 "  # the mean of what diverged is none
        "ages/mean=3 ages/0=2 ages/1=4 parts/a=1 parts/b/mean=2 parts/b/0=1 parts/b/1=3"
    )
    assert set(flatten({"x": [1, 2]}, agents=False)) == {("x", "mean")}


# Each logger.


def test_csv_has_a_line_an_evaluation_and_a_column_a_number(command, folder):
    command.well("train", *SHORT, "--log", "csv", "--out", "run", "--json")
    rows, lines = rows_of(folder / "run"), table(folder / "run")
    assert [line["step"] for line in lines] == [str(row["step"]) for row in rows]
    assert list(lines[0])[:4] == ["step", "epoch", "lr", "accuracy_mean"] and None not in lines[0]
    for row, line in zip(rows, lines, strict=True):
        assert [float(line[f"accuracy_{agent}"]) for agent in range(4)] == row["accuracy"]
        assert float(line["accuracy_mean"]) == pytest.approx(sum(row["accuracy"]) / 4)
        assert [line[f"predict_{agent}"] for agent in range(4)] == [
            "" if share is None else str(share).removesuffix(".0") for share in row["predict"] or [None] * 4
        ]


def test_tensorboard_has_curves_and_the_settings(command, folder):
    command.well("train", *SHORT, "--log", "tensorboard", "--out", "run", "--json", "--theta", "0.4")
    found, rows = curves(folder / "run"), rows_of(folder / "run")
    assert [step for step, _ in found["accuracy/mean"]] == [row["step"] for row in rows]
    assert [value for _, value in found["loss/3"]] == pytest.approx([row["loss"][3] for row in rows])
    assert found["end/accuracy_mean"][-1][1] == pytest.approx(sum(rows[-1]["accuracy"]) / 4)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    read = EventAccumulator(str(folder / "run/tensorboard")).Reload()
    given = HParamsPluginData.FromString(read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
    assert given.session_start_info.hparams["theta"].number_value == 0.4


@pytest.mark.timeout(600)
def test_wandb_offline_keeps_a_run_that_can_be_read_back_and_goes_on(folder):
    """In a process of its own, with no way out: nothing but WANDB_MODE is set."""

    def gossamer(*words: object) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
        return subprocess.run(
            [sys.executable, "-m", "gossamer", "train", *map(str, words), "--json"],
            env={**kept, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    first = gossamer(*SHORT, "--log", "wandb,csv", "--out", "run", "--time-limit", 1e-6)
    assert first.returncode == 0 and first.stderr.count("\n") == 1  # how to go on
    assert json.loads(first.stdout)["iterations"] == 0
    ended = gossamer("--resume", "run")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["status"] == "finished"
    found = records(folder / "run")
    config = {name: value for given, _ in found for name, value in given.items()}
    assert json.loads(config["lr"]) == 0.1 and json.loads(config["algorithm"]) == "pc-asgd"
    means = [json.loads(row["accuracy/mean"]) for _, row in found if "accuracy/mean" in row]
    assert means == pytest.approx([sum(row["accuracy"]) / 4 for row in rows_of(folder / "run")])
    ids = {path.name.rsplit("-", 1)[-1] for path in (folder / "run/wandb").glob("offline-run-*")}
    assert ids == {json.loads((folder / "run/wandb.json").read_text())["id"]}  # one run, in two parts
    assert [line["step"] for line in table(folder / "run")] == [str(row["step"]) for row in rows_of(folder / "run")]


# Together with the rest.


def test_a_resumed_run_has_the_logs_of_a_whole_one(command, folder):
    words = (*SHORT, "--log", "tensorboard,csv", "--checkpoint-every", 1, "--json")
    command.well("train", *words, "--out", "whole")
    command("train", *words, "--out", "part", "--time-limit", 1e-6)
    command.well("train", "--resume", "part", "--json")
    whole, part = ([drop_seconds(line) for line in table(folder / name)] for name in ("whole", "part"))
    assert part == whole
    assert curves(folder / "part")["loss/mean"] == curves(folder / "whole")["loss/mean"]


def drop_seconds(line: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in line.items() if not name.startswith("seconds")}


def test_compare_logs_every_run_and_simulate_takes_it_too(command, folder):
    command.well(
        *("compare", *SHORT, "--log", "csv", "--algorithms", "d-asgd,dm-asgd", "--seeds", 1),
        *("--no-plots", "--json", "--out", "report"),
    )
    assert len(list((folder / "report/runs").glob("*/metrics.csv"))) == 2
    gm.simulate("digits", "ring:3", "d-asgd", model="linear", delay=2, epochs=1, log="csv", out=folder / "python")
    assert len(table(folder / "python")) == len(rows_of(folder / "python"))
    with pytest.raises(gm.UserError, match="out="):
        gm.simulate("digits", "ring:3", "d-asgd", delay=2, epochs=1, log="csv")


@pytest.mark.timeout(600)
def test_processes_log_their_rows_too(command, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    ended = command(
        *("train", "--engine", "processes", "--network", "path:2", "--delay", 0, "--model", "linear"),
        *("--epochs", 1, "--log", "csv", "--out", "run", "--json"),
    )
    assert ended.status == 0, ended.err
    assert [line["step"] for line in table(folder / "run")] == [str(row["step"]) for row in rows_of(folder / "run")]


# What goes wrong.


def test_a_logger_that_fails_is_told_once_and_the_run_goes_on(command, folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spreadsheet.CsvLogger, "on_row", full)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        outcome = command("train", *SHORT, "--log", "csv,tensorboard", "--out", "run", "--json")
    assert outcome.status == 0 and outcome.document["status"] == "finished"
    assert outcome.err == (
        "gossamer: warning: --log csv failed and is switched off (OSError: [Errno 28] No space left on device); "
        "metrics.jsonl has every row\n"
    )
    command.well("train", *SHORT, "--out", "plain", "--json")
    alike = [[{**row, "seconds": 0} for row in rows_of(folder / name)] for name in ("run", "plain")]
    assert alike[0] == alike[1]
    assert len(curves(folder / "run")["accuracy/mean"]) == len(rows_of(folder / "run"))


def test_a_missing_package_is_one_line_before_anything_is_trained(command, folder, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "wandb" else find(name, *more))
    for name in ("train", "compare"):
        error = command.refused(name, *SHORT, "--log", "csv,wandb")
        assert '--log wandb needs a package; install it with: pip install "gossamer[log]"' in error
    assert list(folder.iterdir()) == []


def test_an_unknown_logger_is_one_line(command, folder):
    error = command.refused("train", *SHORT, "--log", "tensorbord")
    assert "unknown logger 'tensorbord'; did you mean 'tensorboard'?" in error and list(folder.iterdir()) == []


def test_a_row_that_comes_twice_is_logged_once(tmp_path):
    # Rows of agents that are processes are gathered anew when a run is taken up again.
    settings = make_settings({"log": "tensorboard"})
    folder = RunFolder.create(tmp_path / "run", settings, gm.network("ring:4"))
    with logged(folder, settings, []):
        for step in (0, 6, 6, 12):
            folder.append({"step": step, "epoch": step / 6, "accuracy": [0.5], "loss": [1.0]})
    assert [step for step, _ in curves(folder.path)["epoch"]] == [0, 6, 12]
