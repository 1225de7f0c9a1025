import json

import pytest

from gossamer.runtime.book.keys import MOST_BYTES, BookEntry, Forged, seal, unseal

KEY = bytes(range(32))


@pytest.mark.parametrize("key", [None, KEY])
def test_a_record_is_read_where_it_was_posted_and_nowhere_else(key):
    record = BookEntry(12, {"host": "é", "ages": [1, 2.5, None], "more": {"a": True}})
    sealed = seal("run", "address/3", record, key)
    assert unseal("run", "address/3", sealed, key) == record
    for run, name in (("run", "address/4"), ("other", "address/3")):
        with pytest.raises(Forged):
            unseal(run, name, sealed, key)


def test_with_a_key_nothing_unsigned_or_changed_is_believed():
    record = BookEntry(12, {"endpoint": "tcp://127.0.0.1:5"})
    sealed = seal("run", "address/3", record, KEY)
    wrong = [seal("run", "address/3", record, other) for other in (None, bytes(32))]
    wrong += [
        sealed[:-1],
        sealed + b" ",
        sealed.replace(b":5", b":6"),
        sealed.partition(b"\n")[2],
        b"",
        b"\n",
        b"\xff\n{}",
    ]
    for forged in wrong:
        with pytest.raises(Forged):
            unseal("run", "address/3", forged, KEY)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b"[" * 100_000,
        json.dumps({"run": "run", "name": "n", "time": True, "value": {}}).encode(),
        json.dumps({"run": "run", "name": "n", "time": 1.0, "value": {}}).encode(),
        json.dumps({"run": "run", "name": "n", "time": 1, "value": []}).encode(),
        json.dumps({"run": "run", "name": "n", "time": 1, "value": {"a": "x" * MOST_BYTES}}).encode(),
    ],
)
def test_without_a_key_what_has_another_form_is_refused(body):
    with pytest.raises(Forged):
        unseal("run", "n", b"-\n" + body, None)


def test_an_entry_that_is_too_long_is_not_posted():
    with pytest.raises(ValueError, match="the most is"):
        seal("run", "n", BookEntry(1, {"a": "x" * MOST_BYTES}), KEY)
