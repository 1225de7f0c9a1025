"""A layer's sizes and the split of its work into programs."""

import math
from dataclasses import dataclass
from typing import Any

import triton

from gossamer.shapes import Float, Tensor

# Programs among which a sum is split: twice what a large GPU holds. Constants, so that sums are split the same way
# everywhere.
PROGRAMS = 528
GRADIENT_PROGRAMS = 264
STATISTICS_ROWS = 128  # pixels are split at multiples of this, whatever the channels, so that parts can be merged


@dataclass(frozen=True)
class Geometry:
    """The sizes of one convolution."""

    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: int
    stride: int
    padding: int
    spread: int = 1  # the input has zeros between its pixels, which are not stored: it is height / spread pixels high

    @property
    def out_height(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def is_plain(self) -> bool:
        """Say whether this is a 3 x 3 convolution whose output has the size of its input."""
        return (self.kernel, self.stride, self.padding, self.spread) == (3, 1, 1, 1)

    def backward(self) -> "Geometry":
        """Return the convolution of the backward pass: channels swapped, the stride in its input."""
        margin = self.kernel - 1 - self.padding
        grown = self.height + 2 * self.padding - self.kernel + 1, self.width + 2 * self.padding - self.kernel + 1
        return Geometry(*grown, self.channels_out, self.channels_in, self.kernel, 1, margin, self.stride)

    def arguments(self, row: int = 0) -> dict[str, Any]:
        """Return the size arguments of every kernel; `row` is the width of wider output rows."""
        in_vector, out_vector = vector_of(self.channels_in), vector_of(self.channels_out, row)
        if self.kernel > 1:
            in_vector = self.channels_in  # windows are cut at channel counts, so those are compiled in
        return {
            "in_vectors": self.channels_in // in_vector,
            "out_vectors": self.channels_out // out_vector,
            "IN_VECTOR": in_vector,
            "OUT_VECTOR": out_vector,
            "HEIGHT": self.height,
            "WIDTH": self.width,
            "OUT_HEIGHT": self.out_height,
            "OUT_WIDTH": self.out_width,
            "KERNEL": self.kernel,
            "STRIDE": self.stride,
            "PADDING": self.padding,
        }


def vector_of(*counts: int) -> int:
    """Return the power of two, up to 16, that divides all channel counts."""
    return math.gcd(16, *counts)


def block_of(count: int, limit: int = 64) -> int:
    """Return the channels per program: a power of two that the matrix units support."""
    return int(min(limit, max(16, triton.next_power_of_2(count))))


def split_rows(num_rows: int, rows: int, programs: int) -> tuple[int, int]:
    """Return the number of programs for the rows of an agent, and the rows of each, in whole tiles."""
    tiles = triton.cdiv(num_rows, rows)
    each = triton.cdiv(tiles, max(1, min(tiles, programs, 128)))
    return triton.cdiv(tiles, each), each * rows


def num_rows_of(x: Float[Tensor, "n b h w c"]) -> int:
    """Return the pixels of one agent."""
    return x.shape[1] * x.shape[2] * x.shape[3]
