"""Messages in shared memory: whole, the newest first, from writers that are quick, dead or come back."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.runtime.message import unpack_header
from gossamer.runtime.transport import message_ring as rings
from gossamer.runtime.transport import shared_memory
from gossamer.runtime.transport.base import KEPT
from shared_memory import agents_in, file, half_said, heard, say
from waiting import until


@pytest.fixture
def agent(tmp_path, monkeypatch):
    with agents_in(tmp_path, monkeypatch) as make:
        yield make


# What is said is heard.

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool)
some_parts = st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 40), st.integers(0, 3)), max_size=6)


@given(some_parts)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_message_arrives_as_it_was(agent, parts_of):
    draws = torch.Generator().manual_seed(len(parts_of))
    parts = [
        torch.randint(0, 2, (skipped + count,), generator=draws).to(dtype)[skipped:]
        for dtype, count, skipped in parts_of
    ]
    expected = [byte for part in parts for byte in part.clone().view(torch.uint8).tolist()]
    writer, reader = agent(0, length=len(expected) + 5), agent(1)
    stamp = say(writer, 4, *parts) if parts else say(writer, 4, torch.empty(0))
    for part in parts:
        part.zero_()
    letter = reader.latest(0)
    assert letter.stamp == stamp and letter.payload.tolist() == expected and letter.intact()
    assert letter.payload.dtype == torch.uint8 and letter.payload.data_ptr() % 64 == 0
    assert reader.offset(0) == 0 and not reader.counts


def test_matrices_numbers_and_parameters_are_laid_out_flat(agent):
    writer, reader = agent(0, length=100), agent(1)
    parts = torch.arange(6.0).reshape(2, 3), torch.tensor(6.0), torch.nn.Parameter(torch.tensor([7.0]))
    say(writer, 0, *parts)
    assert reader.latest(0).payload.view(torch.float32).tolist() == list(range(8))


def test_the_newest_message_wins_and_stays_the_same_object(agent):
    writer, reader = agent(0), agent(1)
    assert reader.latest(0) is None and reader.at(0, 0) is None
    writer.open(8)
    assert reader.latest(0) is None
    for sequence in range(20):
        say(writer, sequence)
        letter = reader.latest(0)
        assert letter.stamp.sequence == sequence and heard(letter) == [sequence]
        assert reader.latest(0) is letter
    assert reader.latest(2) is None and writer.latest(0).stamp == letter.stamp


def test_a_reader_cannot_write_into_the_ring_of_a_peer(agent):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 1)
    reader.latest(0)
    with pytest.raises((ValueError, TypeError), match="read-only"):
        reader._peers[0].ring["head"] = 5


def test_at_finds_exactly_the_last_kept(agent):
    writer, reader = agent(0, length=8), agent(1)
    for sequence in range(0, 60, 3):
        say(writer, sequence)
        kept = [s for s in range(sequence + 3) if reader.at(0, s) is not None]
        assert kept == list(range(sequence, -1, -3))[:KEPT][::-1]
        assert all(heard(reader.at(0, s)) == [s] and reader.at(0, s).stamp.sequence == s for s in kept)


def test_a_message_is_intact_until_the_ring_has_come_round(agent):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 0)
    first = reader.latest(0)
    for sequence in range(1, rings.SLOTS):
        say(writer, sequence)
        assert first.intact() and heard(first) == [0]
    say(writer, rings.SLOTS)
    assert not first.intact() and first.payload.view(torch.int64).tolist() == [rings.SLOTS]


def test_a_payload_may_be_shorter_but_not_longer_than_announced(agent):
    writer, reader = agent(0, length=16), agent(1)
    say(writer, 5)
    assert reader.latest(0).payload.numel() == 8
    with pytest.raises(ValueError, match="24 bytes, but 16"):
        say(writer, 6, torch.arange(3))
    assert heard(reader.latest(0)) == [5] and reader.latest(0).stamp.sequence == 5
    with pytest.raises(ValueError, match="before it is opened"):
        say(agent(2), 0)


# A writer in another process, as quick as it can be, and then killed.

WRITER = """
import itertools, pathlib, sys, torch
from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.shared_memory import SharedMemory
torch.set_num_threads(1)
payload = torch.empty(int(sys.argv[2]), dtype=torch.int64)
writer = SharedMemory("run", 0, 3, 1, pathlib.Path(sys.argv[1]))
writer.open(payload.nbytes)
for sequence in itertools.count(1):
    writer.publish(Stamp(0, 1, sequence, 0, 7, frozenset({1})), [payload.fill_(sequence)])
"""


def copied(letter, by_pieces):
    """Copy a message at once, or so slowly that the writer often comes by."""
    words = letter.payload.view(torch.int64)
    return torch.cat([piece.clone() for piece in words.chunk(400)]) if by_pieces else words.clone()


def read_beside_a_writer(reader):
    """Copy messages for a second, or longer on a busy machine; return how many were whole and how many torn."""
    whole, torn, turn, start = set(), 0, 0, time.monotonic()
    while time.monotonic() < start + 1 or (min(len(whole), torn) <= 10 and time.monotonic() < start + 60):
        turn += 1
        letter = reader.latest(0) if turn % 3 else reader.at(0, max(whole, default=1))
        if letter is None:
            continue
        copy = copied(letter, by_pieces=turn % 2 == 0)
        if letter.intact():
            assert copy.eq(letter.stamp.sequence).all()
            whole.add(letter.stamp.sequence)
        else:
            torn += 1
    return len(whole), torn


@pytest.fixture
def memory():
    """A folder in memory: on a disk, a writer is held up whenever its pages are saved."""
    with tempfile.TemporaryDirectory(dir=shared_memory._default_folder()) as folder:
        yield Path(folder)


def test_no_copy_that_is_called_intact_is_mixed_and_a_killed_writer_is_followed_in_place(memory, monkeypatch):
    size = 100_000
    process = subprocess.Popen([sys.executable, "-c", WRITER, memory, str(size)])
    with agents_in(memory, monkeypatch) as agent:
        reader = agent(1)
        try:
            until(lambda: reader.latest(0) is not None or process.poll() is not None, 120)
            assert process.poll() is None
            whole, torn = read_beside_a_writer(reader)
        finally:
            process.kill()
            process.wait()
        assert whole > 10 and torn > 10 and not reader.counts
        last, inode = reader.latest(0), file(memory).stat().st_ino
        assert copied(last, False).eq(last.stamp.sequence).all() and last.intact()
        say(agent(0, incarnation=2, length=8 * size), 1, torch.ones(size, dtype=torch.int64), incarnation=2)
        assert reader.latest(0).stamp.order == (2, 1) and file(memory).stat().st_ino == inode


# A writer that comes by while it is being read.


@pytest.mark.parametrize("known", [False, True])
def test_a_message_that_is_being_written_over_is_passed_over(agent, known):
    writer, reader = agent(0, length=8), agent(1)
    for sequence in (1, 2, 3):
        say(writer, sequence)
    assert not known or heard(reader.latest(0)) == [3]
    half_said(writer, 3 + rings.SLOTS)
    assert heard(reader.latest(0)) == [2] and reader.at(0, 3) is None and not reader.counts


def test_a_message_that_is_written_over_while_its_header_is_read_is_passed_over(agent, monkeypatch):
    writer, reader = agent(0, length=8), agent(1)
    for sequence in (1, 2, 3):
        say(writer, sequence)
    times = iter([lambda: half_said(writer, 3 + rings.SLOTS)])

    def unpack(header, num_agents):
        next(times, int)()
        return unpack_header(header, num_agents)

    monkeypatch.setattr(shared_memory, "unpack_header", unpack)
    assert heard(reader.latest(0)) == [2] and not reader.counts


def test_a_writer_that_goes_round_while_it_is_looked_up_is_looked_up_again(agent, monkeypatch):
    writer, reader = agent(0, length=8), agent(1)
    say(writer, 1)
    times, whole = iter([lambda: [say(writer, sequence) for sequence in range(2, 9)]]), rings.MessageRing.whole

    def look(ring, counter):
        next(times, int)()
        return whole(ring, counter)

    monkeypatch.setattr(rings.MessageRing, "whole", look)
    assert heard(reader.latest(0)) == [8]
