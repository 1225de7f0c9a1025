"""Synchronous D-PSGD (Lian et al. 2017; CDSGD, Jiang et al. 2017): the delay-free ceiling.

    x_i(t+1) = sum_j w_ij x_j(t) - eta v_i(t)

Every agent waits for its neighbours, so no message is late.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard


@register("sync", "d-psgd", "cdsgd")
@dataclass(frozen=True, kw_only=True)
class DPsgd(Algorithm):
    """Synchronous D-PSGD: every agent waits for all its neighbours; no message is late."""

    origin = "published"
    waits = True

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return W x - eta v."""
        return Update(self.descend(own, mix_heard(own, inbox, weights)))
