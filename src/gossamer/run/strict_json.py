"""JSON that every program can read."""

import json
import math
from typing import Any


def to_json(value: Any) -> str:
    """Return one line of strict JSON. Non-finite numbers become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:  # checking every number first takes ten times as long as writing them
        return json.dumps(finite(value))


def finite(value: Any) -> Any:
    """Return the value with null for each number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
