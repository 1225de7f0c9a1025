"""Optimisers for a training loop of your own."""

from gossamer.runtime.optimizer import Decentralized

__all__ = ["Decentralized"]
