"""Models, n agents stacked into one module, and a module as a function of one flat vector."""

from gossamer.nn.flat import FlatModule
from gossamer.nn.models import MODELS, make_model
from gossamer.nn.stack import Stacked, stack

__all__ = ["MODELS", "FlatModule", "Stacked", "make_model", "stack"]
