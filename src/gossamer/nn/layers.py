"""Layers that the models share. As units they can run fused when many agents are stacked (nn/stack)."""

import torch
from torch import nn

from gossamer.shapes import Float, Tensor


class NormReLUConv2d(nn.Module):
    """conv(relu(norm(x))), plus a residual where given: the pre-activation unit of PreResNet and DenseNet."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels_in)
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=False)

    def forward(
        self, x: Float[Tensor, "b c h w"], residual: Float[Tensor, "b k h2 w2"] | None = None
    ) -> Float[Tensor, "b k h2 w2"]:
        """Return the convolution of the normalised, rectified input."""
        y: Tensor = self.conv(torch.relu(self.norm(x)))
        return y if residual is None else y + residual


class Concat(nn.Module):
    """Joins feature maps along their channels."""

    def forward(self, *parts: Float[Tensor, "b _ h w"]) -> Float[Tensor, "b c h w"]:
        """Return the parts side by side."""
        return torch.cat(parts, dim=1)


def make_head(channels: int, num_classes: int) -> nn.Sequential:
    """Make what follows the last stage: norm, ReLU, the mean over all pixels, softmax regression."""
    return nn.Sequential(
        nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)
    )


def he_start(module: nn.Module) -> None:
    """Draw every convolution's weights from N(0, 2 / fan_out) (He et al. 2015); norms start at one and zero already."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
