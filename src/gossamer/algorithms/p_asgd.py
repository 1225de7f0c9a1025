"""P-ASGD: the predicting step of the PC-ASGD paper (Algorithm 1, line 6). Late states are extrapolated to the present.

    x_i(t+1) = sum_{j in R} w_ij x_j(t) - eta v_i(t) + sum_{k in R^c} w_ik (x_k(t - tau) - eta g_dc_k)

It restores the pace eta that D-ASGD loses. It is stable for about eta * tau * h < 2 (h the curvature) and multiplies
the variance of the gradient noise by about 1 + tau^2 |R^c| / N^2.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Late, Noise, Own, Update, Weights
from gossamer.algorithms.compensation import Compensated
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import blend, holds_late, mix_heard, mix_reliable
from gossamer.shapes import Float, Tensor


@dataclass(frozen=True, kw_only=True)
class Predicting(Compensated):
    """Base of the rules with a predicting and a clipping step."""

    def predict(self, own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
        """Return line 6: all messages held, late states extrapolated by their compensated gradients."""
        x = self.descend(own, mix_heard(own, inbox, weights))
        for late in inbox.late:
            self.carry_forward(x, own, late, 1 / weights.mass)
        return x

    def carry_forward(self, x: Float[Tensor, "a d"], own: Own, late: Late, share: Float[Tensor, " a"]) -> None:
        """Add to x, in place, how far late neighbours are predicted to have moved since their messages."""
        compensation = self.compensation(own, late)
        if compensation is not None:
            x.addcmul_(compensation, share[:, None], value=-own.lr)

    def clip(self, own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
        """Return line 7: reliable neighbours only."""
        return self.descend(own, mix_reliable(own, inbox, weights))


@register("p-asgd")
@dataclass(frozen=True, kw_only=True)
class PAsgd(Predicting):
    """P-ASGD: always predicts the present state of late neighbours; PC-ASGD with theta = 1."""

    origin = "published"

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Predict; an agent without late messages mixes with its reliable neighbours."""
        late = holds_late(own, inbox)
        x = self.predict(own, *blend(inbox, weights, late.to(own.x.dtype)))
        return Update(x, torch.ones_like(weights.own).masked_fill(~late, torch.nan))
