"""Random numbers drawn in blocks: the number at a place depends on seed, purpose, index and place alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor

BLOCK = 256  # a generator costs as much as a thousand draws

Transform = Callable[[npt.NDArray[np.float64]], npt.NDArray[Any]]


class BlockDraws:
    """The draws of many agents or links. The newest block of each is kept; any other is drawn again."""

    def __init__(
        self, seed: int, purpose: str, transform: Transform, *, normal: bool = False, size: int = BLOCK
    ) -> None:
        """Transform blocks of uniform numbers in [0, 1), or of normal ones."""
        self.seed, self.purpose, self.size = seed, purpose, size
        self._transform, self._draw = transform, torch.randn if normal else torch.rand
        self._held: dict[int, tuple[int, npt.NDArray[Any]]] = {}

    def block(self, index: int, number: int) -> npt.NDArray[Any]:
        """Return a block of draws of an agent or link."""
        drawn: Float[Tensor, " b"] = self._draw(
            self.size, generator=generator(self.seed, self.purpose, index, number), dtype=torch.float64
        )
        return self._transform(drawn.numpy())

    def at(self, index: int, number: int) -> Any:
        """Return the draw at a place."""
        block, place = divmod(number, self.size)
        held = self._held.get(index)
        if held is None or held[0] != block:
            held = self._held[index] = (block, self.block(index, block))
        return held[1][place]


def exponential(uniform: npt.NDArray[np.float64], mean: float) -> npt.NDArray[np.float64]:
    """Return exponential numbers of this mean from uniform ones."""
    return -mean * np.log1p(-uniform)


def lognormal(normal: npt.NDArray[np.float64], mean: float, sigma: float) -> npt.NDArray[np.float64]:
    """Return lognormal numbers of this mean; sigma is the standard deviation of their logarithm."""
    found: npt.NDArray[np.float64] = mean * np.exp(sigma * normal - sigma**2 / 2)
    return found
