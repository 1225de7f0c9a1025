"""Times, sizes and rates with their units: '50ms', '13.6MB', '100Mbit/s'. Plain numbers are seconds, bytes, bytes/s."""

import math
import re
from collections.abc import Mapping
from typing import Any

from gossamer.errors import UserError, unknown_name

TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
SIZES = {f"{prefix}B": factor for prefix, factor in _THOUSANDS.items()}
SIZES |= {f"{prefix}iB": 1024.0**power for power, prefix in enumerate("KMGT", 1)}
RATES = {f"{size}/s": factor for size, factor in SIZES.items()}
RATES |= {f"{prefix}{bit}": f / 8 for prefix, f in _THOUSANDS.items() for bit in ("bit/s", "bps")}
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)\s*(\S*)")


def read_seconds(what: str, value: Any) -> float:
    """Return seconds from a number, or from a text such as '50ms'."""
    return _read(what, value, TIMES, "time", "50ms")


def read_bytes(what: str, value: Any) -> float:
    """Return bytes from a number, or from a text such as '13.6MB'."""
    return _read(what, value, SIZES, "size", "13.6MB")


def read_rate(what: str, value: Any) -> float:
    """Return bytes a second from a number, or from a text such as '100Mbit/s' or '10MB/s'."""
    return _read(what, value, RATES, "rate", "100Mbit/s")


def read_plain(what: str, value: Any) -> float:
    """Return a number that has no unit."""
    return _read(what, value, {}, "number", "0.1")


def _read(what: str, value: Any, units: Mapping[str, float], kind: str, example: str) -> float:
    if value is None:
        return math.nan  # the check of the whole says what is missing
    if not isinstance(value, str):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise UserError(f"{what} must be a {kind}, got {value!r:.60}; write it like {example}") from None
    found = _NUMBER.fullmatch(value.strip())
    if found is None:
        raise UserError(f"{what} must be a {kind}, got '{value}'; write it like {example}")
    number, unit = found.groups()
    if not unit:
        return float(number)
    if not units:
        raise UserError(f"{what} has no unit, got '{value}'; write it like {example}")
    if unit not in units:
        raise unknown_name(f"unit of a {kind}", unit, units)
    return float(number) * units[unit]


def show_seconds(seconds: float) -> str:
    """Return seconds as people read them."""
    for unit, factor in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= (2 if factor > 1 else 1) * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"


def show_rate(rate: float) -> str:
    """Return bytes a second in bits, as links are sold."""
    for unit, factor in (("Gbit/s", 1.25e8), ("Mbit/s", 1.25e5), ("kbit/s", 125.0)):
        if rate >= factor:
            return "no limit" if math.isinf(rate) else f"{rate / factor:.3g} {unit}"
    return f"{8 * rate:.3g} bit/s"
