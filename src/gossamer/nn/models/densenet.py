"""DenseNets for small images (Huang et al. 2017, "Densely connected convolutional networks").

A 3x3 convolution, three dense blocks with transitions between them, then norm, ReLU, mean over pixels and softmax
regression. A layer appends k channels, computed from all channels before it, to its input; a transition is a 1x1
convolution and 2x2 average pooling. DenseNet-BC starts with 2k channels, its layers first go to 4k channels by a 1x1
convolution (B), and its transitions halve the channels (C): 6n + 4 layers. The plain net starts with 16 channels and
has neither: 3n + 4 layers.
"""

from collections import OrderedDict

import torch
from torch import nn

from gossamer.nn.models.preresnet import NormReLUConv2d, he_start, make_head
from gossamer.nn.models.spec import Spec, image_shape
from gossamer.shapes import Float, Tensor

BLOCKS = 3
PLAIN_STEM = 16
BOTTLENECK = 4  # times k channels between the two convolutions of a layer


class Concat(nn.Module):
    """Concatenates feature maps along their channels."""

    def forward(self, *parts: Float[Tensor, "b _ h w"]) -> Float[Tensor, "b c h w"]:
        """Return the concatenated parts."""
        return torch.cat(parts, dim=1)


class DenseLayer(nn.Module):
    """The input, then `growth` new channels."""

    def __init__(self, channels_in: int, growth: int, *, bottleneck: bool) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        self.units = nn.Sequential(
            *([NormReLUConv2d(channels_in, inner, 1)] if bottleneck else []),
            NormReLUConv2d(inner if bottleneck else channels_in, growth, 3),
        )
        self.join = Concat()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        """Return the input and the new channels."""
        return self.join(x, self.units(x))  # type: ignore[no-any-return]


class DenseBlock(nn.Sequential):
    """Dense layers at one resolution. With stacked agents it runs as one fused unit."""


def make_densenet(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make a net from 'densenet:100', 'densenet:40,k=24' or 'densenet:40,k=12,plain'."""
    spec.allow(most_numbers=1, words=("plain",), values=("k",))
    image_channels, _, _ = image_shape(spec, shape, smallest=2 ** (BLOCKS - 1))
    compact, growth = "plain" not in spec.words, spec.whole("k", 12)
    n = spec.depth(100, 6, 4, "a densenet") if compact else spec.depth(40, 3, 4, "a plain densenet")
    channels = 2 * growth if compact else PLAIN_STEM
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(image_channels, channels, 3, padding=1, bias=False)
    )
    for block in range(1, BLOCKS + 1):
        dense = [DenseLayer(channels + i * growth, growth, bottleneck=compact) for i in range(n)]
        layers[f"block{block}"] = DenseBlock(*dense)
        channels += n * growth
        if block < BLOCKS:
            kept = channels // 2 if compact else channels
            layers[f"transition{block}"] = nn.Sequential(NormReLUConv2d(channels, kept, 1), nn.AvgPool2d(2))
            channels = kept
    layers["head"] = make_head(channels, num_classes)
    net = nn.Sequential(layers)
    he_start(net)
    return net
