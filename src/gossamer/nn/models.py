"""Small models by name: 'mlp' (one hidden layer of 32), 'mlp:64,32' (widths given), 'linear'."""

from torch import nn

from gossamer.errors import UserError, read_whole, unknown_name

MODELS = {
    "mlp": "fully connected with ReLU; mlp is mlp:32, mlp:64,32 has two hidden layers",
    "linear": "softmax regression",
}


def make_model(text: str, num_features: int, num_classes: int) -> nn.Module:
    """Make a classifier of flat inputs from its name."""
    kind, colon, rest = text.partition(":")
    if kind not in MODELS:
        raise unknown_name("model", text, MODELS)
    if kind == "linear" and colon:
        raise UserError(f"model '{text}' takes no parameter; write linear")
    if kind == "linear":
        return nn.Linear(num_features, num_classes)
    widths = [read_whole("a width of the mlp", part) for part in (rest or "32").split(",")]
    if min(widths) < 1:
        raise UserError(f"model '{text}' has a layer of width {min(widths)}; use 1 or more, as mlp:64,32")
    layers: list[nn.Module] = []
    for width_in, width_out in zip([num_features, *widths], [*widths, num_classes], strict=False):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
