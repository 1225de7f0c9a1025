"""Stacking: n agents of one model as one module."""

# Importing these registers the stacked forms of torch's and our own layers.
from gossamer.nn.stack import basic_layers, fused_layers, norm_layers, spatial_layers  # noqa: F401
from gossamer.nn.stack.stacked import Stacked, StackWarning, stack
from gossamer.nn.stack.stacked_form import Form, register_form

__all__ = ["Form", "StackWarning", "Stacked", "register_form", "stack"]
