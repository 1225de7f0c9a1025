"""Layers over channels and space: agents become more channels, or groups of channels."""

import torch
import torch.nn.functional as F
from torch import nn

from gossamer.errors import UserError
from gossamer.nn.stack.leave_vmap import MapLayout
from gossamer.nn.stack.stacked_form import Form, register_form
from gossamer.shapes import Float, Tensor

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CHANNEL_WISE: dict[type[nn.Module], int] = {  # layer -> dimensions of space
    getattr(nn, f"{name}{num_space}d"): num_space
    for name in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "Dropout")
    for num_space in (1, 2, 3)
}


def with_batch(layer: nn.Module, x: Tensor, num_space: int) -> tuple[Float[Tensor, "n b c *s"], bool]:
    """Return [n, batch, channels, *space], and whether the layer was called without a batch."""
    if x.dim() not in (num_space + 2, num_space + 3):
        raise UserError(
            f"a layer {layer} was called with {list(x.shape[1:])} for each agent; it takes [batch, channels, "
            f"{', '.join(['length', 'height', 'width'][-num_space:] if num_space > 1 else ['length'])}]"
        )
    alone = x.dim() == num_space + 2
    return (x.unsqueeze(1) if alone else x), alone


class Convolution(Form):
    """One grouped convolution: agent i has the groups from i * groups to (i + 1) * groups."""

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    kernel_size: tuple[int, ...]

    @classmethod
    def supports(cls, layer: nn.Module) -> bool:
        """Refuse other paddings than zeros."""
        return getattr(layer, "padding_mode", None) == "zeros"

    def run(self, x: Tensor) -> Tensor:
        """Return the convolutions [n, batch, channels, *space] of all agents."""
        n, num_space = self.session.n, len(self.kernel_size)
        x, alone = with_batch(self, x, num_space)
        if x.shape[2] != self.weight.shape[2] * self.groups:  # after folding a wrong number may fit
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
    """A layer that works on each channel alone, such as pooling: its own code on the folded input."""

    def run(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the layer's output (or outputs, with the indices of a maximum) for all agents."""
        x, alone = with_batch(self, x, CHANNEL_WISE[self.layer_type])
        output = super(Form, self).forward(self.folded(x))

        def back(y: Tensor) -> Tensor:
            y = self.session.unfold(y)
            return y.squeeze(1) if alone else y

        return tuple(map(back, output)) if isinstance(output, tuple) else back(output)

    def folded(self, x: Tensor) -> Tensor:
        """Return the input of the layer's own code."""
        return self.session.fold(x)


class AveragePool2d(ChannelWise):
    """Average pooling of images. With padding not in channels_last: torch 2.11 has wrong gradients there."""

    padding: int | tuple[int, int]

    def folded(self, x: Tensor) -> Tensor:
        """Return the input of the layer's own code."""
        folded = self.session.fold(x)
        return folded if self.padding in (0, (0, 0)) else folded.contiguous()


for _convolution in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
    register_form(_convolution, Convolution)
for _layer in CHANNEL_WISE:
    register_form(_layer, ChannelWise)
