"""Models by name: `make_model("preresnet:110", (3, 32, 32), 10)`; `MODELS` lists them with an example each."""

from collections.abc import Callable

from torch import nn

from gossamer.nn.models.densenet import make_densenet
from gossamer.nn.models.preresnet import make_preresnet
from gossamer.nn.models.small import make_cnn, make_linear, make_mlp
from gossamer.nn.models.spec import MODELS, Spec, read_spec
from gossamer.nn.models.transformer import make_transformer

__all__ = ["MODELS", "make_model"]


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

    `shape` is that of one example: (features,) or just their number for flat data, (channels, height, width) for
    images, (length,) for text as bytes. The random start comes from torch's global generator.
    """
    spec = read_spec(text)
    return _MAKERS[spec.kind](spec, (shape,) if isinstance(shape, int) else tuple(shape), num_classes)
