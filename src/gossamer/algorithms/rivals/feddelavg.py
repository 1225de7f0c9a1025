"""FedDelAvg (Lin et al. 2020), on a graph: the late average enters with a weight that fits its age.

    x_i(t+1) = alpha_i sum_{j in R} w~_ij x_j(t) + (1 - alpha_i) xbar_i(t) - eta v_i(t)
    xbar_i   = sum_{k in R^c} w_ik x_k(t - tau_ik) / sum_{k in R^c} w_ik

alpha_i = 1 where nothing late is held. It is a constant elsewhere, or 1 - sum_{k in R^c} w_ik / (1 + tau_ik): a message
counts with W's weight over 1 + its age, so that D-ASGD's drag does not grow with the delay. alpha = 1 is C-ASGD.
"""

import dataclasses
from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import add_product, mix_reliable, scale_rows
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("feddelavg")
@dataclass(frozen=True, kw_only=True)
class FedDelAvg(Algorithm):
    """FedDelAvg: mixes the mean of the late states in, the less the older they are."""

    alpha: float | str = option(
        "auto", "weight of the reliably mixed model: auto = 1 - sum of w/(1+tau) over late links, or a number in [0, 1]"
    )

    def __post_init__(self) -> None:
        """Check the weight's name or range."""
        if isinstance(self.alpha, str) and self.alpha != "auto":
            raise UserError(f"unknown alpha '{self.alpha}'; use auto or a number in [0, 1] such as 0.9")
        if not isinstance(self.alpha, str) and not 0 <= self.alpha <= 1:
            raise UserError(f"alpha must lie in [0, 1], got {self.alpha}; use auto or a number such as 0.9")

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return alpha times the reliable mean plus the rest of the late one, minus eta v."""
        heard = weights.own.new_zeros(weights.own.shape)
        for late in inbox.late:
            heard = heard + late.weights.sum(dim=1)
        rest = self._late_weight(inbox, heard)
        reliable = dataclasses.replace(
            weights, clip_own=(1 - rest) * weights.clip_own, clip_fresh=scale_rows(1 - rest, weights.clip_fresh)
        )
        mixed = mix_reliable(own, inbox, reliable)
        share = rest / heard.masked_fill(heard == 0, 1)  # nothing late: nothing is added
        for late in inbox.late:
            add_product(mixed, scale_rows(share, late.weights), late.message["x"])
        return Update(self.descend(own, mixed))

    def _late_weight(self, inbox: Inbox, heard: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        """Return 1 - alpha for each agent."""
        if not isinstance(self.alpha, str):
            return (1 - self.alpha) * (heard > 0).to(heard.dtype)  # else the number would be rounded to float32
        total = heard.new_zeros(heard.shape)
        for late in inbox.late:
            total = total + late.weights.sum(dim=1) / (1 + late.age)
        return total
