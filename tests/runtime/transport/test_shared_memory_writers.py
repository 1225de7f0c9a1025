"""Writers of shared memory that die, come back or are heard by nobody."""

import time

import pytest
import torch

from gossamer.runtime.transport.base import KEPT
from shared_memory import agents_in, die, file, half_said, heard, say


@pytest.fixture
def agent(tmp_path, monkeypatch):
    with agents_in(tmp_path, monkeypatch) as make:
        yield make


def test_a_writer_that_dies_while_it_writes_leaves_what_it_has_said(agent):
    writer, reader, late = agent(0, length=8), agent(1), agent(2)
    for sequence in range(10):
        say(writer, sequence)
    for incarnation in range(2, 9):  # each dies in its first message
        half_said(writer, 11)
        if incarnation == 2:
            assert [heard(reader.at(0, s)) for s in range(10 - KEPT, 10)] == [[s] for s in range(10 - KEPT, 10)]
        die(writer)
        writer = agent(0, incarnation, length=8)
        for one in (reader, late):
            assert heard(one.latest(0)) == [9] and one.at(0, 9) is None and not one.counts
    say(writer, 4, incarnation=8)
    for one in (reader, late):
        assert heard(one.latest(0)) == [4] and heard(one.at(0, 4)) == [4] and one.at(0, 9) is None


def test_a_message_that_was_whole_but_not_yet_named_the_newest_is_not_lost(agent):
    writer, reader = agent(0, length=8), agent(1)
    for sequence in range(10):
        say(writer, sequence)
    writer._ring["head"] -= 1
    assert heard(reader.latest(0)) == [8] and reader.at(0, 9) is None
    die(writer)
    back = agent(0, 2, length=8)
    assert heard(reader.latest(0)) == [9]
    say(back, 10, incarnation=2)
    assert heard(reader.latest(0)) == [10]


def test_a_writer_that_comes_back_is_read_in_place_and_its_past_does_not_count(agent, tmp_path):
    writer, reader = agent(0, length=8), agent(1)
    for sequence in (6, 7):
        say(writer, sequence)
    old, inode = reader.at(0, 7), file(tmp_path).stat().st_ino
    die(writer)
    back = agent(0, incarnation=2, length=8)
    assert file(tmp_path).stat().st_ino == inode
    assert reader.latest(0) is old and reader.at(0, 7) is None
    stamp = say(back, 6, incarnation=2)
    assert reader.latest(0).stamp == reader.at(0, 6).stamp == stamp and reader.at(0, 7) is None
    assert heard(old) == [7]


@pytest.mark.parametrize("lives", [False, True])
@pytest.mark.parametrize("length", [8, 8000])
def test_a_writer_of_another_shape_or_beside_a_living_one_is_seen_by_who_read_the_old_file(agent, length, lives):
    writer, reader = agent(0, length=16), agent(1)
    say(writer, 7)
    old = reader.latest(0)
    if not lives:
        die(writer)
    back = agent(0, incarnation=2, length=length)
    assert reader.latest(0) is None  # the new file has none yet
    say(back, 3, torch.arange(length // 8), incarnation=2)
    if lives:
        say(writer, 8)
        writer.close()
    assert heard(reader.latest(0)) == list(range(length // 8)) and heard(old) == [7]
    assert heard(agent(2).latest(0)) == list(range(length // 8))


def test_a_living_writer_is_never_written_over(agent, tmp_path):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 7)
    held, inode = reader.latest(0), file(tmp_path).stat().st_ino
    back = agent(0, incarnation=2, length=8)
    for sequence in range(10):
        say(back, sequence, incarnation=2)
    assert file(tmp_path).stat().st_ino != inode and heard(held) == [7] and heard(reader.latest(0)) == [9]


def test_who_has_left_takes_the_file_along_and_not_what_was_heard(agent, tmp_path):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 7)
    letter = reader.latest(0)
    writer.close()
    writer.close()
    assert list(tmp_path.iterdir()) == [] and reader.latest(0) is letter
    reader.close()
    assert heard(letter) == [7]
    say(agent(0, length=8), 8)
    assert heard(reader.latest(0)) == [8]


def test_a_reader_that_has_stopped_costs_nothing(agent, tmp_path):
    writer, reader = agent(0, length=80_000), agent(1)
    say(writer, 0)
    letter, before = reader.latest(0), file(tmp_path).stat()
    tensor, start = torch.zeros(10_000, dtype=torch.int64), time.monotonic()
    for sequence in range(1000):
        say(writer, sequence, tensor)
    assert time.monotonic() - start < 60 and not letter.intact()  # a tenth of a second, unless the machine stands still
    after = file(tmp_path).stat()
    assert (after.st_size, after.st_blocks) == (before.st_size, before.st_blocks) and len(list(tmp_path.iterdir())) == 1
    assert after.st_mode & 0o777 == 0o600
