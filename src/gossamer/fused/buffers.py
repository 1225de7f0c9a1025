"""Memory that is used again: a new large tensor costs a page fault for every page, at every step."""

import weakref
from collections import defaultdict

import numpy as np
import numpy.typing as npt
import torch

from gossamer.shapes import Float, Tensor

LARGE = 2**20  # bytes; smaller tensors come from the allocator's own pool
MOST_FREE = 8  # buffers of one size to keep


class Buffers:
    """Gives tensors without values, and takes their memory back when no tensor uses it any more."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[npt.NDArray[np.uint8]]] = defaultdict(list)

    def empty(self, rows: int, columns: int, dtype: torch.dtype) -> Float[Tensor, "a d"]:
        """Return a tensor of this shape."""
        length = rows * columns * dtype.itemsize
        if length < LARGE:
            return torch.empty(rows, columns, dtype=dtype)
        free = self._free[length]
        memory = free.pop() if free else np.empty(length, dtype=np.uint8)
        lent = memory[:]  # the tensor and all its views keep this object alive
        weakref.finalize(lent, _take_back, free, memory).atexit = False
        return torch.from_numpy(lent).view(dtype).view(rows, columns)


def _take_back(free: list[npt.NDArray[np.uint8]], memory: npt.NDArray[np.uint8]) -> None:
    if len(free) < MOST_FREE:
        free.append(memory)
