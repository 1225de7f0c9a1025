"""The stacked forms of torch's layers. Importing this package registers them."""

from gossamer.nn.stack.forms import fused, linear_layers, norm_layers, recurrent, spatial

__all__ = ["fused", "linear_layers", "norm_layers", "recurrent", "spatial"]
