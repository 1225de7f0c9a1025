"""The settings of a run as loggers take them."""

import dataclasses

from gossamer.run.settings import Settings

MOST_AGENTS = 64  # of whom each has a curve; of more there is the mean


def plain_settings(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return settings and the algorithm's options side by side; what is None is left out."""
    values = {**dataclasses.asdict(settings), **settings.options}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}
