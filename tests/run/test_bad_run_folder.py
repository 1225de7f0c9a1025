"""Run folders that cannot be made, and runs that cannot go on from what is in theirs."""

import shutil

import numpy as np
import pytest
import torch

import gossamer as gm
from checkpoints import spoil
from command import files_under
from gossamer.state.checkpoint import Checkpoints, load_checkpoint

SHORT = ("--epochs", 2, "--delay", 5)


@pytest.fixture
def folder(folder):
    """The present folder, with files that are no run folders."""
    (folder / "key.toml").write_text("epocs = 3\n")
    (folder / "number.toml").write_text("options = 3\n")
    return folder


@pytest.fixture
def run(folder, command):
    command.well("train", *SHORT, "--out", "run")
    return folder / "run"


def test_a_run_folder_that_exists_is_left_as_it_is(run, command):
    before = files_under(run.parent)
    assert "'run' already exists; choose another --out" in command.refused("train", *SHORT, "--out", "run")
    assert "already exists" in command.refused("compare", *SHORT, "--seeds", 1, "--out", "run")
    assert files_under(run.parent) == before


def test_a_file_is_no_place_for_a_run(folder, command):
    assert "'key.toml' already exists" in command.refused("train", *SHORT, "--out", "key.toml")
    assert "'key.toml' already exists" in command.refused("compare", *SHORT, "--out", "key.toml")


def test_simulate_refuses_a_folder_that_exists(run):
    before = files_under(run)
    with pytest.raises(gm.UserError, match="already exists"):
        gm.simulate(delay=5, epochs=2, out=run)
    assert files_under(run) == before


@pytest.mark.parametrize(
    "extra",
    [("--lr", 0.1), ("--seed", 0), ("--preset", "paper"), ("--out", "other"), ("number.toml",), ("--theta", "pv")],
)
def test_resume_takes_no_other_settings(run, command, extra):
    before = files_under(run.parent)
    assert "--resume uses the settings of the run" in command.refused("train", "--resume", "run", *extra)
    assert files_under(run.parent) == before


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _plain_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def _of_format(value):
    def change(path):
        with np.load(path) as archive:
            np.savez(path, **{**archive, "format": np.array(value)})

    return change


def _holding(*, kept=True, **values):
    """Write a valid checkpoint with other content; a name's double underscores stand for dots."""

    def change(path):
        state = load_checkpoint(path) if kept else {}
        path.unlink()  # or it would become the previous one
        Checkpoints(path.parent).save({**state, **{name.replace("__", "."): value for name, value in values.items()}})

    return change


BAD_CHECKPOINTS = {
    "missing": (lambda path: path.unlink(), "there is no checkpoint"),
    "empty": (lambda path: path.write_bytes(b""), "damaged or truncated"),
    "truncated": (_half, "damaged or truncated"),
    "damaged": (spoil, "damaged or truncated"),
    "text": (lambda path: path.write_text("hello"), "damaged or truncated"),
    "one array": (_plain_array, "damaged or truncated"),
    "other arrays": (lambda path: np.savez(path, a=1), "has format 0, this version reads 2"),
    "of the future": (_of_format(3), "has format 3, this version reads 2"),
    "of no format": (_of_format([1, 2]), "has format [1, 2], this version reads 2"),
    "without parts": (_holding(kept=False), "does not belong to this run's config.toml"),
    "step that is none": (_holding(simulation__t=torch.tensor([1, 2])), "does not belong to this run's config.toml"),
    "other agents": (_holding(simulation__x=torch.zeros(3, 7)), "does not belong"),
}


@pytest.mark.parametrize("algorithm", ["sync", "pc-asgd"])
@pytest.mark.parametrize("kind", BAD_CHECKPOINTS)
def test_a_bad_checkpoint_is_refused_and_kept(folder, command, kind, algorithm):
    harm, says = BAD_CHECKPOINTS[kind]
    command.well("train", *SHORT, "--model", "linear", "--algorithm", algorithm, "--out", "run")
    harm(folder / "run" / "checkpoint.npz")
    before = files_under(folder)
    assert says in command.refused("train", "--resume", "run")
    assert files_under(folder) == before


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("--algorithm", "sync"), ("--algorithm", "sync", "--model", "linear")),
        (("--algorithm", "pc-asgd"), ("--algorithm", "sync")),
        (("--algorithm", "pc-asgd"), ("--algorithm", "dm-asgd")),
        (("--algorithm", "d-asgd"), ("--algorithm", "d-asgd", "--network", "ring:8", "--delay", "6")),
        (("--algorithm", "d-asgd"), ("--algorithm", "d-asgd", "--network", "ring:5")),
        (("--algorithm", "d-asgd"), ("--algorithm", "d-asgd", "--delay", "gilbert:0.1,0.5,5")),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(folder, command, mine, theirs):
    command.well("train", *SHORT, *mine, "--out", "mine")
    command.well("train", *SHORT, *theirs, "--out", "theirs")
    shutil.copy("theirs/checkpoint.npz", "mine/checkpoint.npz")
    before = files_under(folder)
    assert "does not belong to this run's config.toml" in command.refused("train", "--resume", "mine")
    assert files_under(folder) == before


def test_the_checkpoint_of_another_seed_is_refused(folder, command):
    command.well("train", *SHORT, "--out", "mine")
    command.well("train", *SHORT, "--seed", 1, "--out", "theirs")
    shutil.copy("theirs/checkpoint.npz", "mine/checkpoint.npz")
    command.refused("train", "--resume", "mine")


def test_metrics_shorter_than_the_checkpoint_says_are_refused(run, command):
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().partition("\n")[0] + "\n")
    assert "has 1 lines but the checkpoint counts 3" in command.refused("train", "--resume", "run")


@pytest.mark.parametrize("content", [None, "x\n" * 9])
def test_metrics_that_cannot_be_read_are_refused(run, command, content):
    (run / "metrics.jsonl").unlink()
    if content is not None:
        (run / "metrics.jsonl").write_text(content)
    assert "metrics.jsonl" in command.refused("train", "--resume", "run")


def test_a_damaged_summary_does_not_stop_a_run_from_going_on(run, command):
    (run / "summary.json").write_text("[]")
    assert command.well("train", "--resume", "run", "--json").document["status"] == "finished"


def test_a_custom_task_is_not_resumed_from_the_command_line(folder, command):
    examples = gm.Examples(torch.eye(4).repeat(8, 1), torch.arange(32) % 4)
    task = gm.Task("toy", lambda: torch.nn.Linear(4, 4), examples, examples)
    gm.simulate(task, "ring:4", "d-asgd", delay=2, epochs=2, batch=4, out="run")
    assert "unknown task 'toy'" in command.refused("train", "--resume", "run")
