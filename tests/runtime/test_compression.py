"""What a codec makes of a vector: how many bytes, how near, and what is still owed after many messages."""

import math

import pytest
import torch

from codecs_at_work import SIZES, TEXTS, Pair, both_dtypes, payload_of, vectors
from gossamer.errors import UserError
from gossamer.runtime.compression import BLOCK, KINDS, parse_codec
from gossamer.runtime.message import Malformed

# Texts.


def test_each_text_is_another_codec_and_spaces_do_not_count():
    texts = [*TEXTS, "topk:0.01", "topk:0.123456789", "topk:1e-06"]
    codecs = {str(parse_codec(text)) for text in texts}  # as agents compare them
    assert len(codecs) == len(set(texts)) and codecs == {str(parse_codec(f"  {text} ")) for text in texts}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("int9", "unknown compression 'int9'; did you mean 'int8'?"),
        ("", "choose one of: bf16, int8, none, topk"),
        ("topk", "'topk'; write it like topk:0.01"),
        ("bf16:3", "'bf16:3'; write it like bf16"),
        ("topk:many", "must be a number, got 'many'"),
        ("topk:0", "above 0 and be at most 1, got 0.0; try 0.01"),
        ("topk:1.5", "above 0 and be at most 1, got 1.5"),
        ("topk:nan", "above 0 and be at most 1, got nan"),
    ],
)
def test_a_text_that_is_no_codec_is_refused_in_one_line(text, told):
    with pytest.raises(UserError) as error:
        parse_codec(text)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_topk_must_know_what_it_sends():
    with pytest.raises(UserError, match="unknown kind of part 'stat'; did you mean 'state'"):
        parse_codec("topk:0.1").encoder("stat", 8, torch.float32)


# Bytes.


@pytest.mark.parametrize(
    ("text", "kind", "single", "double"),
    [
        ("none", "state", 4 * 10_000, 8 * 10_000),
        ("bf16", "state", 2 * 10_000, 2 * 10_000),
        ("int8", "gradient", 10_000 + 24, 10_000 + 24),  # five scales
        ("topk:0.01", "gradient", 100 * (4 + 4), 100 * (4 + 8)),
        ("topk:0.01", "state", 8 + 25 * 4 + 4 + 100 * (4 + 4), 8 + 25 * 8 + 100 * (4 + 8)),
        ("topk:1", "state", 8 + 2500 * 4 + 7500 * (4 + 4), 8 + 2500 * 8 + 7500 * (4 + 8)),  # nothing twice
    ],
)
def test_how_many_bytes_ten_thousand_numbers_take(text, kind, single, double):
    codec = parse_codec(text)
    assert codec.encoder(kind, 10_000, torch.float32).length == single
    assert codec.encoder(kind, 10_000, torch.float64).length == double


@both_dtypes
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_payloads_have_one_length_and_parts_can_follow_each_other(text, kind, dtype):
    for size in SIZES:
        pair = Pair(text, kind, size, dtype)
        assert pair.decoder.length == pair.encoder.length and pair.encoder.length % 8 == 0
        for _, vector, same in zip(range(3), vectors(size, dtype), vectors(size, dtype), strict=False):
            pair.send(vector)
            assert torch.equal(vector, same)  # left alone


@both_dtypes
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_payload_may_begin_anywhere(text, kind, dtype):
    pair = Pair(text, kind, BLOCK + 3, dtype)
    payload = payload_of(pair.encoder, next(vectors(BLOCK + 3, dtype)))
    pair.decoder.decode(payload, pair.out)
    for before in range(1, 8):
        elsewhere = torch.full_like(pair.out, 99.0)
        buffer = torch.zeros(before + len(payload), dtype=torch.uint8)
        buffer[before:] = payload
        pair.decoder.decode(buffer[before:], elsewhere)
        assert torch.equal(elsewhere, pair.out)


def test_without_compression_nothing_is_copied():
    vector = next(vectors(64))
    sent = parse_codec("none").encoder("state", 64, torch.float64).encode(vector)
    assert len(sent) == 1 and sent[0] is vector


# How near.


@both_dtypes
def test_no_compression_is_exact(dtype):
    vector = next(vectors(5003, dtype))
    assert torch.equal(Pair("none", size=5003, dtype=dtype).send(vector), vector)


@both_dtypes
def test_bf16_is_near_by_two_to_the_minus_eight(dtype):
    vector = next(vectors(5003, dtype))
    found = Pair("bf16", size=5003, dtype=dtype).send(vector)
    torch.testing.assert_close(found, vector, rtol=2**-8, atol=0)
    assert not torch.equal(found, vector)
    up = torch.tensor([1 + 2**-8 + 2**-12], dtype=dtype)  # above the middle of two neighbours: to the upper one
    assert Pair("bf16", size=1, dtype=dtype).send(up) == 1 + 2**-7


@both_dtypes
@pytest.mark.parametrize("size", SIZES)
def test_int8_is_near_by_half_a_scale_in_each_block(size, dtype):
    vector = next(vectors(size, dtype))
    error = (Pair("int8", size=size, dtype=dtype).send(vector) - vector).abs()
    for begin in range(0, size, BLOCK):
        largest = float(vector[begin : begin + BLOCK].abs().max())
        assert float(error[begin : begin + BLOCK].max()) <= largest / 127 / 2 * (1 + 1e-4)


@both_dtypes
def test_int8_owes_half_a_scale_at_most_after_any_number_of_messages(dtype):
    pair = Pair("int8", size=300, dtype=dtype)
    for _, vector in zip(range(50), vectors(300, dtype), strict=False):
        owed = pair.encoder.state_dict()["error"].view(-1)[:300]
        largest = float((vector + owed).abs().max())
        pair.send(vector)
        assert float(pair.encoder.state_dict()["error"].abs().max()) <= largest / 127 / 2 * (1 + 1e-4)


@both_dtypes
@pytest.mark.parametrize("text", ["int8", "topk:1"])
def test_zeros_and_numbers_too_small_to_scale_are_no_trouble(text, dtype):
    zeros = torch.zeros(64, dtype=dtype)
    pair = Pair(text, "gradient", 64, dtype)
    assert all(torch.equal(pair.send(zeros), zeros) for _ in range(3))
    # The smallest number, of which an int8 scale would be a share: far below float32, or hardly above its steps.
    for tiny in (torch.finfo(dtype).tiny, 190 * 2.0**-149):
        pair, vector = Pair(text, "gradient", 64, dtype), torch.full((64,), tiny, dtype=dtype)
        assert torch.equal(pair.send(vector) + pair.encoder.state_dict()["error"].view(-1)[:64], vector)


@both_dtypes
def test_topk_sends_the_largest_of_a_gradient_and_zero_elsewhere(dtype):
    vector = next(vectors(1000, dtype))
    found = Pair("topk:0.03", "gradient", 1000, dtype).send(vector)
    chosen = vector.abs() >= vector.abs().sort().values[-30]
    assert torch.equal(found, torch.where(chosen, vector, 0)) and int(found.count_nonzero()) == 30


# What is owed is paid.


@both_dtypes
@pytest.mark.parametrize("text", ["int8", "topk:0.05", "topk:0.5"])
def test_all_that_was_decoded_and_what_is_owed_is_all_that_was_sent(text, dtype):
    size = 2100
    pair = Pair(text, "gradient", size, dtype)
    total, decoded = torch.zeros(size).double(), torch.zeros(size).double()
    for _, vector in zip(range(60), vectors(size, dtype), strict=False):
        total += vector
        decoded += pair.send(vector)
    owed = pair.encoder.state_dict()["error"].view(-1)[:size].double()
    assert owed.abs().max() > 0
    bound = 1e-6 if dtype == torch.float64 else 60 * 1e-6 * torch.logspace(-3, 3, size) + 60 * 1e-4
    assert ((decoded + owed - total).abs() <= bound).all()


@pytest.mark.parametrize(("text", "kind"), [("int8", "state"), ("int8", "gradient"), ("topk:0.1", "gradient")])
def test_the_mean_of_what_was_decoded_converges_to_an_input_that_stays(text, kind):
    vector = next(vectors(64))
    pair, total, errors = Pair(text, kind), torch.zeros(64, dtype=torch.float64), {}
    for sent in range(1, 501):
        total += pair.send(vector)
        errors[sent] = float((total / sent - vector).abs().max())
    assert errors[1] > 0
    # The sum is off by what is owed, which stays within bounds: half a scale, or what gathers until its turn comes.
    largest = float(vector.abs().max())
    owed = largest / 127 / 2 if text == "int8" else 64 * largest
    assert all(error <= owed / sent * (1 + 1e-4) for sent, error in errors.items())


# Numbers that are not finite.


@both_dtypes
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_not_finite_shows_and_is_forgotten(text, kind, bad, dtype):
    size, stream = BLOCK + 50, vectors(BLOCK + 50, dtype)
    pair = Pair(text, kind, size, dtype)
    for _ in range(12):  # a state is known by then
        pair.send(next(stream))
    broken = next(stream)
    broken[BLOCK : BLOCK + 40] = bad  # fewer than topk:0.1 sends
    pair.send(broken)
    assert not pair.out[BLOCK : BLOCK + 40].isfinite().any()
    assert pair.out[:BLOCK].isfinite().all()  # blocks are apart
    for _ in range(3):
        pair.send(next(stream))
    assert pair.out.isfinite().all()
    memory = pair.encoder.state_dict().get("error")
    assert memory is None or memory.isfinite().all()


def test_a_gradient_with_more_broken_numbers_than_topk_sends_leaves_none_behind():
    pair = Pair("topk:0.1", "gradient")
    pair.send(torch.full((64,), math.nan, dtype=torch.float64))
    assert int(pair.out.isnan().sum()) == 6
    assert torch.equal(pair.send(torch.zeros(64).double()), torch.zeros(64).double())


# Payloads that cannot be right.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_payload_of_another_length_is_malformed(text, kind):
    pair = Pair(text, kind)
    payload = payload_of(pair.encoder, next(vectors(64)))
    for wrong in (payload[:-1], payload[:0], torch.cat([payload, payload])):
        with pytest.raises(Malformed):
            pair.decoder.decode(wrong, pair.out)
    assert (pair.out == 99.0).all()


@pytest.mark.parametrize(("kind", "place"), [("gradient", 0), ("state", 0), ("state", 8 + 2 * 8)])
@pytest.mark.parametrize("wrong", [-1, 64, 2**31 - 1])
def test_an_index_outside_is_malformed_and_nothing_is_written(kind, place, wrong):
    pair = Pair("topk:0.1", kind)
    payload = payload_of(pair.encoder, next(vectors(64)))
    width = torch.int64 if (kind, place) == ("state", 0) else torch.int32
    payload[place : place + width.itemsize] = torch.tensor([wrong], dtype=width).view(torch.uint8)
    with pytest.raises(Malformed):
        pair.decoder.decode(payload, pair.out)
    assert (pair.out == 99.0).all() and not any(seen.any() for seen in pair.decoder.state_dict().values())
