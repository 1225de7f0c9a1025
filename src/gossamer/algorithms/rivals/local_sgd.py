"""Local SGD (Stich 2019): agents work alone and average now and then.

    x_i(t+1) = sum_{j in R} w_ij x_j(t) + sum_{k in R^c} w_ik x_k(t - tau) - eta v_i(t)    when H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                                                         else

Messages are sent at the multiples of H only, so that the traffic is that of D-ASGD over H, and H = 1 is D-ASGD.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.errors import UserError


@register("local-sgd")
@dataclass(frozen=True, kw_only=True)
class LocalSgd(Algorithm):
    """Local SGD: averages, and sends, at every H-th step only."""

    every: int = option(8, "H, steps from one averaging to the next")

    def __post_init__(self) -> None:
        """Check the period."""
        if self.every < 1:
            raise UserError(f"every must be 1 step or more, got {self.every}; use for example 8")

    @property
    def period(self) -> int:
        """Messages go out where they are used."""
        return self.every

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return D-ASGD's step when it is time, else a step alone."""
        alone = own.t % self.every != 0
        return Update(self.descend(own, own.x.clone() if alone else mix_heard(own, inbox, weights)))
