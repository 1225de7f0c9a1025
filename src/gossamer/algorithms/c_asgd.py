"""C-ASGD: the clipping step of the PC-ASGD paper (Algorithm 1, line 7). Late neighbours are ignored.

x_i(t+1) = sum_{j in R} w~_ij x_j(t) - eta v_i(t)
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_reliable


@register("c-asgd")
@dataclass(frozen=True, kw_only=True)
class CAsgd(Algorithm):
    """C-ASGD: ignores late neighbours and mixes only with reliable ones."""

    origin = "published"
    hears_late = False

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return W~ x - eta v."""
        return Update(self.descend(own, mix_reliable(own, inbox, weights)), torch.zeros_like(weights.own))
