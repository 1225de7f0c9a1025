"""Local SGD (Stich 2019): agents train alone and average every H steps.

    x_i(t+1) = sum_{j in R} w_ij x_j(t) + sum_{k in R^c} w_ik x_k(t - tau) - eta v_i(t)    if H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                                                         else

Agents send only at multiples of H: 1/H of D-ASGD's traffic. H = 1 is D-ASGD.
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
    """Local SGD: sends and averages only every H steps."""

    origin = "adapted"

    every: int = option(8, "H, steps between two averagings")

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"every must be 1 step or more, got {self.every}; use for example 8")

    @property
    def period(self) -> int:
        return self.every

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return D-ASGD's step every H steps, else a local step."""
        alone = own.t % self.every != 0
        return Update(self.descend(own, own.x.clone() if alone else mix_heard(own, inbox, weights)))
