"""The stacked forms of torch's layers. Importing this package registers them."""

from gossamer.nn.stack.forms import dense, fused, looped, norms, spatial

__all__ = ["dense", "fused", "looped", "norms", "spatial"]
