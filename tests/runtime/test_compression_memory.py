"""What codecs remember: states of which only a share is sent, messages that are lost, memory that is saved."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codecs_at_work import TEXTS, Pair, both_dtypes, payload_of, vectors
from gossamer.errors import UserError
from gossamer.runtime.compression import KINDS, parse_codec

# States of which a share is sent.


def test_a_share_of_a_state_is_what_moved_most_and_the_rest_stays():
    size, x = 400, next(vectors(400))
    pair = Pair("topk:0.05", size=size)  # 20 that moved, and 5 in turn
    for _ in range(200):
        pair.send(x)
    assert torch.equal(pair.out, x)
    moved = torch.arange(0, size, 20)
    x[moved] += 1.0
    x[moved + 1] += 0.01
    before = pair.out.clone()
    pair.send(x)
    assert torch.equal(pair.out[moved], x[moved])
    changed = (pair.out != before).nonzero().view(-1)
    assert 20 <= len(changed) <= 20 + 2 and torch.equal(pair.out[changed], x[changed])  # and a block of 5 beside them


def test_without_loss_a_sender_knows_what_is_held():
    pair = Pair("topk:0.1", size=100)
    for _, vector in zip(range(30), vectors(100), strict=False):
        pair.send(vector)
        sent = pair.encoder.state_dict()["sent"]
        assert torch.equal(sent.nan_to_num(99.0), pair.out)  # NaN: never sent


@both_dtypes
def test_the_whole_share_is_the_state_itself(dtype):
    for size in (1, 2, 3, 4, 5, 64):
        pair = Pair("topk:1", size=size, dtype=dtype)
        for _, vector in zip(range(20), vectors(size, dtype), strict=False):
            assert torch.equal(pair.send(vector), vector) and pair.decoder.complete


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), moving=st.integers(0, 30), size=st.sampled_from([33, 64, 100]))
def test_half_of_the_messages_lost_a_state_that_stops_is_known_exactly_in_bounded_time(seed, moving, size):
    draws, stream = torch.Generator().manual_seed(seed), vectors(size, seed=seed)
    pair = Pair("topk:0.5", size=size)
    arrives = (torch.rand(1000, generator=draws) < 0.5).tolist()
    for step in range(moving):
        pair.send(next(stream), arrives[step])
    x = next(stream)
    for step in range(40 * 9):  # rounds of 8 or 9 messages: 40 of them are missed with probability 2^-40
        pair.send(x, arrives[moving + step])
    assert pair.decoder.complete and torch.equal(pair.out, x)


@pytest.mark.parametrize("every", [2, 4])
def test_a_receiver_that_takes_every_second_message_still_hears_all(every):
    pair, x = Pair("topk:0.5"), next(vectors(64))  # 64 / 8 blocks: every second message meets the same four
    for step in range(every * 8 * 40):
        pair.send(x, arrives=step % every == 0 and step > 40)  # after the first ones, which send all once
    assert pair.decoder.complete and torch.equal(pair.out, x)


@pytest.mark.parametrize("late", [0, 1, 17, 40, 77])
def test_a_receiver_that_comes_late_is_complete_after_two_rounds(late):
    pair, x = Pair("topk:0.1", size=200), next(vectors(200))  # 20 that moved, 5 in turn: a round of 40
    for _ in range(late):
        pair.send(x, arrives=False)
    complete = []
    for _ in range(2 * 40 - 1):
        pair.send(x)
        complete.append(pair.decoder.complete)
        seen = pair.out != 99.0
        assert pair.decoder.complete == bool(seen.all()) and torch.equal(pair.out[seen], x[seen])
    assert not complete[0] and complete[-1] and complete == sorted(complete)
    if late == 0:  # what was never sent goes first, so a receiver that is there hears all in 200 / 20 messages
        assert complete.index(True) < 10


@pytest.mark.parametrize("text", ["none", "bf16", "int8"])
def test_other_codecs_are_complete_from_the_start(text):
    assert parse_codec(text).decoder("state", 8, torch.float32).complete
    assert parse_codec("topk:0.1").decoder("gradient", 8, torch.float32).complete


# Memory.


@both_dtypes
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_memory_that_was_saved_goes_on_bit_for_bit(text, kind, dtype):
    stream, pair, again = vectors(200, dtype), Pair(text, kind, 200, dtype), Pair(text, kind, 200, dtype)
    for _ in range(5):
        pair.send(next(stream))
    encoder, decoder = pair.encoder.state_dict(), pair.decoder.state_dict()
    kept = pair.out.clone()
    after = [next(stream) for _ in range(20)]
    expected = [pair.send(vector).clone() for vector in after]  # must not change what was saved
    again.encoder.load_state_dict(encoder)
    again.decoder.load_state_dict(decoder)
    again.out.copy_(kept)
    assert all(torch.equal(again.send(vector), found) for vector, found in zip(after, expected, strict=True))
    assert again.decoder.complete == pair.decoder.complete is True


@pytest.mark.parametrize(("text", "kind"), [("int8", "state"), ("topk:0.1", "gradient"), ("topk:0.1", "state")])
def test_memory_matters(text, kind):
    stream, pair = vectors(200), Pair(text, kind, 200)
    pair.send(next(stream))
    vector = next(stream)
    assert not torch.equal(payload_of(pair.encoder, vector), payload_of(Pair(text, kind, 200).encoder, vector))


def test_memory_of_something_else_is_refused():
    small = parse_codec("topk:0.1").encoder("gradient", 10, torch.float32).state_dict()
    encoder = parse_codec("topk:0.1").encoder("gradient", 20, torch.float32)
    for wrong in (small, {}):
        with pytest.raises(UserError, match=r"no 'error' \(20,\) in the saved state; use the same compression"):
            encoder.load_state_dict(wrong)
