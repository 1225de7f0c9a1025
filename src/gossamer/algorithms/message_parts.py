"""The parts of a rule's messages: their names, sizes and types, from the rule's declaration."""

import torch

from gossamer.algorithms.base import Algorithm


def aliases(*, plain: bool) -> dict[str, str]:
    """Return which parts are others: with plain SGD the direction is the gradient, so one is sent and kept for both."""
    return {"v": "g"} if plain else {}


def parts_sent(names: tuple[str, ...], *, plain: bool) -> tuple[str, ...]:
    """Return the parts that have to be sent to know all these."""
    alias = aliases(plain=plain)
    return tuple(dict.fromkeys(alias.get(name, name) for name in names))


def part_size(algorithm: Algorithm, name: str, size: int) -> int:
    """Return the length of one part of a message, for a model of `size` parameters."""
    return 1 if name in algorithm.numbers else size


def part_dtype(algorithm: Algorithm, name: str, dtype: torch.dtype) -> torch.dtype:
    """Return its type: totals outgrow float32."""
    return torch.float64 if name in algorithm.totals else dtype


def part_bytes(algorithm: Algorithm, name: str, size: int, itemsize: int) -> int:
    """Return its bytes, where a number of the others takes `itemsize`."""
    return part_size(algorithm, name, size) * (8 if name in algorithm.totals else itemsize)
