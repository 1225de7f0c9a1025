"""Numbers as the page holds them: short, and null where there is none."""

import math
from collections.abc import Iterable
from typing import Any

DIGITS = 6  # more than any screen shows, and a third of the bytes


def tidy(value: Any) -> float | int | None:
    """Return a number with a few digits, or None when it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    return float(f"{float(value):.{DIGITS}g}")


def tidy_all(values: Iterable[Any]) -> list[float | int | None]:
    """Return all of them so."""
    return [tidy(value) for value in values]


def thinned(count: int, most: int) -> list[int]:
    """Return at most about so many of so many places, evenly spread, the last one among them."""
    stride = max(1, -(-count // most))
    return [place for place in range(count) if place % stride == 0 or place == count - 1]


def as_list(value: Any) -> list[Any]:
    """Return what a row holds for each agent, or for all of them together, as a list."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def mean(values: Iterable[Any]) -> float | None:
    """Return the mean of those that are finite numbers, or None without one."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
