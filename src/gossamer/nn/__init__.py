"""Models, and the view of a module as one flat vector."""

from gossamer.nn.flat import FlatModule
from gossamer.nn.models import MODELS, make_model

__all__ = ["MODELS", "FlatModule", "make_model"]
