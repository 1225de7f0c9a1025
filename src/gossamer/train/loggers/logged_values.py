"""A row of metrics and a run's settings as the plain values that loggers take."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gossamer.run.settings import Settings

Flat = dict[tuple[str, ...], float]


def flatten(row: Mapping[str, Any], *, agents: bool = True) -> Flat:
    """Return the row's numbers: a list gives its mean, and one for each agent unless those are not wanted.

    What is not finite or not known is left out, and so is text. Of a matrix an agent's number is the mean of its row.
    """
    found: Flat = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {(name, *rest): number for rest, number in flatten(value, agents=agents).items()}
        elif isinstance(value, list | tuple):
            each = {(name, str(agent)): _mean(item) for agent, item in enumerate(value)} if agents else {}
            found |= {key: number for key, number in {(name, "mean"): _mean(value), **each}.items() if _known(number)}
        elif _known(number := _mean(value)):
            found[(name,)] = number
    return found


def _known(number: float) -> bool:
    return math.isfinite(number)


def _mean(value: Any) -> float:
    """Return a number as it is, the mean of those in a list, and NaN for what has none."""
    numbers = _numbers(value)
    return math.fsum(numbers) / len(numbers) if numbers and all(map(math.isfinite, numbers)) else math.nan


def _numbers(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


MOST_AGENTS = 64  # of whom each has a curve; of more there is the mean


def plain_settings(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return settings and the algorithm's options side by side; what is None is left out."""
    values = {**dataclasses.asdict(settings), **settings.options}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}
