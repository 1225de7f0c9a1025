"""The run's key, and the entries of the address book that it signs.

The key file admits an agent to the run. Every other secret is derived from the key with HMAC-SHA256 under a purpose of
its own, so no secret reveals another. An entry is JSON. Its signature covers run and name, so that it cannot be moved,
and a time, so that an older entry cannot be put back.
"""

import functools
import hashlib
import hmac
import json
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import UserError

KEY_BYTES = 32
MOST_BYTES = 1 << 20
UNSIGNED = "-"
_READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_key(path: Path) -> bytes:
    """Make a new key, write it as one line of hex that only its owner can read, and return it."""
    key = secrets.token_bytes(KEY_BYTES)
    try:
        # Made with its mode and never over another file: other users cannot read it at any moment.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UserError(f"key file '{path}' exists and is never overwritten; remove it, or name another") from None
    except OSError as error:
        raise UserError(
            f"cannot write key file '{path}' ({error.strerror}); name a file in a folder of yours"
        ) from None
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(key.hex() + "\n")
    return key


def read_key(path: Path) -> bytes:
    """Read the key; an error says why the file cannot be trusted."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # do not wait for a pipe in its place
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(stream.fileno())  # of the open file, not of the path
            text = stream.read(4 * KEY_BYTES) if stat.S_ISREG(status.st_mode) else b""
    except FileNotFoundError:
        raise UserError(f"there is no key file '{path}'; copy the run's key there") from None
    except OSError as error:
        raise UserError(f"cannot read key file '{path}' ({error.strerror}); name a file that you can read") from None
    mode = stat.S_IMODE(status.st_mode)
    if mode & _READABLE_BY_OTHERS and stat.S_ISREG(status.st_mode):
        raise UserError(f"key file '{path}' has mode {mode:04o}, allowed is 0600; make a new key, or chmod 600 it")
    return _decoded(path, text)


def _decoded(path: Path, text: bytes) -> bytes:
    line = text.strip()
    try:
        key = bytes.fromhex(line.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES or len(line) != 2 * KEY_BYTES:
        what = f"holds {len(line)} characters" if len(line) != 2 * KEY_BYTES else "does not hold hex digits only"
        raise UserError(f"key file '{path}' {what}, a key is {2 * KEY_BYTES} hex digits; copy the run's key there")
    return key


def _derived(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"gossamer " + purpose + b" " + data, hashlib.sha256)


@functools.lru_cache(maxsize=1024)
def curve_pair(key: bytes, rank: int) -> tuple[bytes, bytes]:
    """Return the public and the secret CURVE key of an agent, in Z85, derived from the run's key."""
    import zmq
    from zmq.utils import z85

    secret = z85.encode(_derived(key, b"curve", str(rank).encode()))
    return zmq.curve_public(secret), secret


def sign(key: bytes, data: bytes) -> str:
    """Return the signature of these bytes, in hex."""
    return _derived(key, b"record", data).hex()


def verify(key: bytes, data: bytes, signature: str) -> bool:
    """Say whether these bytes were signed with the key; in constant time."""
    return hmac.compare_digest(sign(key, data).encode(), signature.encode("utf-8", "replace"))


@dataclass(frozen=True)
class BookEntry:
    """A posted value, and its time in nanoseconds since 1970 on the writer's clock."""

    time: int
    value: dict[str, Any]


class Forged(ValueError):
    """Bytes that no agent of this run posted under this name."""


def seal(run: str, name: str, record: BookEntry, key: bytes | None) -> bytes:
    """Return an entry ready to be posted."""
    body = json.dumps({"run": run, "name": name, "time": record.time, "value": record.value}).encode()
    sealed = (UNSIGNED if key is None else sign(key, body)).encode() + b"\n" + body
    if len(sealed) > MOST_BYTES:
        raise ValueError(f"the entry '{name}' has {len(sealed)} bytes, the most is {MOST_BYTES}; post less")
    return sealed


def unseal(run: str, name: str, sealed: bytes, key: bytes | None) -> BookEntry:
    """Return an entry after checking its run, its name and, with a key, its signature."""
    if len(sealed) > MOST_BYTES:
        raise Forged(f"an entry of {len(sealed)} bytes")
    signature, _, body = sealed.partition(b"\n")
    if key is not None and not verify(key, body, signature.decode("ascii", "replace")):
        raise Forged("a wrong signature")
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        raise Forged("no JSON") from None
    if not isinstance(entry, dict) or entry.get("run") != run or entry.get("name") != name:
        raise Forged("an entry of another run or name")
    time, value = entry.get("time"), entry.get("value")
    if type(time) is not int or not isinstance(value, dict):
        raise Forged("an entry of another form")
    return BookEntry(time, value)
