"""SDM-ASGD, steady matched differences: DM-ASGD, and what is not trend in an agent's own path is damped.

    m_i(t) = m_i(t-1) + (x_i(t) - m_i(t-1)) / (1 + L)       n_i(t) = n_i(t-1) + (m_i(t) - n_i(t-1)) / (1 + L)
    x_i(t+1) = [DM-ASGD's] - psi (x_i(t) - (2 m_i(t) - n_i(t)))

2 m - n, double exponential smoothing (Brown 1956), follows a steady drift without lag, so that the pace stays eta. What
comes late is too old to calm curved directions, where an agent has the gradient noise of its own cluster alone; the
damping does that. psi = 0 is DM-ASGD.
"""

import math
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.dm_asgd import DmAsgd
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("sdm-asgd")
@dataclass(frozen=True, kw_only=True)
class SdmAsgd(DmAsgd):
    """SDM-ASGD: matched differences, and a damping of what is not trend in an agent's own path."""

    damping: float = option(0.2, "psi, the share of what is not trend that a step takes away; 0 is dm-asgd")
    lag: float = option(10.0, "L, the steps by which each of the two smoothed paths stays behind")

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        if not 0 <= self.damping <= 1:
            raise UserError(f"damping must lie in [0, 1], got {self.damping}; use for example 0.2")
        if not 0 <= self.lag < math.inf:
            raise UserError(f"lag must be 0 steps or more and finite, got {self.lag}; use for example 10")

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Nobody has moved yet."""
        return {"smooth": x.clone(), "smoother": x.clone()}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return DM-ASGD's step less a share of the way from the trend."""
        share = 1 / (1 + self.lag)
        smooth = torch.lerp(own.state["smooth"], own.x, share)
        smoother = torch.lerp(own.state["smoother"], smooth, share)
        x = super().step(own, inbox, weights, noise).x
        x.sub_(own.x - 2 * smooth + smoother, alpha=self.damping)
        return Update(x, state={"smooth": smooth, "smoother": smoother})
