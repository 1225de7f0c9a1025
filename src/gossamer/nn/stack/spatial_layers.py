"""Layers over channels and space: the agents become further channels, or groups of them."""

import torch
import torch.nn.functional as F
from torch import nn

from gossamer.errors import UserError
from gossamer.nn.stack.form import Form, register_form
from gossamer.nn.stack.leave_vmap import MapLayout
from gossamer.shapes import Float, Tensor

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def with_batch(layer: nn.Module, x: Tensor, num_space: int) -> tuple[Float[Tensor, "n b c *s"], bool]:
    """Return [n, batch, channels, *space] and whether the layer was called without a batch, as torch allows."""
    if x.dim() not in (num_space + 2, num_space + 3):
        raise UserError(
            f"a layer {layer} was called with {list(x.shape[1:])} for each agent; it takes [batch, channels, "
            f"{', '.join(['length', 'height', 'width'][-num_space:] if num_space > 1 else ['length'])}]"
        )
    alone = x.dim() == num_space + 2
    return (x.unsqueeze(1) if alone else x), alone


class Convolution(Form):
    """One grouped convolution: agent i's groups are the groups i * groups to (i + 1) * groups."""

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    kernel_size: tuple[int, ...]

    @classmethod
    def supports(cls, layer: nn.Module) -> bool:
        """Circular, reflected and replicated padding are left to the layer's own code."""
        return getattr(layer, "padding_mode", None) == "zeros"

    def run(self, x: Tensor) -> Tensor:
        """Return the convolutions [n, batch, channels, *space] of all agents."""
        n, num_space = self.session.n, len(self.kernel_size)
        x, alone = with_batch(self, x, num_space)
        if x.shape[2] != self.weight.shape[2] * self.groups:  # folded, a wrong number may look right
            raise UserError(f"a layer {self} was called with {x.shape[2]} channels for each agent")
        weight = self.weight.flatten(0, 1).to(x.dtype)
        if x.is_cuda and num_space == 2 and self.session.layout == MapLayout.CHANNELS_LAST:
            weight = weight.contiguous(memory_format=torch.channels_last)
        bias = None if self.bias is None else self.bias.flatten().to(x.dtype)
        convolve = CONVOLUTIONS[num_space]
        y = convolve(self.session.fold(x), weight, bias, self.stride, self.padding, self.dilation, n * self.groups)
        y = self.session.unfold(y)
        return y.squeeze(1) if alone else y


class ChannelWise(Form):
    """A layer that treats every channel by itself, such as pooling: its own code, on the folded input."""

    num_space: int

    def run(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the layer's output (or outputs, with the indices of a maximum) for all agents."""
        x, alone = with_batch(self, x, self.num_space)
        output = super(Form, self).forward(self.folded(x))

        def back(y: Tensor) -> Tensor:
            y = self.session.unfold(y)
            return y.squeeze(1) if alone else y

        return tuple(map(back, output)) if isinstance(output, tuple) else back(output)

    def folded(self, x: Tensor) -> Tensor:
        """Return what the layer's own code is given."""
        return self.session.fold(x)


class ChannelWise1d(ChannelWise):
    """Over a length."""

    num_space = 1


class ChannelWise2d(ChannelWise):
    """Over height and width."""

    num_space = 2


class AveragePool2d(ChannelWise2d):
    """Average pooling of images. Padded ones must not be in channels_last: torch 2.11 gets their gradients wrong."""

    padding: int | tuple[int, int]

    def folded(self, x: Tensor) -> Tensor:
        """Return what the layer's own code is given."""
        folded = self.session.fold(x)
        return folded if self.padding in (0, (0, 0)) else folded.contiguous()


class ChannelWise3d(ChannelWise):
    """Over depth, height and width."""

    num_space = 3


for _convolution in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
    register_form(_convolution, Convolution)
for _name in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "Dropout"):
    for _form, _dimension in ((ChannelWise1d, "1d"), (ChannelWise2d, "2d"), (ChannelWise3d, "3d")):
        register_form(getattr(nn, _name + _dimension), _form)
