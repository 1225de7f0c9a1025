"""DM-ASGD, matched differences: compares a late state with the agent's own state of the same step.

    x_i(t+1) = sum_{j in R} w~_ij x_j(t) - eta v_i(t)
               + sum_{k in R^c} kappa(tau_ik) w_ik (x_k(t - tau_ik) - x_i(t - tau_ik))

matched.py explains why this keeps the pace, where it is stable, and its prior art. Messages contain states only: half
the bytes of the predicting rules.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.matched import Matched
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_reliable


@register("dm-asgd")
@dataclass(frozen=True, kw_only=True)
class DmAsgd(Matched):
    """DM-ASGD: matched differences; compares a late state with the agent's own state of the same step."""

    origin = "ours"

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return W~ x - eta v plus the matched differences."""
        x = self.descend(own, mix_reliable(own, inbox, weights))
        self.add_differences(x, own, inbox, "x")
        return Update(x)
