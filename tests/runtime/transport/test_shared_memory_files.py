"""The files of shared memory: those that are no rings, that nobody needs any more, and for which there is no room."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.runtime.transport import message_ring as rings
from gossamer.runtime.transport import shared_memory
from gossamer.runtime.transport.shared_memory import SharedMemory, remove_leftovers, remove_orphans
from shared_memory import agents_in, die, file, heard, say

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
NO_PROCESS = 2**31 - 1  # more than Linux ever gives


@pytest.fixture
def agent(tmp_path, monkeypatch):
    with agents_in(tmp_path, monkeypatch) as make:
        yield make


def leave(agent, rank=0, run="run", pid=NO_PROCESS, lives=False):
    """Leave the file of a process that has died; return it, or its writer if that lives."""
    writer = agent(rank, run=run, length=8)
    say(writer, 5, sender=rank)
    writer._ring["pid"] = pid
    path = writer._path(rank)
    os.utime(path, (0, 0))
    if lives:
        return writer
    die(writer)
    return path


# Files that are no rings are dropped and counted.


@given(st.binary(max_size=400))
@in_one_folder
def test_random_bytes_are_no_ring(agent, tmp_path, content):
    file(tmp_path).write_bytes(content)
    reader = agent(1)
    assert reader.latest(0) is None and reader.at(0, 5) is None and reader.counts == {"malformed": 1}


@given(st.data())
@in_one_folder
def test_a_damaged_ring_is_never_fatal(agent, tmp_path, data):
    file(tmp_path).unlink(missing_ok=True)  # the one of the example before
    content = bytearray(leave(agent).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    # The counters and lengths, where damage does most.
    word = data.draw(st.integers(2, 40))
    content[8 * word : 8 * word + 8] = data.draw(st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1])).to_bytes(8, "little")
    length = data.draw(st.sampled_from([len(content), len(content), len(content) - 1, 64]))
    file(tmp_path).write_bytes(content[:length])
    reader = agent(1)
    for letter in (reader.latest(0), reader.at(0, 5), reader.latest(0)):
        assert letter is None or letter.payload.clone().numel() <= 8
    assert set(reader.counts) <= {"malformed"} and reader.counts["malformed"] <= 1


def test_a_file_that_is_no_ring_is_counted_once_and_the_ring_after_it_is_read(agent, tmp_path):
    whole = leave(agent).read_bytes()
    file(tmp_path).unlink()
    reader = agent(1)
    for times, content in enumerate((whole[:-1], whole + b"\0", whole[:40], b"\0" * 500), 1):
        file(tmp_path).write_bytes(content)
        assert [reader.latest(0) for _ in range(5)] == [None] * 5
        assert reader.counts == {"malformed": times}
        file(tmp_path).unlink()
    file(tmp_path).write_bytes(whole)
    assert heard(reader.latest(0)) == [5]
    file(tmp_path).unlink()
    file(tmp_path).write_bytes(b"nonsense")
    assert heard(reader.latest(0)) == [5] and reader.counts == {"malformed": 5}


def test_a_malformed_message_is_counted_once_and_the_one_before_it_is_read(agent):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 1)
    say(writer, 2)
    ring = writer._ring
    ring.begin(3, b"nonsense")
    ring.finish(3)
    for _ in range(3):
        assert heard(reader.latest(0)) == [2] and heard(reader.at(0, 1)) == [1]
    assert reader.counts == {"malformed": 1}


@pytest.mark.parametrize("how", ["sender", "agents", "length"])
def test_a_message_of_another_run_is_dropped(agent, tmp_path, how):
    writer = agent(0, length=16, num_agents=4 if how == "agents" else 3)
    if how != "agents":  # then the file alone tells
        say(writer, 5, sender=2 if how == "sender" else 0)
    if how == "length":  # a header that promises more than the slot has
        writer._ring.begin(1, writer._ring.header(1).replace(b"\x08\0\0\0\0\0\0\0", b"\x11\0\0\0\0\0\0\0"))
        writer._ring.finish(1)
    reader = agent(1)
    assert reader.latest(0) is None and reader.latest(0) is None and reader.counts == {"malformed": 1}


def test_a_file_that_is_no_ring_is_replaced_by_its_owner(agent, tmp_path):
    whole = bytearray(leave(agent).read_bytes())
    head = 8 * rings._WORD["head"]
    whole[head : head + 8] = b"\xff" * 8  # a number after which there is none
    for content in (b"", b"nonsense" * 20, bytes(whole)):
        file(tmp_path).write_bytes(content)
        writer = agent(0, length=8)
        say(writer, 1)
        assert heard(agent(1).latest(0)) == [1]
        writer.close()


def test_a_file_that_is_removed_while_it_is_taken_over_is_made_anew(agent, tmp_path, monkeypatch):
    path, real = leave(agent), rings.try_lock

    def lock(descriptor):
        path.unlink(missing_ok=True)
        real(descriptor)

    monkeypatch.setattr(rings, "try_lock", lock)
    writer = agent(0, length=8)
    say(writer, 6)
    assert heard(agent(1).latest(0)) == [6]


def test_a_file_of_another_user_is_not_read(agent, monkeypatch):
    leave(agent)
    reader = agent(1)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert reader.latest(0) is None and reader.counts == {"malformed": 1}


def test_links_and_pipes_are_neither_followed_nor_waited_for(agent, tmp_path):
    leave(agent, rank=2).rename(tmp_path / "elsewhere")
    file(tmp_path, 2).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(file(tmp_path, 0))
    reader = agent(1)
    assert reader.latest(0) is None and reader.latest(2) is None
    writer = agent(2, length=8)
    say(writer, 9, sender=2)
    assert heard(reader.latest(2)) == [9] and not file(tmp_path, 2).is_symlink()


def test_a_peer_is_looked_for_every_fifty_milliseconds_and_not_oftener(agent, monkeypatch):
    monkeypatch.undo()
    now, reader = [100.0], agent(1)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert reader.latest(0) is None
    leave(agent)
    now[0] += 0.049
    assert reader.latest(0) is None and reader.at(0, 5) is None
    now[0] += 0.002
    assert heard(reader.latest(0)) == [5]
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda *_, **__: pytest.fail("a call of the system"))
        patch.setattr(os, "lstat", lambda *_, **__: pytest.fail("a call of the system"))
        patch.setattr(os, "open", lambda *_, **__: pytest.fail("a call of the system"))
        assert heard(reader.at(0, 5)) == heard(reader.latest(0)) == [5] and reader.latest(0).intact()


# What is left behind is removed, and nothing else.


def test_leftovers_of_a_run_are_removed_and_no_other_files(agent, tmp_path):
    for run in ("a", "a-1", "ab", "b"):
        for rank in (0, 12):
            file(tmp_path, rank, run).touch()
    (tmp_path / "gossamer-a-3.x_7").touch()
    (tmp_path / "gossamer-a-notes").touch()
    (tmp_path / "gossamer-a-0-old").touch()
    before = set(tmp_path.iterdir())
    assert remove_leftovers("a", tmp_path) == 3 and remove_leftovers("a", tmp_path) == 0
    removed = {path.name for path in before - set(tmp_path.iterdir())}
    assert removed == {"gossamer-a-0", "gossamer-a-12", "gossamer-a-3.x_7"}


def test_orphans_are_removed_and_files_of_living_runs_never(agent, tmp_path):
    orphans = {leave(agent, rank, "dead") for rank in (0, 1)}
    unfinished = tmp_path / "gossamer-half-0.abc"
    unfinished.write_bytes(b"\0" * 500)
    os.utime(unfinished, (0, 0))
    leave(agent, 0, "lives"), leave(agent, 1, "lives", pid=os.getpid())
    leave(agent, 0, "young"), os.utime(leave(agent, 1, "young"))
    leave(agent, 0, "locked")
    writer = leave(agent, 1, "locked", lives=True)
    other = tmp_path / "gossamer-notes-1"
    other.write_text("somebody's notes")
    os.utime(other, (0, 0))
    before = set(tmp_path.iterdir())
    assert remove_orphans(tmp_path) == 3
    assert before - set(tmp_path.iterdir()) == {*orphans, unfinished}
    writer.close()


def test_a_killed_process_leaves_an_orphan_that_goes_after_an_hour(tmp_path):
    code = (
        "import os, pathlib, signal, sys; from gossamer.runtime.transport.shared_memory import SharedMemory\n"
        "SharedMemory('run', 0, 2, 1, pathlib.Path(sys.argv[1])).open(8); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], timeout=120, check=False).returncode == -9
    assert file(tmp_path).exists() and remove_orphans(tmp_path) == 0
    status = file(tmp_path).stat()
    os.utime(file(tmp_path), (0, status.st_mtime - 3601))
    assert remove_orphans(tmp_path) == 1 and not file(tmp_path).exists()


# No room.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_memory_is_told_in_one_line_and_leaves_nothing(agent, tmp_path, monkeypatch, number):
    sizes = []

    def full(descriptor, start, size):
        sizes.append(size)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(gm.UserError) as error:
        agent(0).open(1_000_000)
    text = str(error.value)
    assert sizes[0] >= rings.SLOTS * 1_000_000 and f"{sizes[0]:,} bytes in '{tmp_path}'" in text
    assert "are free; " in text and "GOSSAMER_TRANSPORT=sockets" in text and "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path):
    with pytest.raises(gm.UserError, match=r"^agent 0 cannot write '.*gone/gossamer-run-0' \(No such file"):
        SharedMemory("run", 0, 2, 1, tmp_path / "gone").open(8)


def test_memory_is_taken_at_once(agent, tmp_path):
    writer = agent(0, length=3_000_000)
    assert file(tmp_path).stat().st_blocks * 512 >= rings.SLOTS * 3_000_000
    say(writer, 1, torch.zeros(3_000_000, dtype=torch.uint8))
    writer.close()


def test_files_lie_in_shared_memory(monkeypatch, tmp_path):
    name = f"test-{os.getpid()}"
    writer = SharedMemory(name, 0, 2, 1)
    writer.open(8)
    try:
        assert file(Path("/dev/shm"), run=name).exists() and remove_leftovers(name) == 1
    finally:
        writer.close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # a system without it
    monkeypatch.setattr(shared_memory.tempfile, "gettempdir", lambda: str(tmp_path))
    writer = SharedMemory(name, 0, 2, 1)
    writer.open(8)
    assert file(tmp_path, run=name).exists()
    writer.close()
