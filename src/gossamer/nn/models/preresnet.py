"""Pre-activation ResNets for small images (He et al. 2016, "Identity mappings in deep residual networks").

A 3x3 convolution to 16 channels, three stages of n blocks with 16, 32 and 64 channels, the later two at half the
resolution of the one before, then norm, ReLU, mean over pixels and softmax regression. A block is x + F(x), where F is
two 3x3 units conv(relu(norm(x))): 6n + 2 layers; or, as a bottleneck, units of 1x1, 3x3 and 1x1, the last four times as
wide: 9n + 2 layers. If F changes the shape, x goes through a 1x1 convolution, which does not count as a layer.
"""

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import nn

from gossamer.nn.models.spec import Spec, image_shape
from gossamer.shapes import Float, Tensor

STEM = 16
WIDTHS = (16, 32, 64)
BOTTLENECKS_FROM = 164  # the smallest depth for which the paper reports bottlenecks


class NormReLUConv2d(nn.Module):
    """conv(relu(norm(x))), plus an optional residual: the pre-activation unit of PreResNet and DenseNet."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels_in)
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=False)

    def forward(
        self, x: Float[Tensor, "b c h w"], residual: Float[Tensor, "b k h2 w2"] | None = None
    ) -> Float[Tensor, "b k h2 w2"]:
        """Return the convolution of the normalised and rectified input."""
        y: Tensor = self.conv(torch.relu(self.norm(x)))
        return y if residual is None else y + residual


def make_head(channels: int, num_classes: int) -> nn.Sequential:
    """Make the layers after the last stage: norm, ReLU, mean over all pixels, softmax regression."""
    return nn.Sequential(
        nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)
    )


def he_start(module: nn.Module) -> None:
    """Draw the weights of convolutions from N(0, 2 / fan_out) (He et al. 2015)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Conv2d | None:
    if channels_in == channels_out and stride == 1:
        return None
    return nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """x + F(x), F being two 3x3 units."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = NormReLUConv2d(channels_in, width, 3, stride=stride)
        self.second = NormReLUConv2d(width, width, 3)
        self.shortcut = _shortcut(channels_in, width, stride)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h2 w2"]:
        """Return the block's output."""
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.second(self.first(x), kept)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """x + F(x), F being units of 1x1, 3x3 and 1x1, the last four times as wide."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = self.expansion * width
        self.first = NormReLUConv2d(channels_in, width, 1)
        self.second = NormReLUConv2d(width, width, 3, stride=stride)
        self.third = NormReLUConv2d(width, channels_out, 1)
        self.shortcut = _shortcut(channels_in, channels_out, stride)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h2 w2"]:
        """Return the block's output."""
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.third(self.second(self.first(x)), kept)  # type: ignore[no-any-return]


def make_preresnet(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make a net from 'preresnet:110' or 'preresnet:29,bottleneck'."""
    spec.allow(most_numbers=1, words=("bottleneck",))
    channels, _, _ = image_shape(spec, shape)
    block: type[BasicBlock | Bottleneck]
    if "bottleneck" in spec.words or (spec.numbers and spec.numbers[0] >= BOTTLENECKS_FROM):
        block, n = Bottleneck, spec.depth(BOTTLENECKS_FROM, 9, 2, "a preresnet of bottlenecks")
    else:
        block, n = BasicBlock, spec.depth(110, 6, 2, "a preresnet")
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=nn.Conv2d(channels, STEM, 3, padding=1, bias=False))
    outputs = [block.expansion * width for width in WIDTHS]
    for stage, (channels_in, channels_out) in enumerate(pairwise([STEM, *outputs])):
        width = WIDTHS[stage]
        first = block(channels_in, width, stride=1 if stage == 0 else 2)
        layers[f"stage{stage + 1}"] = nn.Sequential(first, *(block(channels_out, width, 1) for _ in range(n - 1)))
    layers["head"] = make_head(outputs[-1], num_classes)
    net = nn.Sequential(layers)
    he_start(net)
    return net
