"""DC-S3GD (Rigazzi 2019), on a graph: matched differences, and a gradient compensated for the move of mixing.

    D_i   = sum_{j in R} w~_ij x_j(t) - x_i(t)
            + sum_{k in R^c} kappa(tau_ik) w_ik (x_k(t - tau_ik) - x_i(t - tau_ik))
    lam_i = lam0 |g_i| / (|g_i * g_i * D_i| + tiny)
    x_i(t+1) = x_i + D_i - eta (v_i + lam_i g_i * g_i * D_i)

D_i is the move of agent i by mixing with matched differences (matched.py). g*g approximates the curvature, so the
gradient at x_i is extrapolated to x_i + D_i. lam_i makes the correction lam0 times as long as the gradient. lam0 = 0 is
DM-ASGD.
"""

import math
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.matched import Matched
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_reliable
from gossamer.errors import UserError

TINY = 1e-12  # in consensus D is rounding error, which must not be amplified


@register("dc-s3gd")
@dataclass(frozen=True, kw_only=True)
class DcS3gd(Matched):
    """DC-S3GD: matched differences, with a gradient compensated for them."""

    origin = "adapted"

    lam0: float = option(0.2, "length of the compensation over the length of the gradient; 0 is dm-asgd")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lam0 < math.inf:
            raise UserError(f"lam0 must be 0 or more and finite, got {self.lam0}; use for example 0.2")

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return x + D minus eta times the compensated direction."""
        x, g, v = mix_reliable(own, inbox, weights), own.g, own.v
        if self.gradient_at == "mixed":
            assert own.evaluate is not None
            g = v = own.evaluate.gradient(x)
        self.add_differences(x, own, inbox, "x")
        curved = g.square() * (x - own.x)
        length = torch.linalg.vector_norm(curved, dim=1)
        lam = self.lam0 * torch.linalg.vector_norm(g, dim=1) / (length + TINY)
        return Update(x.sub_(v + lam[:, None] * curved, alpha=own.lr))
