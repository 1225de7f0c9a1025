import hashlib
import hmac
import os
import stat

import pytest
import zmq
from zmq.utils import z85

from gossamer.errors import UserError
from gossamer.runtime.book.keys import curve_pair, read_key, sign, verify, write_key

KEY = bytes(range(32))


def refusal(path):
    with pytest.raises(UserError) as error:
        read_key(path)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_key_is_one_line_of_hex_for_its_owner_alone(tmp_path):
    path = tmp_path / "key"
    before = os.umask(0)
    try:
        key = write_key(path)
    finally:
        os.umask(before)
    assert len(key) == 32 and path.read_text() == key.hex() + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path) == key
    assert write_key(tmp_path / "other") != key


def test_a_key_is_never_overwritten_not_even_through_a_link(tmp_path):
    path, link = tmp_path / "key", tmp_path / "link"
    key = write_key(path)
    link.symlink_to(tmp_path / "elsewhere")
    for taken in (path, link):
        with pytest.raises(UserError, match="never overwritten"):
            write_key(taken)
    assert read_key(path) == key and not (tmp_path / "elsewhere").exists()
    with pytest.raises(UserError, match="cannot write"):
        write_key(tmp_path / "nowhere" / "key")


def test_a_missing_key_is_told(tmp_path):
    assert "there is no key file" in refusal(tmp_path / "key")


@pytest.mark.parametrize("text", ["", "ab", KEY.hex()[:-1], KEY.hex() + "0", KEY.hex() * 9, KEY.hex()[:-2] + "zz", "é"])
def test_what_is_no_key_is_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    assert "64 hex digits" in refusal(path)


def test_spaces_among_the_digits_are_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text(" ".join(f"{byte:02x}" for byte in KEY[:21]) + "0a")  # 64 characters, and hex to bytes.fromhex
    path.chmod(0o600)
    assert "hex digits only" in refusal(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o660])
def test_a_key_that_others_can_reach_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    write_key(path)
    path.chmod(mode)
    assert f"{mode:04o}" in refusal(path) and "0600" in refusal(path)


def test_a_folder_or_a_pipe_is_no_key_and_nobody_waits_for_it(tmp_path):
    refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    refusal(tmp_path / "pipe")


def test_pairs_belong_together_and_to_one_agent_of_one_run():
    public, secret = curve_pair(KEY, 3)
    assert z85.decode(secret) == hmac.digest(KEY, b"gossamer curve 3", hashlib.sha256)
    assert zmq.curve_public(secret) == public
    assert len({curve_pair(key, rank) for key in (KEY, bytes(32)) for rank in range(20)}) == 40


def test_only_the_same_bytes_with_the_same_key_verify():
    signature = sign(KEY, b"data")
    assert verify(KEY, b"data", signature)
    assert not verify(KEY, b"date", signature)
    assert not verify(bytes(32), b"data", signature)
    for wrong in (
        "",
        "-",
        "é",
        signature[:-1],
        signature + "0",
        signature[:-1] + ("0" if signature[-1] != "0" else "1"),
    ):
        assert not verify(KEY, b"data", wrong)


def test_a_signature_tells_no_other_secret():
    secret = z85.decode(curve_pair(KEY, 3)[1]).hex()
    assert sign(KEY, b"gossamer curve 3") != secret and sign(KEY, b"3") != secret
