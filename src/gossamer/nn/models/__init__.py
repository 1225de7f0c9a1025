"""Models by name: `make_model("preresnet:110", (3, 32, 32), 10)`; `MODELS` lists them with an example each."""

from gossamer.nn.models.make import make_model
from gossamer.nn.models.spec import MODELS

__all__ = ["MODELS", "make_model"]
