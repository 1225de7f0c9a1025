"""Models by name: `make_model("preresnet:110", (3, 32, 32), 10)`; `MODELS` lists them with an example each.

The small models are in this file: softmax regression, fully connected layers, a plain convolutional net.
"""

import math
from collections.abc import Callable
from itertools import pairwise

from torch import nn

from gossamer.nn.models.densenet import make_densenet
from gossamer.nn.models.preresnet import make_preresnet
from gossamer.nn.models.spec import MODELS, Spec, image_shape, read_spec
from gossamer.nn.models.transformer import make_transformer

__all__ = ["MODELS", "make_model"]


def make_linear(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make softmax regression; images are flattened first."""
    spec.allow()
    layer = nn.Linear(math.prod(shape), num_classes)
    return layer if len(shape) == 1 else nn.Sequential(nn.Flatten(), layer)


def make_mlp(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make fully connected layers with ReLU between them; images are flattened first."""
    spec.allow(most_numbers=None)
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise([math.prod(shape), *spec.widths(32), num_classes]):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    flatten = [nn.Flatten()] if len(shape) > 1 else []
    return nn.Sequential(*flatten, *layers[:-1])


def make_cnn(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make 3x3 convolutions, each with ReLU and 2x2 max pooling, then a hidden layer of the last width."""
    spec.allow(most_numbers=None)
    widths = spec.widths(16, 32)
    channels, height, width = image_shape(spec, shape, smallest=2 ** len(widths))
    layers: list[nn.Module] = []
    for channels_in, channels_out in pairwise([channels, *widths]):
        layers += [nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    pixels = (height >> len(widths)) * (width >> len(widths))
    hidden = nn.Linear(pixels * widths[-1], widths[-1])
    return nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU(), nn.Linear(widths[-1], num_classes))


_MAKERS: dict[str, Callable[[Spec, tuple[int, ...], int], nn.Module]] = {
    "mlp": make_mlp,
    "linear": make_linear,
    "cnn": make_cnn,
    "preresnet": make_preresnet,
    "densenet": make_densenet,
    "transformer": make_transformer,
}


def make_model(text: str, shape: int | tuple[int, ...], num_classes: int) -> nn.Module:
    """Make a model from its text, such as 'mlp:64,32' or 'preresnet:110'.

    `shape` is the shape of one example: (features,) or their number for flat data, (channels, height, width) for
    images, (length,) for text as bytes. The random start uses torch's global generator.
    """
    spec = read_spec(text)
    return _MAKERS[spec.kind](spec, (shape,) if isinstance(shape, int) else tuple(shape), num_classes)
