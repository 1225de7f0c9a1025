"""Agents as channels: [n, batch, channels, ...] <-> [batch, n * channels, ...], without a copy where possible."""

import enum

from gossamer.shapes import Float, Tensor


class Layout(enum.IntEnum):
    """How feature maps lie in memory between layers, fastest first. The first is for images on a GPU alone."""

    CHANNELS_LAST = 0  # what a GPU's convolutions prefer
    CHANNELS_FIRST = 1  # an example's features lie together, so that view(batch, -1) works
    PLAIN = 2  # every agent's as if it were alone: any view works, at a copy for each layer


def fold(x: Float[Tensor, "n batch channels *space"], layout: Layout) -> Float[Tensor, "batch folded *space"]:
    """Put the agents' channels side by side.

    What `unfold` returned is folded again without a copy (unless PLAIN), also after elementwise operations: they keep
    the strides.
    """
    n, batch, channels, *space = x.shape
    if layout == Layout.CHANNELS_LAST and x.is_cuda and len(space) == 2:
        return x.permute(1, 3, 4, 0, 2).reshape(batch, *space, n * channels).permute(0, 3, 1, 2)
    return x.transpose(0, 1).reshape(batch, n * channels, *space)


def unfold(y: Tensor, n: int, layout: Layout) -> Tensor:
    """Give each of n agents its channels of [batch, n * channels, ...] back: [n, batch, channels, ...]."""
    x = y.view(y.shape[0], n, y.shape[1] // n, *y.shape[2:]).transpose(0, 1)
    return x.contiguous() if layout == Layout.PLAIN else x
