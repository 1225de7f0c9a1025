"""Convolutions and their blocks: with Triton kernels on a GPU, with torch's operations elsewhere.

The kernels take [n, batch, height, width, channels]. From one kernel to the next this is a view; the output of any
other layer is copied once.
"""

from typing import Any

import torch
from torch import nn

from gossamer.nn import kernels
from gossamer.nn.models.densenet import Concat, DenseBlock
from gossamer.nn.models.preresnet import BasicBlock, NormReLUConv2d
from gossamer.nn.stack.leave_vmap import MapLayout
from gossamer.nn.stack.norm_layers import BatchNorm
from gossamer.nn.stack.spatial_layers import AveragePool2d, Convolution
from gossamer.nn.stack.stacked_form import Form, register_form
from gossamer.shapes import Float, Tensor

Rows = Float[Tensor, "n b _ _ _"]  # height, width, channels
Maps = Float[Tensor, "n b _ _ _"]  # channels, height, width


def to_rows(x: Maps) -> Rows:
    """Return images with channels last, contiguous in memory."""
    return x.permute(0, 1, 3, 4, 2).contiguous()


def to_maps(x: Rows) -> Maps:
    """Return a view of images with channels first."""
    return x.permute(0, 1, 4, 2, 3)


class FusedConvolution(Convolution):
    """A 2-d convolution: one kernel for all agents."""

    def run(self, x: Tensor) -> Tensor:
        """Return the convolutions [n, batch, channels, height, width] of all agents."""
        if not (usable(self, x) and x.dim() == 5 and fits(self)):
            return super().run(x)
        return to_maps(convolve(self, to_rows(x))[0])


class FusedUnit(Form):
    """conv(relu(norm(x))) + residual."""

    norm: BatchNorm
    conv: FusedConvolution

    def run(self, x: Maps, residual: Maps | None = None) -> Maps:
        """Return the units' outputs of all agents."""
        if usable(self, x) and fits(self.conv) and fits_norm(self.norm):
            rows = None if residual is None else to_rows(residual)
            return to_maps(convolve(self.conv, to_rows(x), self.norm, rows)[0])
        y = self.conv.run(torch.relu(self.norm.run(x)))
        return y if residual is None else y + residual


class FusedBlock(Form):
    """x + F(x): the gradient that bypasses F is added inside the last kernel."""

    first: FusedUnit
    second: FusedUnit
    shortcut: FusedConvolution | None

    def run(self, x: Maps) -> Maps:
        """Return the blocks' outputs of all agents."""
        units = (self.first, self.second)
        if not (usable(self, x) and all(fits(unit.conv) and fits_norm(unit.norm) for unit in units)):
            return self.second.run(self.first.run(x), x if self.shortcut is None else self.shortcut.run(x))
        inner, kept = convolve(self.first.conv, to_rows(x), self.first.norm)
        if self.shortcut is not None:
            kept = convolve(self.shortcut, kept)[0]
        return to_maps(convolve(self.second.conv, inner, self.second.norm, kept)[0])


class FusedDenseBlock(Form):
    """A block of DenseNet-BC in one buffer. A plain block, without 1 x 1 units, runs layer by layer."""

    def run(self, x: Maps) -> Maps:
        """Return the channels of the input and of all layers."""
        layers: list[Any] = list(self.children())
        pairs: list[list[Any]] = [list(layer.units.children()) for layer in layers]
        fit = all(len(pair) == 2 and _narrow(pair[0].conv) and all(_fits_unit(unit) for unit in pair) for pair in pairs)
        if not (fit and usable(self, x)):
            for layer, pair in zip(layers, pairs, strict=True):
                new = x
                for unit in pair:
                    new = unit.run(new)
                x = layer.join.run(x, new)
            return x
        from gossamer.nn.kernels.dense import DenseBlockFunction, DenseNorms

        norms = [DenseNorms(_as_norm(wide.norm), _as_norm(narrow.norm)) for wide, narrow in pairs]
        tensors = [t for pair in pairs for u in pair for t in (u.conv.weight, u.norm.weight, u.norm.bias)]
        return to_maps(DenseBlockFunction.apply(to_rows(x), norms, kernels.dot_precision(), *tensors))


class HalvingPool(AveragePool2d):
    """The mean of 2 x 2 pixels without a change of layout, which torch's own would make twice."""

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]
    divisor_override: int | None

    def run(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the pooled maps of all agents."""
        halves = (2, (2, 2))
        plain = self.kernel_size in halves and self.stride in halves and self.padding in (0, (0, 0))
        even = x.dim() == 5 and x.shape[-1] % 2 == 0 and x.shape[-2] % 2 == 0
        if not (plain and even and self.divisor_override is None and usable(self, x)):
            return super().run(x)
        n, batch, channels, height, width = x.shape
        rows = to_rows(x).view(n, batch, height // 2, 2, width // 2, 2, channels)
        return to_maps(rows.mean(dim=(3, 5)))


class FusedConcat(Form):
    """Concatenates channels without a change of layout."""

    def run(self, *parts: Maps) -> Maps:
        """Return the concatenated parts, agent by agent."""
        if not usable(self, parts[0]):
            return torch.cat(parts, dim=2)
        return to_maps(torch.cat([part.permute(0, 1, 3, 4, 2) for part in parts], dim=-1))


def usable(form: Form, x: Tensor) -> bool:
    """Say whether the kernels may run: not if the model's own code requires another layout."""
    return form.session.layout is MapLayout.CHANNELS_LAST and kernels.usable(x)


def fits(conv: Convolution) -> bool:
    """Say whether the kernels support this convolution: 1 x 1 or 3 x 3, one group, no dilation."""
    if isinstance(conv.padding, str) or conv.groups != 1 or set(conv.dilation) != {1}:
        return False
    square = all(len(set(sizes)) == 1 for sizes in (conv.kernel_size, conv.stride, conv.padding))
    return square and conv.kernel_size[0] in (1, 3) and conv.padding[0] < conv.kernel_size[0]


def fits_norm(norm: Form) -> bool:
    """Say whether the kernels support this norm: over batches, with scale, running statistics and a fixed momentum."""
    over_batches = isinstance(norm, BatchNorm)  # a user may have replaced the norm
    return over_batches and norm.weight is not None and norm.track_running_stats and norm.momentum is not None


def convolve(
    conv: Convolution, x: Rows, norm: BatchNorm | None = None, residual: Rows | None = None
) -> tuple[Rows, Rows]:
    """Return conv(relu(norm(x))) + residual, and x for the path around it."""
    from gossamer.nn.kernels.preactivation_unit import Unit

    of = None if norm is None else _as_norm(norm)
    weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
    stride, padding = conv.stride[0], int(conv.padding[0])
    y, copy = Unit.apply(x, conv.weight, weight, bias, residual, of, stride, padding, kernels.dot_precision())
    return (y if conv.bias is None else y + conv.bias[:, None, None, None].to(y.dtype)), copy


def _as_norm(norm: BatchNorm) -> Any:
    """Return a layer's norm for the kernels, and count the batch."""
    from gossamer.nn.kernels.batch_norm import Norm

    if norm.training and norm.num_batches_tracked is not None:
        norm.session.counters.append(norm.num_batches_tracked)
    assert norm.weight is not None
    assert norm.bias is not None
    return Norm(
        norm.weight.detach(), norm.bias.detach(), norm.running_mean, norm.running_var,
        norm.momentum or 0.0, norm.eps, norm.training,
    )  # fmt: skip


def _fits_unit(unit: FusedUnit) -> bool:
    return fits(unit.conv) and fits_norm(unit.norm) and unit.conv.bias is None and unit.conv.stride == (1, 1)


def _narrow(conv: Convolution) -> bool:
    """Say whether the outputs of a 1 x 1 convolution fit into one program."""
    return conv.kernel_size == (1, 1) and conv.weight.shape[1] <= 128


register_form(nn.Conv2d, FusedConvolution)
register_form(NormReLUConv2d, FusedUnit)
register_form(BasicBlock, FusedBlock)
register_form(DenseBlock, FusedDenseBlock)
register_form(Concat, FusedConcat)
register_form(nn.AvgPool2d, HalvingPool)
