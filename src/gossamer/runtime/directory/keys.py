"""The run's key: whoever has the file takes part in the run, nobody else reads or says anything in it.

Every other secret is derived from it with HMAC-SHA256 under a name of its own, so that none tells about another.
"""

import functools
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from gossamer.errors import UserError

KEY_BYTES = 32
_READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_key(path: Path) -> bytes:
    """Make a new key, write it as one line of hex that only its owner can read, and return it."""
    key = secrets.token_bytes(KEY_BYTES)
    try:
        # Made with its mode and never over another file: there is no instant at which others could read it.
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
    """Read the key, or say why the file cannot be trusted."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not make anybody wait
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(stream.fileno())  # of the very file that is read
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
    """Return the public and the secret CURVE key of an agent, in Z85, as whoever has the run's key can."""
    import zmq
    from zmq.utils import z85

    secret = z85.encode(_derived(key, b"curve", str(rank).encode()))
    return zmq.curve_public(secret), secret


def sign(key: bytes, data: bytes) -> str:
    """Return what only someone with the key can have made of these bytes, in hex."""
    return _derived(key, b"record", data).hex()


def verify(key: bytes, data: bytes, signature: str) -> bool:
    """Say whether these bytes were signed with the key; the time this takes tells nothing."""
    return hmac.compare_digest(sign(key, data).encode(), signature.encode("utf-8", "replace"))
