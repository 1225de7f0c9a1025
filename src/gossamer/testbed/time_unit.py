"""Simulated time is a whole number of nanoseconds: sums of equal times are exactly equal, in any order."""

from gossamer.errors import UserError

SECOND = 10**9
LEAST = 1e-6  # seconds of an iteration
MOST = 1e9  # seconds, 30 years: far from where nanoseconds overflow 64 bits


def to_nanoseconds(seconds: float) -> int:
    """Return the nearest whole number of nanoseconds."""
    return round(seconds * SECOND)


def to_seconds(nanoseconds: int) -> float:
    """Return nanoseconds as seconds."""
    return nanoseconds / SECOND


def check_seconds(what: str, seconds: float, *, least: float = 0.0) -> float:
    """Return a number of seconds, or raise UserError if it is negative, too large or no number."""
    if not least <= seconds <= MOST:
        raise UserError(f"{what} must lie in [{least:g}, {MOST:g}] seconds, got {seconds}; use for example 0.2")
    return seconds
