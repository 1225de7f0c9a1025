"""Converts a row of metrics and the settings of a run to the plain values that loggers take."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gossamer.run.settings import Settings

Flat = dict[tuple[str, ...], float]


def flatten(row: Mapping[str, Any], *, agents: bool = True) -> Flat:
    """Return the numbers of a row. A list gives its mean and, with `agents`, one number per agent.

    Text, None and non-finite numbers are left out. For a matrix, an agent's number is the mean of its row.
    """
    found: Flat = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {(name, *rest): number for rest, number in flatten(value, agents=agents).items()}
        elif isinstance(value, list | tuple):
            each = {(name, str(agent)): _mean(item) for agent, item in enumerate(value)} if agents else {}
            found |= {
                key: number for key, number in {(name, "mean"): _mean(value), **each}.items() if math.isfinite(number)
            }
        elif math.isfinite(number := _mean(value)):
            found[(name,)] = number
    return found


def _mean(value: Any) -> float:
    """Return a number itself, the mean of a list, and NaN for anything without numbers."""
    numbers = _numbers(value)
    return math.fsum(numbers) / len(numbers) if numbers and all(map(math.isfinite, numbers)) else math.nan


def _numbers(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


MOST_AGENTS = 64  # most agents with a curve each; with more, only the mean is logged


def plain_settings(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return settings and options of the algorithm in one dict, without values of None."""
    values = {**dataclasses.asdict(settings), **settings.options}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}
