"""The stacked forms of torch's layers. Importing this package registers them."""

from gossamer.nn.stack.forms import basic_layers, fused, norm_layers, spatial

__all__ = ["basic_layers", "fused", "norm_layers", "spatial"]
