"""Entries of the address book as bytes: JSON that names its run and itself, and what proves who wrote it.

The signature covers the run and the name, so that an entry cannot be moved to another one, and a time, so that a reader
does not go back to an older entry that somebody kept and put there again.
"""

import json
from dataclasses import dataclass
from typing import Any

from gossamer.runtime.directory.keys import sign, verify

MOST_BYTES = 1 << 20
UNSIGNED = "-"


@dataclass(frozen=True)
class Record:
    """What was posted under a name, and when, in nanoseconds since 1970 on the writer's clock."""

    time: int
    value: dict[str, Any]


class Forged(ValueError):
    """Bytes that no agent of this run has posted under this name."""


def seal(run: str, name: str, record: Record, key: bytes | None) -> bytes:
    """Return an entry ready to be posted."""
    body = json.dumps({"run": run, "name": name, "time": record.time, "value": record.value}).encode()
    sealed = (UNSIGNED if key is None else sign(key, body)).encode() + b"\n" + body
    if len(sealed) > MOST_BYTES:
        raise ValueError(f"the entry '{name}' has {len(sealed)} bytes, the most is {MOST_BYTES}; post less")
    return sealed


def unseal(run: str, name: str, sealed: bytes, key: bytes | None) -> Record:
    """Return what an entry says, if it was posted in this run under this name, and with the key if there is one."""
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
    return Record(time, value)
