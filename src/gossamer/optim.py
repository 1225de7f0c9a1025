"""Optimizers for your own training loop."""

from gossamer.runtime.optimizer import Decentralized

__all__ = ["Decentralized"]
