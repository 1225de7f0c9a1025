"""What the deep convolutional nets share: their last layers and the start of their weights."""

from torch import nn


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
