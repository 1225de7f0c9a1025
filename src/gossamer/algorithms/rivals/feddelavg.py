"""FedDelAvg (Lin, Brinton, Michelusi 2020), on a graph: every H steps a share of the late average is mixed in.

    x_i(t+1) = alpha_i sum_{j in R} w~_ij x_j(t) + (1 - alpha_i) xbar_i(t) - eta v_i(t)        if H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                                                             else
    xbar_i   = the mean, by the weights of W, of x_k(t - tau_ik), k in R^c, and of the agent's own x_i(t - tau)

In the publication xbar is a server's average of all models. On a complete graph without clusters and with one delay it
is the same here: the agent's own late model has the weight w_ii, spread over the ages as the weights of the others are.

alpha_i is a constant, or 1 - sum_{k in R^c} w_ik / (1 + tau_ik), and 1 for an agent without late messages. The second
form divides the weight of a message by 1 + its age, so the slowdown does not grow with the delay. H = 1 and alpha = 1
is C-ASGD.
"""

import dataclasses
from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Past, Update, Weights
from gossamer.algorithms.options import PERIOD, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import add_product, mix_reliable, scale_rows
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("feddelavg")
@dataclass(frozen=True, kw_only=True)
class FedDelAvg(Algorithm):
    """FedDelAvg: every H steps mixes in the mean of the late states, with a smaller weight the older they are."""

    origin = "adapted"
    revision = 2

    alpha: float | str = option(
        "auto", "weight of the reliable mean: auto = 1 - sum of w/(1+tau) over late links, or a number in [0, 1]"
    )
    every: int = option(8, "H, steps between two synchronisations", within=PERIOD)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.alpha, str) and self.alpha != "auto":
            raise UserError(f"unknown alpha '{self.alpha}'; use auto or a number in [0, 1] such as 0.9")
        if not isinstance(self.alpha, str) and not 0 <= self.alpha <= 1:
            raise UserError(f"alpha must lie in [0, 1], got {self.alpha}; use auto or a number such as 0.9")

    @property
    def past(self) -> Past:
        """The own model of the time of each late message, which is part of the average."""
        return Past.STATE

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return alpha times the reliable mean plus 1 - alpha times the late mean every H steps, minus eta v."""
        if own.t % self.every:
            return Update(self.descend(own, own.x.clone()))
        heard = weights.own.new_zeros(weights.own.shape)
        for late in inbox.late:
            heard = heard + late.weights.sum(dim=1)
        rest = self._late_weight(inbox, heard)
        reliable = dataclasses.replace(
            weights, clip_own=(1 - rest) * weights.clip_own, clip_fresh=scale_rows(1 - rest, weights.clip_fresh)
        )
        mixed = mix_reliable(own, inbox, reliable)
        share = rest / (weights.own + heard)
        own_share = share * weights.own / heard.masked_fill(heard == 0, 1)
        for late in inbox.late:
            add_product(mixed, scale_rows(share, late.weights), late.message["x"])
            mixed.addcmul_((own_share * late.weights.sum(dim=1))[:, None], late.own["x"])
        return Update(self.descend(own, mixed))

    def _late_weight(self, inbox: Inbox, heard: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        """Return 1 - alpha for each agent."""
        if not isinstance(self.alpha, str):
            return (1 - self.alpha) * (heard > 0).to(heard.dtype)  # 1 - alpha in float64, then rounded
        total = heard.new_zeros(heard.shape)
        for late in inbox.late:
            total = total + late.weights.sum(dim=1) / (1 + late.age)
        return total
