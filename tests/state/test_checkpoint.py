"""What is in a checkpoint, and the two that are kept."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer as gm
from checkpoints import loaded, same, saved, spoil, state
from gossamer.state import checkpoint
from gossamer.state.checkpoint import FORMAT, Checkpoints, load_checkpoint

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
    with pytest.raises(gm.UserError, match="does not match its checksum"):
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
    with pytest.raises(gm.UserError, match="a different size than its header says"):
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
    with pytest.warns(RuntimeWarning, match=r"checkpoint.npz' is damaged; continuing from the previous one") as caught:
        assert same(resumed.load(), state(1))
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    resumed.save(state(3))
    assert same(load_checkpoint(resumed.previous), state(1))  # the damaged one did not take its place
    resumed.save(state(4))
    assert same(load_checkpoint(resumed.previous), state(3)) and loaded(tmp_path) == (4, 0)


def test_a_missing_newest_one_is_said_to_be_missing(tmp_path):
    saved(tmp_path, 1, 2).newest.unlink()
    with pytest.warns(RuntimeWarning, match="is missing; continuing from the previous one"):
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
