"""DC-S3GD (Rigazzi 2019) on DGA's totals: replaced steps, and gradients compensated for the replacement.

    u_i(t)   = x_i(0) + sum_{s <= t} Delta_i(s)                       the agent's own steps alone
    C_i(t)   = sum_j c w_ij (u_j(s_ij - 1) - u_i(s_ij - 1))           over all messages held
    D_i(t)   = C_i(t) - C_i(t-1)
    lam_i    = lam0 |g_i| / (|g_i * g_i * D_i| + tiny)
    Delta_i  = - eta v(g_i + lam_i g_i * g_i * D_i)                   v the direction of SGD with momentum
    x_i(t+1) = x_i(t) + D_i(t) + Delta_i(t)

A step depends on the messages of its own time, so a message of step s holds the steps before s. With all links current
and equal weights D_i(t) = mean_j Delta_j(t-1) - Delta_i(t-1): the publication, whose all-reduce is one step late. c is
DGA's (dga.py), and lam0 = 0 is DGA on messages one step later. g*g approximates the curvature. lam_i makes the
compensation lam0 times as long as the gradient.

Momentum is linear: v(g + b) = v(g) + B with B <- mu B + b, so the rule keeps B alone. With Nesterov momentum
v(g + b) = v(g) + b + mu B.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import NOT_NEGATIVE, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.dga import Dga
from gossamer.shapes import Float, Tensor

TINY = 1e-12  # avoids 0/0 where D is zero
ROUNDING = 1e-13  # of the totals: a shorter D is rounding error, which must not be amplified


@register("dc-s3gd")
@dataclass(frozen=True, kw_only=True)
class DcS3gd(Dga):
    """DC-S3GD: delayed averaging of steps, with gradients compensated for it."""

    origin = "adapted"
    revision = 2

    lam0: float = option(
        0.2, "length of the compensation over the length of the gradient; 0 is dga, one step later", within=NOT_NEGATIVE
    )

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        nothing = torch.zeros_like(x)
        return {**super().start(x, place), "correction": nothing.double(), "compensation": nothing}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the steps before this one, which depends on the messages of now."""
        return {"steps": own.state["steps"]}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return x + D + Delta."""
        correction = self.correction(own, inbox, weights)
        moved = correction - own.state["correction"]  # not from x, which is rounded
        rounding = ROUNDING * torch.linalg.vector_norm(own.state["steps"], dim=1, keepdim=True)
        moved = moved * (torch.linalg.vector_norm(moved, dim=1, keepdim=True) > rounding)
        # Nothing is exchanged before the first step.
        added = self._compensate(own.g, moved.to(own.x.dtype)) if own.t > 0 else torch.zeros_like(own.g)
        compensation = own.momentum * own.state["compensation"] + added
        compensated = own.v + (added + own.momentum * compensation if own.nesterov else compensation)
        steps = own.state["steps"].sub(compensated, alpha=own.lr)
        x = (steps + correction).to(own.x.dtype)
        return Update(x, state={"steps": steps, "correction": correction, "compensation": compensation})

    def _compensate(self, g: Float[Tensor, "a d"], moved: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return lam g*g*D."""
        curved = g.square() * moved
        length = torch.linalg.vector_norm(curved, dim=1)
        lam: Tensor = self.lam0 * torch.linalg.vector_norm(g, dim=1) / (length + TINY)
        return lam[:, None] * curved
