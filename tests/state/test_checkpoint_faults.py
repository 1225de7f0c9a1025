"""Checkpoints of a machine that dies, or whose disk is full, while it saves."""

import errno
import itertools
import os
import stat
import warnings
import zipfile
from pathlib import Path

import pytest

import gossamer as gm
import runs
from checkpoints import loaded, same, saved, spoil, state
from gossamer.run.folder import RunFolder
from gossamer.state import checkpoint
from gossamer.state.checkpoint import Checkpoints, load_checkpoint

# Killed at every instant of a save.


class Killed(BaseException):
    pass


class Machine:
    """The calls that reach the disk, in order; it dies before or after one of them, and does nothing more then."""

    def __init__(self, patch, dies_at=None, after=False):
        self.calls, self.dead, self._dies_at, self._after = [], False, dies_at, after
        real_fsync = os.fsync
        patch.setattr(os, "fsync", lambda file: self._do(_fsync_name(file), real_fsync, file))
        self._wrap(patch, os, "replace", lambda source, target: f"{Path(source).name} > {Path(target).name}")
        self._wrap(patch, os, "unlink", lambda path, **_: "unlink")
        self._wrap(patch, zipfile.ZipFile, "open", lambda _, name, *__, **___: f"write {name}")

    def _wrap(self, patch, owner, name, describe):
        real = getattr(owner, name)
        patch.setattr(owner, name, lambda *a, **k: self._do(describe(*a, **k), real, *a, **k))

    def _do(self, what, real, *arguments, **values):
        if self.dead:
            raise Killed
        self.calls.append(what)
        dies = len(self.calls) - 1 == self._dies_at
        if dies and not self._after:
            self.dead = True
            raise Killed
        try:
            return real(*arguments, **values)
        finally:
            if dies:
                self.dead = True
                raise Killed


def _fsync_name(file):
    return "fsync folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "fsync file"


BEFORE = {
    "two": (lambda folder: None, {2}),
    "one": (lambda folder: (folder / "checkpoint.previous.npz").unlink(), {2}),
    "newest damaged": (lambda folder: spoil(folder / "checkpoint.npz"), {1}),
    "newest missing": (lambda folder: (folder / "checkpoint.npz").unlink(), {1}),
    "previous damaged": (lambda folder: spoil(folder / "checkpoint.previous.npz"), {2}),
}


def killed_save(folder, monkeypatch, prepare, dies_at=None, after=False):
    """Save state 3 in a process that dies on the way; return the calls that it made."""
    folder.mkdir()
    saved(folder, 1, 2)
    prepare(folder)
    process = Checkpoints(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process.load()
    with monkeypatch.context() as patch:
        machine = Machine(patch, dies_at, after)
        try:
            process.save(state(3))
            assert dies_at is None
        except Killed:
            pass
    return machine.calls


def test_a_save_reaches_the_disk_before_it_is_renamed_and_then_the_folder_does(tmp_path, monkeypatch):
    calls = killed_save(tmp_path / "run", monkeypatch, BEFORE["two"][0])
    members = ("format", "part.x", "t", "flags", "bfloat16", "sha256")
    assert [call for call in calls if call != "unlink"] == [
        *(f"write {name}.npy" for name in members),
        "fsync file",
        "checkpoint.npz > checkpoint.previous.npz",
        "checkpoint.npz.tmp > checkpoint.npz",
        "fsync folder",
    ]


def test_the_metrics_reach_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), real(file)))
    RunFolder(tmp_path).save(state(1))
    assert synced == [(tmp_path / name).stat().st_ino for name in ("metrics.jsonl", "checkpoint.npz", "")]


@pytest.mark.parametrize("kind", BEFORE)
def test_killed_at_any_instant_of_a_save_there_is_a_valid_checkpoint(tmp_path, monkeypatch, kind):
    prepare, old = BEFORE[kind]
    calls = killed_save(tmp_path / "whole", monkeypatch, prepare)
    assert loaded(tmp_path / "whole") == (3, 0)
    found = set()
    for dies_at, after in itertools.product(range(len(calls)), (False, True)):
        folder = tmp_path / f"{dies_at}-{after}"
        killed_save(folder, monkeypatch, prepare, dies_at, after)
        number, _ = loaded(folder)
        assert number in {*old, 3}, (calls[dies_at], after)
        found.add(number)
        resumed = Checkpoints(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resumed.load()
        resumed.save(state(4))
        assert loaded(folder) == (4, 0) and same(load_checkpoint(resumed.previous), state(number))
        assert not list(folder.glob("*.tmp"))
    assert found == {*old, 3}


# A full disk.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", ["write", "fsync"])
def test_a_full_disk_leaves_the_earlier_checkpoints_whole(tmp_path, monkeypatch, step, number):
    checkpoints = saved(tmp_path, 1, 2)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    full = OSError(number, os.strerror(number))

    def write_half(file, _):
        file.write(b"half")
        raise full

    with monkeypatch.context() as patch:
        if step == "write":
            patch.setattr(checkpoint, "_write", write_half)
        else:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(full))
        with pytest.raises(gm.UserError, match=f"^there is no space left in '{tmp_path}'"):
            checkpoints.save(state(3))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    checkpoints.save(state(3))
    assert loaded(tmp_path) == (3, 0)


def test_a_run_on_a_disk_that_fills_up_ends_with_one_line_and_can_go_on(command, tmp_path, monkeypatch):
    arguments = ("--epochs", 5, "--delay", 5, "--model", "linear", "--checkpoint-every", 1)
    command.well("train", *arguments, "--out", "whole")
    real, times = checkpoint._write, itertools.count(1)

    def write(file, values):
        if next(times) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, values)

    monkeypatch.setattr(checkpoint, "_write", write)
    outcome = command("train", *arguments, "--out", "run")
    assert outcome.status == 2 and outcome.err.count("\n") == 1 and "accuracy" not in outcome.out
    assert outcome.err.startswith("gossamer: there is no space left in 'run' (No space left on device)")
    assert int(load_checkpoint(tmp_path / "run/checkpoint.npz")["simulation.t"]) == 24
    assert int(load_checkpoint(tmp_path / "run/checkpoint.previous.npz")["simulation.t"]) == 12
    command.well("train", "--resume", "run")
    assert int(load_checkpoint(tmp_path / "run/checkpoint.previous.npz")["simulation.t"]) == 48  # the end is saved once
    assert runs.outcome(tmp_path / "run") == runs.outcome(tmp_path / "whole")
