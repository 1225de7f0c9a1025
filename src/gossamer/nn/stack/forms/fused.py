"""Forms on Triton kernels where there is a GPU, and on torch's operations elsewhere: convolutions and their blocks.

The kernels want [n, batch, height, width, channels]. A tensor that one of them made comes to the next as it is, a
view; from any other layer it is copied once.
"""

from typing import Any

import torch
from torch import nn

from gossamer.nn import kernels
from gossamer.nn.layers import Concat, NormReLUConv2d
from gossamer.nn.models.preresnet import BasicBlock
from gossamer.nn.stack.form import Form, register_form
from gossamer.nn.stack.forms.norms import BatchNorm
from gossamer.nn.stack.forms.spatial import Convolution
from gossamer.shapes import Float, Tensor

Rows = Float[Tensor, "n b h w c"]
Maps = Float[Tensor, "n b c h w"]


def to_rows(x: Maps) -> Rows:
    """Return images with their channels last in memory."""
    return x.permute(0, 1, 3, 4, 2).contiguous()


def to_maps(x: Rows) -> Maps:
    """Return images with their channels first in shape, where they lie."""
    return x.permute(0, 1, 4, 2, 3)


class FusedConvolution(Convolution):
    """A 2-d convolution: one kernel for all agents."""

    def run(self, x: Tensor) -> Tensor:
        """Return the convolutions [n, batch, channels, height, width] of all agents."""
        if not (kernels.usable(x) and x.dim() == 5 and fits(self)):
            return super().run(x)
        return to_maps(convolve(self, to_rows(x))[0])


class FusedUnit(Form):
    """conv(relu(norm(x))) + residual."""

    norm: BatchNorm
    conv: FusedConvolution

    def run(self, x: Maps, residual: Maps | None = None) -> Maps:
        """Return the units' outputs of all agents."""
        if kernels.usable(x) and fits(self.conv) and fits_norm(self.norm):
            rows = None if residual is None else to_rows(residual)
            return to_maps(convolve(self.conv, to_rows(x), self.norm, rows)[0])
        y = self.conv.run(torch.relu(self.norm.run(x)))
        return y if residual is None else y + residual


class FusedBlock(Form):
    """x + F(x): what flows back around F is added inside of its last kernel, not by one of its own."""

    first: FusedUnit
    second: FusedUnit
    shortcut: FusedConvolution | None

    def run(self, x: Maps) -> Maps:
        """Return the blocks' outputs of all agents."""
        units = (self.first, self.second)
        if not (kernels.usable(x) and all(fits(unit.conv) and fits_norm(unit.norm) for unit in units)):
            return self.second.run(self.first.run(x), x if self.shortcut is None else self.shortcut.run(x))
        inner, kept = convolve(self.first.conv, to_rows(x), self.first.norm)
        if self.shortcut is not None:
            kept = convolve(self.shortcut, kept)[0]
        return to_maps(convolve(self.second.conv, inner, self.second.norm, kept)[0])


class FusedConcat(Form):
    """Joins channels where they lie, so that no layout is changed."""

    def run(self, *parts: Maps) -> Maps:
        """Return the parts side by side, agent by agent."""
        if not kernels.usable(parts[0]):
            return torch.cat(parts, dim=2)
        return to_maps(torch.cat([part.permute(0, 1, 3, 4, 2) for part in parts], dim=-1))


def fits(conv: Convolution) -> bool:
    """Say whether the kernels do this convolution: 1 x 1 or 3 x 3, one group, no dilation."""
    size, padding = set(conv.kernel_size), conv.padding
    square = size in ({1}, {3}) and len(set(conv.stride)) == 1 and not isinstance(padding, str)
    return square and len(set(padding)) == 1 and padding[0] < conv.kernel_size[0] and plain(conv)


def plain(conv: Convolution) -> bool:
    """Say whether a convolution is neither grouped nor dilated."""
    return conv.groups == 1 and set(conv.dilation) == {1}


def fits_norm(norm: BatchNorm) -> bool:
    """Say whether the kernels do this norm: scaled, with running statistics of a fixed momentum."""
    return norm.weight is not None and norm.track_running_stats and norm.momentum is not None


def convolve(
    conv: Convolution, x: Rows, norm: BatchNorm | None = None, residual: Rows | None = None
) -> tuple[Rows, Rows]:
    """Return conv(relu(norm(x))) + residual, and x once more for use around it."""
    from gossamer.nn.kernels.unit import Norm, Unit

    of: Any = None
    if norm is not None:
        if norm.training and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        assert norm.weight is not None
        assert norm.bias is not None
        of = Norm(
            norm.weight.detach(), norm.bias.detach(), norm.running_mean, norm.running_var,
            norm.momentum or 0.0, norm.eps, norm.training,
        )  # fmt: skip
    weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
    stride, padding = conv.stride[0], int(conv.padding[0])
    y, copy = Unit.apply(x, conv.weight, weight, bias, residual, of, stride, padding, kernels.dot_precision())
    return (y if conv.bias is None else y + conv.bias[:, None, None, None].to(y.dtype)), copy


register_form(nn.Conv2d, FusedConvolution)
register_form(NormReLUConv2d, FusedUnit)
register_form(BasicBlock, FusedBlock)
register_form(Concat, FusedConcat)
