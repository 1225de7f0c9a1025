import errno
import itertools
import os
import re
import stat
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer as gm
from command import Command
from gossamer.engine import checkpoint
from gossamer.engine.checkpoint import FORMAT, Checkpoints, load_checkpoint
from gossamer.engine.folder import RunFolder


def state(number):
    return {"part.x": torch.full((3, 5), float(number)), "t": torch.tensor(number), "flags": torch.tensor([True])}


def same(first, second):
    return first.keys() == second.keys() and all(_bits(first[name]) == _bits(second[name]) for name in first)


def _bits(value):
    return value.dtype, value.shape, bytes(value.contiguous().view(-1).view(torch.uint8).tolist())


def loaded(folder):
    """The number of the state that a new process would go on from, and whether it was warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Checkpoints(folder).load()
    assert same(found, state(int(found["t"])))
    return int(found["t"]), len(caught)


def spoil(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def saved(folder, *numbers):
    checkpoints = Checkpoints(folder)
    for number in numbers:
        checkpoints.save(state(number))
    return checkpoints


# What is in a file.

VALUES = {
    "bfloat16 matrix": torch.tensor([[1.5, -0.0, float("nan")], [float("inf"), 1e-40, -3.0]], dtype=torch.bfloat16),
    "bfloat16 without dimension": torch.tensor(2.5, dtype=torch.bfloat16),
    "bfloat16 transposed": torch.arange(6, dtype=torch.bfloat16).view(2, 3).T,
    "bfloat16 empty": torch.empty((0, 3), dtype=torch.bfloat16),
    "empty": torch.empty((2, 0, 3)),
    "without dimension": torch.tensor(0.1, dtype=torch.float64),
    "bool": torch.tensor([True, False, True]),
    "int64": torch.tensor([2**62 + 1, -(2**63)]),
    "float64": torch.tensor([0.1, float("nan"), -0.0, 5e-324], dtype=torch.float64),
    "float32 strided": torch.arange(12.0).view(3, 4)[:, ::2],
    "float16": torch.tensor([0.1], dtype=torch.float16),
    "uint8": torch.tensor([0, 255], dtype=torch.uint8),
    "larger than a chunk": torch.arange(100.0),
    "wanting gradients": torch.ones(2, requires_grad=True),
}


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "CHUNK", 64)
    Checkpoints(tmp_path).save(VALUES)
    found = Checkpoints(tmp_path).load()
    assert same(found, {name: value.detach() for name, value in VALUES.items()})
    for name, value in found.items():
        value.zero_()  # it can be written to
        assert value.is_contiguous(), name


def test_a_checkpoint_is_an_npz_that_numpy_reads_and_the_same_state_gives_the_same_bytes(tmp_path):
    (tmp_path / "other").mkdir()
    first, second = saved(tmp_path, 7).newest, saved(tmp_path / "other", 7).newest
    assert first.read_bytes() == second.read_bytes()
    with np.load(first) as archive:
        assert int(archive["format"]) == FORMAT and np.array_equal(archive["part.x"], np.full((3, 5), 7.0))
        assert re.fullmatch("[0-9a-f]{64}", str(archive["sha256"]))


def test_the_checksum_is_made_while_writing(tmp_path, monkeypatch):
    opened = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode="r", **rest: opened.append(mode) or real(path, mode, **rest))
    saved(tmp_path, 1, 2)
    assert opened == ["wb", "wb"]  # nothing was read back


def test_one_wrong_byte_anywhere_is_found_or_does_not_matter(tmp_path):
    path = saved(tmp_path, 3).newest
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 3):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ (1 + position % 255)]) + whole[position + 1 :])
        try:
            assert same(load_checkpoint(path), state(3)), position
        except gm.UserError as error:
            assert "damaged or truncated" in str(error) or "has format" in str(error)
            assert "\n" not in str(error)
            refused += 1
    assert refused > len(whole) / 3 / 2


def test_every_truncated_file_is_refused(tmp_path):
    path = saved(tmp_path, 3).newest
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(gm.UserError, match="damaged or truncated"):
            load_checkpoint(path)


def _rewritten(path, **changes):
    with np.load(path) as archive:
        np.savez(path, **{**archive, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"t": np.array(4)},
        {"t": np.array([3])},
        {"t": np.array(3, dtype=np.int32)},
        {"extra": np.array(1)},
        {"bfloat16": np.array(["t"])},
        {"sha256": np.array("0" * 64)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_content_that_a_zip_takes_for_whole_is_still_held_against_its_checksum(tmp_path, changes):
    path = saved(tmp_path, 3).newest
    _rewritten(path, **changes)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with pytest.raises(gm.UserError, match="does not have the sum"):
        load_checkpoint(path)


def test_a_header_is_held_against_the_size_of_its_array_before_memory_is_taken(tmp_path):
    path = saved(tmp_path, 3).newest
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = b"'shape': (3, 5), }" + b" " * 12
    assert header in members["part.x.npy"]
    huge = b"'shape': (10000000000000000,)}"
    assert len(huge) == len(header)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace(header, huge))
    with pytest.raises(gm.UserError, match="another size than its header says"):
        load_checkpoint(path)


def test_a_file_of_the_format_before_is_refused_in_one_line(tmp_path):
    np.savez(tmp_path / "checkpoint.npz", format=np.array(1), rows=np.array(3))
    with pytest.raises(gm.UserError, match=r"^checkpoint '.*' has format 1, this version reads 2; train anew$"):
        Checkpoints(tmp_path).load()


# Two files.


def test_the_last_two_are_kept(tmp_path):
    checkpoints = saved(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]
    for number in (2, 3):
        checkpoints.save(state(number))
        assert same(load_checkpoint(checkpoints.newest), state(number))
        assert same(load_checkpoint(checkpoints.previous), state(number - 1))
    assert len(list(tmp_path.iterdir())) == 2


def test_the_previous_one_is_used_with_a_warning_and_kept_until_there_is_a_new_one(tmp_path):
    saved(tmp_path, 1, 2)
    spoil(tmp_path / "checkpoint.npz")
    resumed = Checkpoints(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"checkpoint.npz' is damaged; going on from the previous one") as caught:
        assert same(resumed.load(), state(1))
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    resumed.save(state(3))
    assert same(load_checkpoint(resumed.previous), state(1))  # the damaged one did not take its place
    resumed.save(state(4))
    assert same(load_checkpoint(resumed.previous), state(3)) and loaded(tmp_path) == (4, 0)


def test_a_missing_newest_one_is_said_to_be_missing(tmp_path):
    saved(tmp_path, 1, 2).newest.unlink()
    with pytest.warns(RuntimeWarning, match="is missing; going on from the previous one"):
        assert same(Checkpoints(tmp_path).load(), state(1))
    saved(tmp_path, 3)
    assert same(load_checkpoint(tmp_path / "checkpoint.previous.npz"), state(1)) and loaded(tmp_path) == (3, 0)


def test_without_a_valid_one_the_error_names_the_newest_that_is_there(tmp_path):
    with pytest.raises(gm.UserError, match="there is no checkpoint"):
        Checkpoints(tmp_path).load()
    checkpoints = saved(tmp_path, 1, 2)
    spoil(checkpoints.previous)
    assert loaded(tmp_path) == (2, 0)
    spoil(checkpoints.newest)
    with pytest.raises(gm.UserError, match=r"checkpoint.npz' is damaged"):
        Checkpoints(tmp_path).load()
    checkpoints.newest.unlink()
    with pytest.raises(gm.UserError, match=r"checkpoint.previous.npz' is damaged"):
        Checkpoints(tmp_path).load()


def test_what_a_killed_run_left_half_written_is_harmless_and_goes(tmp_path):
    saved(tmp_path, 1)
    leftover = tmp_path / "checkpoint.npz.tmp"
    leftover.write_bytes(b"half")
    assert loaded(tmp_path) == (1, 0) and not leftover.exists()
    leftover.write_bytes(b"half")
    saved(tmp_path, 2)
    assert loaded(tmp_path) == (2, 0) and not leftover.exists()


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


def test_a_run_on_a_disk_that_fills_up_ends_with_one_line_and_can_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
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
    for name in ("metrics.jsonl", "checkpoint.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
