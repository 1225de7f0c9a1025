"""D-ASGD: the baseline of the PC-ASGD paper. Late states are averaged as if they were current.

    x_i(t+1) = sum_{j in R} w_ij x_j(t) + sum_{k in R^c} w_ik x_k(t - tau) - eta v_i(t)

Old states slow every agent down: on a linear objective the pace is eta / (1 + tau * b), where b is the weight of the
late links.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard


@register("d-asgd")
@dataclass(frozen=True, kw_only=True)
class DAsgd(Algorithm):
    """D-ASGD: mixes late states as if they were current; the paper's baseline."""

    origin = "published"

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean of all messages held, current or late, minus eta v."""
        return Update(self.descend(own, mix_heard(own, inbox, weights)))
