"""The parts of a rule's messages: their names, sizes and types, from the rule's declaration."""

import torch

from gossamer.algorithms.base import Algorithm
from gossamer.network import Network


def aliases(*, plain: bool) -> dict[str, str]:
    """Return the parts that equal others: with plain SGD the direction is the gradient, so one copy serves both."""
    return {"v": "g"} if plain else {}


def parts_sent(names: tuple[str, ...], *, plain: bool) -> tuple[str, ...]:
    """Return these parts without those that equal others."""
    alias = aliases(plain=plain)
    return tuple(dict.fromkeys(alias.get(name, name) for name in names))


def part_size(algorithm: Algorithm, name: str, size: int) -> int:
    """Return the length of one part of a message, for a model of `size` parameters."""
    return 1 if name in algorithm.numbers else size


def part_dtype(algorithm: Algorithm, name: str, dtype: torch.dtype) -> torch.dtype:
    """Return the type of one part: totals outgrow float32."""
    return torch.float64 if name in algorithm.totals else dtype


def part_bytes(algorithm: Algorithm, name: str, size: int, itemsize: int) -> int:
    """Return the bytes of one part; numbers that are not totals take `itemsize` bytes."""
    return part_size(algorithm, name, size) * (8 if name in algorithm.totals else itemsize)


def bytes_on_links(algorithm: Algorithm, network: Network, size: int, itemsize: int, *, plain: bool) -> list[int]:
    """Return the bytes of a message on each link, for a model of `size` parameters."""
    across, inside = (
        sum(part_bytes(algorithm, name, size, itemsize) for name in parts_sent(names, plain=plain))
        for names in (algorithm.message_across, algorithm.message)
    )
    return [inside if spared else across for spared in network.spared_values.tolist()]
